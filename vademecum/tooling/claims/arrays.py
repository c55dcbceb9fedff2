"""What the course claims of NumPy's arrays and random numbers."""

import math
import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.tooling.claims.language import raises

Product = Callable[[Any, Any], Any]


def integers(*shape: int, low: int = -4, high: int = 5) -> np.ndarray:
    """Random integers, from torch's generator."""
    return torch.randint(low, high, shape).numpy()


def uniform(*shape: int, low: float = 0.0, high: float = 1.0) -> np.ndarray:
    """Random numbers from an interval, from torch's generator."""
    return (low + (high - low) * torch.rand(shape)).numpy()


@claim(by="identity", sources=("A-418", "A-422"), budget=0.5)
def numpy_products(matrix: Product = operator.matmul, entrywise: Product = operator.mul):
    r"""Matrix product against entrywise product.

    `A @ B` is the matrix product, $(AB)_{ij} = \sum_k A_{ik} B_{kj}$; `A * B` multiplies entry by
    entry, with broadcasting.
    """
    square = np.array([[1, 2], [3, 4]])
    yield equals(matrix(square, square), [[7, 10], [15, 22]])
    yield equals(entrywise(square, square), [[1, 4], [9, 16]])
    a, b = integers(2, 3), integers(3, 4)
    loop = [[sum(int(a[i, k] * b[k, j]) for k in range(3)) for j in range(4)] for i in range(2)]
    yield equals(matrix(a, b), loop)
    for c in (integers(2, 3), integers(3), integers(2, 1)):
        wide = np.broadcast_to(c, (2, 3))
        loop = [[int(a[i, j]) * int(wide[i, j]) for j in range(3)] for i in range(2)]
        yield equals(entrywise(a, c), loop, axes=c.ndim)


numpy_products.foil("`*` is not the matrix product: [[1, 4], [9, 16]]", matrix=operator.mul)
numpy_products.foil("`@` is not the entrywise product", entrywise=operator.matmul)


@claim(by="identity", sources=("A-421",), budget=0.5)
def numpy_transpose(method: str = "transpose"):
    r"""Transposing an ndarray.

    `A.T` or `A.transpose()` transposes an ndarray: $(A^\top)_{ij} = A_{ji}$, as a view that shares
    its memory; one-dimensional arrays are unchanged. `getT()` exists only in the legacy class
    `np.matrix`.
    """
    for shape in ((2, 3), (4, 1), (5, 5)):
        a = integers(*shape)
        loop = [[int(a[i, j]) for i in range(shape[0])] for j in range(shape[1])]
        yield equals(raises(AttributeError, lambda a=a: getattr(a, method)()), 0, rows=shape[0])
        yield equals(getattr(a, method)().shape, shape[::-1], rows=shape[0])
        yield equals(getattr(a, method)(), loop, rows=shape[0])
        yield equals(a.T, loop, rows=shape[0])
        yield equals(int(np.shares_memory(a, a.T)), 1, rows=shape[0])
    vector = integers(3)
    yield equals(vector.T, vector)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        legacy = np.matrix(integers(2, 3))
        yield equals(np.asarray(legacy.getT()), np.asarray(legacy).T)
    yield equals(raises(AttributeError, lambda: operator.attrgetter("getT")(np.eye(2))), 1)


numpy_transpose.foil("a copy has rows where its transpose has columns", method="copy")
numpy_transpose.erratum(
    "A-421",
    printed="A.getT() or A.transpose() under ndarray manipulation",
    right="A.T or A.transpose()",
    why="`np.ndarray` has no `getT`: the call raises AttributeError. Only `np.matrix` has it.",
    method="getT",
)


