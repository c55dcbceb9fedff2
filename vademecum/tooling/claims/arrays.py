"""NumPy's arrays: products, transposes, entrywise functions and random draws."""

import math
import operator
import warnings
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch

from vademecum.claims import at_least, at_most, claim, equals, integers
from vademecum.tooling.claims.language import raises

Product = Callable[[Any, Any], Any]


def whole(*shape: int, most: int = 4) -> np.ndarray:
    """Random integers from -most to most, as NumPy's."""
    return integers(*shape, most=most).long().numpy()


def uniform(*shape: int, low: float = 0.0, high: float = 1.0) -> np.ndarray:
    """Random numbers from an interval, from torch's generator."""
    return (low + (high - low) * torch.rand(shape)).numpy()


@claim(
    by="identity", sources=("A-418", "A-422"), budget=0.5,
    short=r"(\mathtt{A\ @\ B})_{ij} = \sum_k A_{ik} B_{kj}, \quad"
    r" (\mathtt{A * B})_{ij} = A_{ij} B_{ij}",
)  # fmt: skip
def numpy_products(matrix: Product = operator.matmul, entrywise: Product = operator.mul):
    r"""Matrix product against entrywise product.

    `A @ B` is the matrix product, $(AB)_{ij} = \sum_k A_{ik} B_{kj}$; `A * B` multiplies entry by
    entry, with broadcasting.

    Knobs:
        matrix: What is taken for the matrix product.
        entrywise: What is taken for the entrywise product.
    """
    square = np.array([[1, 2], [3, 4]])
    yield equals("[[1, 2], [3, 4]] @ itself", matrix(square, square), [[7, 10], [15, 22]])
    yield equals("[[1, 2], [3, 4]] * itself", entrywise(square, square), [[1, 4], [9, 16]])
    a, b = whole(2, 3), whole(3, 4)
    loop = [[sum(int(a[i, k] * b[k, j]) for k in range(3)) for j in range(4)] for i in range(2)]
    yield equals("matrix product of 2 by 3 and 3 by 4", matrix(a, b), loop)
    for c in (whole(2, 3), whole(3), whole(2, 1)):
        wide = np.broadcast_to(c, (2, 3))
        loop = [[int(a[i, j]) * int(wide[i, j]) for j in range(3)] for i in range(2)]
        shape = " by ".join(map(str, c.shape))
        yield equals("entrywise product of 2 by 3", entrywise(a, c), loop, other=shape)


numpy_products.foil("`*` is not the matrix product: [[1, 4], [9, 16]]", matrix=operator.mul)
numpy_products.foil("`@` is not the entrywise product", entrywise=operator.matmul)


@claim(
    by="identity", sources=("A-421",), budget=0.5,
    short=r"(\mathtt{A.T})_{ij} = A_{ji}",
)  # fmt: skip
def numpy_transpose(method: Literal["transpose", "copy", "getT"] = "transpose"):
    r"""Transposing an ndarray.

    `A.T` or `A.transpose()` transposes an ndarray: $(A^\top)_{ij} = A_{ji}$, as a view that shares
    its memory; one-dimensional arrays are unchanged. `getT()` exists only in the legacy class
    `np.matrix`.

    Knobs:
        method: The method that is called beside `A.T`.
    """
    for shape in ((2, 3), (4, 1), (5, 5)):
        a, at = whole(*shape), {"rows": shape[0], "columns": shape[1]}
        called = {**at, "method": method}
        loop = [[int(a[i, j]) for i in range(shape[0])] for j in range(shape[1])]
        failed = raises(AttributeError, lambda a=a: getattr(a, method)())
        yield equals("AttributeErrors of the method", failed, 0, **called)
        if not failed:
            found = getattr(a, method)()
            yield equals("shape after the method", list(found.shape), list(shape[::-1]), **called)
            if found.shape == shape[::-1]:
                yield equals("entries after the method", found, loop, **called)
            shared = np.shares_memory(a, found)
            name = "A and what the method gives share memory (1) or not (0)"
            yield equals(name, shared, 1, **called)
        yield equals("entries of A.T", a.T, loop, **at)
        name = "A and A.T share memory (1) or not (0)"
        yield equals(name, np.shares_memory(a, a.T), 1, **at)
    vector = whole(3)
    yield equals("A.T of a one-dimensional array", vector.T, vector)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the class is on its way out
        legacy = np.matrix(whole(2, 3))
        yield equals("getT() of np.matrix", np.asarray(legacy.getT()), np.asarray(legacy).T)
    missing = raises(AttributeError, lambda: operator.attrgetter("getT")(np.eye(2)))
    yield equals("AttributeErrors of getT of an ndarray", missing, 1)


numpy_transpose.foil("a copy has rows where its transpose has columns", method="copy")
numpy_transpose.erratum(
    "A-421",
    printed="A.getT() or A.transpose() under ndarray manipulation",
    right="A.T or A.transpose()",
    why="np.ndarray has no getT: np.eye(2).getT() raises AttributeError (executed with NumPy 2.4);"
    " it is a method of np.matrix.",
    weight="hard",
    refuted_by="AttributeErrors of the method",
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
    functions are `scipy.linalg.sqrtm`, `expm` and `logm`, with $\sqrt A \sqrt A = A$,
    $e^A = \sum_k A^k / k!$ and $e^{\log A} = A$.

    Knobs:
        sqrt: What is taken for the entrywise square root.
        exp: What is taken for the entrywise exponential.
        log: What is taken for the entrywise natural logarithm.
    """
    from scipy.linalg import expm, logm, sqrtm

    a, b = np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([[1.0, 2.0], [0.0, 3.0]])
    wanted = [[math.e, math.e**2], [1.0, math.e**3]]
    yield equals("np.exp of [[1, 2], [0, 3]]", exp(b), wanted)
    off = (sqrt(a) @ sqrt(a) - a)[0, 1]
    stated = math.sqrt(2) + math.sqrt(3) - 1
    yield equals("np.sqrt(A) @ np.sqrt(A) - A beside the diagonal", off, stated)
    positive = uniform(4, 3, low=0.1, high=5.0)
    square = uniform(4, 4, low=0.1, high=5.0)
    pairs = {"sqrt": (sqrt, math.sqrt), "exp": (exp, math.exp), "log": (log, math.log)}
    for name, (function, scalar) in pairs.items():
        loop = [[scalar(v) for v in row] for row in square.tolist()]
        yield equals("entries of a function of an array", function(square), loop, function=name)
    any_sign = uniform(4, 4, low=-5.0, high=5.0)
    yield equals("np.log(np.exp(A))", log(exp(any_sign)), any_sign, tol=1e-12)
    wide = {name: getattr(np, name)(positive).shape for name in pairs}
    for name, shape in wide.items():
        yield equals("shape of a function of a 4 by 3 array", list(shape), [4, 3], function=name)
    root = np.asarray(sqrtm(a))
    yield equals("sqrtm(A) @ sqrtm(A)", root @ root, a)
    series = sum(np.linalg.matrix_power(b, k) / math.factorial(k) for k in range(40))
    yield equals("expm(A), against the series", expm(b), series)  # the rest is below 3^40 / 40!
    yield equals("expm(logm(A))", expm(np.asarray(logm(a))), a)


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
    $\alpha = 10^{-7}$. That none of three values is missing has a probability of at least
    $1 - 3 (2/3)^n$.

    Knobs:
        included: By how much the upper end of `randint` is moved; 1 would draw the end itself.
        power: The power of 3 that normal draws with `std` 3 are divided by; 1/2 if 3 were the
            variance.
        n: How many numbers are drawn from each law, 100 at least.
    """
    n = max(n, 100)
    radius = math.sqrt(math.log(2e7) / (2 * n))
    draws = np.random.rand(n // 100, 100)  # noqa: NPY002
    yield equals("shape of rand(m, 100)", list(draws.shape), [n // 100, 100])
    yield at_least("lowest draw of rand", draws.min(), 0.0, tol=0.0)
    yield at_most("highest draw of rand", draws.max(), math.nextafter(1.0, 0.0), tol=0.0)
    name = "distance of the distribution function of {} draws"
    yield at_most(name.format("uniform"), _distance(np.sort(draws.ravel())), radius, n=n)
    drawn = np.random.randint(5, 8 + included, n)  # noqa: NPY002
    yield equals("lowest draw of randint(5, 8)", int(drawn.min()), 5)
    yield equals("highest draw of randint(5, 8)", int(drawn.max()), 7)
    shares = np.bincount(drawn - 5, minlength=3)[:3] / n
    off = abs(shares - 1 / 3).max()
    yield at_most("distance of a share of randint(5, 8) from 1/3", off, radius, n=n)
    normal = (np.random.normal(2, 3, n) - 2) / 3**power  # noqa: NPY002
    quantiles = torch.special.ndtr(torch.from_numpy(np.sort(normal))).numpy()
    yield at_most(name.format("normal"), _distance(quantiles), radius, n=n)


def _distance(quantiles: np.ndarray) -> float:
    """The distance of the empirical distribution function of sorted numbers to the uniform one."""
    steps = np.arange(len(quantiles) + 1) / len(quantiles)
    return float(max((steps[1:] - quantiles).max(), (quantiles - steps[:-1]).max()))


numpy_random.foil("`randint` does not draw its upper end", included=1)
numpy_random.foil("the second parameter of `normal` is not the variance", power=0.5)