@claim(by="identity", sources=("A-423", "A-424", "A-425"), budget=0.5)
def numpy_elementwise(
    sqrt: Callable[[Any], Any] = np.sqrt,
    exp: Callable[[Any], Any] = np.exp,
    log: Callable[[Any], Any] = np.log,
):
    r"""Square root, exponential and logarithm act entrywise.

    `np.sqrt(A)`, `np.exp(A)` and `np.log(A)` (the natural logarithm) act on each entry; the matrix
    functions are `scipy.linalg.sqrtm`, `expm` and `logm`, with $\sqrt A \sqrt A = A$ and
    $e^A = \sum_k A^k / k!$.
    """
    from scipy.linalg import expm, sqrtm

    a, b = np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([[1.0, 2.0], [0.0, 3.0]])
    yield equals(exp(b), [[math.e, math.e**2], [1.0, math.e**3]])
    yield equals(expm(b)[1, 0], 0.0)
    root = np.asarray(sqrtm(a))
    yield equals(root @ root, a)
    yield at_least(abs(sqrt(a) @ sqrt(a) - a)[0, 1], 2.14)
    positive = uniform(4, 4, low=0.1, high=5.0)
    pairs = ((sqrt, math.sqrt), (exp, math.exp), (log, math.log))
    for i, (function, scalar) in enumerate(pairs):
        loop = [[scalar(v) for v in row] for row in positive.tolist()]
        yield equals(function(positive), loop, tol=1e-14, function=i)
    any_sign = uniform(4, 4, low=-5.0, high=5.0)
    yield equals(log(exp(any_sign)), any_sign, tol=1e-12)


def _scipy(name: str) -> Callable[[Any], Any]:
    def function(a: Any) -> Any:
        import scipy.linalg

        return getattr(scipy.linalg, name)(a)

    return function


numpy_elementwise.foil("the root of a matrix: its square would be the matrix", sqrt=_scipy("sqrtm"))
numpy_elementwise.foil("the matrix exponential, which keeps the zero", exp=_scipy("expm"))
numpy_elementwise.foil("`np.log` is not the decadic logarithm", log=np.log10)


@claim(by="sampling", sources=("A-427", "A-428", "A-429"), budget=0.5)
def numpy_random(included: int = 0, power: float = 1.0, n: int = 20000):
    r"""Conventions of NumPy's random draws.

    `np.random.rand(m, n)` draws uniformly from $[0, 1)$; `np.random.randint(low, high, size)` draws
    integers from the half-open range $[\text{low}, \text{high})$; and
    `np.random.normal(mean, std, size)` takes the standard deviation, not the variance.

    *Error rates.* An empirical distribution function of $n$ draws is farther than
    $\sqrt{\ln(2 / \alpha) / (2 n)}$ from the true one with a probability of at most $\alpha$
    (Dvoretzky, Kiefer, Wolfowitz and Massart), and so is a relative frequency (Hoeffding);
    $\alpha = 10^{-7}$.
    """
    radius = math.sqrt(math.log(2e7) / (2 * n))
    draws = np.random.rand(n // 100, 100)  # noqa: NPY002
    yield equals(draws.shape, (n // 100, 100))
    yield at_least(draws, 0.0, tol=0.0)
    yield at_most(draws, math.nextafter(1.0, 0.0), tol=0.0)
    yield at_most(_distance(np.sort(draws.ravel())), radius, law=0)
    whole = np.random.randint(0, 3 + included, n)  # noqa: NPY002
    yield equals([int(whole.min()), int(whole.max())], [0, 2])
    yield at_most(abs(np.bincount(whole, minlength=3)[:3] / n - 1 / 3), radius, law=1)
    normal = np.random.normal(0, 3, n) / 3**power  # noqa: NPY002
    yield at_most(_distance(torch.special.ndtr(torch.from_numpy(np.sort(normal))).numpy()), radius)


def _distance(quantiles: np.ndarray) -> float:
    """The distance of the empirical distribution function of sorted numbers to the uniform one."""
    steps = np.arange(len(quantiles) + 1) / len(quantiles)
    return float(max((steps[1:] - quantiles).max(), (quantiles - steps[:-1]).max()))


numpy_random.foil("`randint` does not draw its upper end", included=1)
numpy_random.foil("the second parameter of `normal` is not the variance", power=0.5)
