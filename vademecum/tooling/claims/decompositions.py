"""NumPy's linear algebra: which factor comes out how."""

from collections.abc import Callable
from fractions import Fraction
from itertools import permutations
from typing import Any, Literal

import numpy as np

from vademecum.claims import at_least, claim, equals
from vademecum.tooling.claims.arrays import uniform, whole
from vademecum.tooling.claims.language import raises


def exact_determinant(a: np.ndarray) -> int:
    """Leibniz' sum over permutations, in integers."""
    total, n = 0, len(a)
    for order in permutations(range(n)):
        swaps = sum(order[i] > order[j] for i in range(n) for j in range(i + 1, n))
        term = (-1) ** swaps
        for i in range(n):
            term *= int(a[i, order[i]])
        total += term
    return total


def exact_inverse(a: np.ndarray) -> np.ndarray:
    """Cramer's rule, in fractions."""
    n, det = len(a), exact_determinant(a)
    inverse = np.empty((n, n), dtype=object)
    for i in range(n):
        for j in range(n):
            minor = np.delete(np.delete(a, j, 0), i, 1)
            inverse[i, j] = Fraction((-1) ** (i + j) * exact_determinant(minor), det)
    return inverse


def regular(n: int) -> np.ndarray:
    """A random regular integer matrix, with a condition that keeps rounding below the tolerance."""
    while True:
        a = whole(n, n)
        if exact_determinant(a) and np.linalg.cond(a) < 30:
            return a


@claim(
    by="identity", sources=("A-411", "A-412", "A-413", "A-415", "A-420", "A-426"), budget=0.5,
)  # fmt: skip
def numpy_matrix_basics(
    power: Callable[[Any, int], Any] = np.linalg.matrix_power,
    inverse: Callable[[Any], Any] = np.linalg.inv,
):
    r"""Identity, diagonal, trace, determinant, inverse and power in NumPy.

    `np.eye(n)` is the identity in double precision; `np.diag` turns a vector into a diagonal matrix
    and a matrix into its diagonal; `np.trace(A)`, `np.linalg.det(A)` and `np.linalg.inv(A)` are
    trace, determinant and inverse (`LinAlgError` if a pivot is exactly zero);
    `np.linalg.matrix_power(A, k)` is the $k$-fold matrix product, of the inverse for negative $k$.

    The oracles are exact: Leibniz' sum, Cramer's rule, and products of fractions.

    Knobs:
        power: What is taken for the power of a matrix.
        inverse: What is taken for the inverse of a matrix.
    """
    witness = np.array([[2, 1], [1, 3]])
    yield equals("square of [[2, 1], [1, 3]]", power(witness, 2), [[5, 5], [5, 10]])
    yield equals("bits of the mantissa of np.eye(3)", int(np.finfo(np.eye(3).dtype).nmant), 52)
    singular = raises(np.linalg.LinAlgError, lambda: np.linalg.inv(np.zeros((2, 2))))
    yield equals("LinAlgErrors of the inverse of zeros", singular, 1)
    for a in (witness, regular(1), regular(3), regular(4)):
        n = len(a)
        yield equals("np.eye(n) @ A", np.eye(n) @ a, a.astype(float), tol=0.0, n=n)
        diagonal = [int(a[i, i]) for i in range(n)]
        yield equals("np.diag of a matrix", np.diag(a).tolist(), diagonal, n=n)
        kept = a * (np.arange(n)[:, None] == np.arange(n))
        yield equals("np.diag of a vector", np.diag(np.diag(a)), kept, n=n)
        yield equals("trace", int(np.trace(a)), sum(diagonal), n=n)
        yield equals("determinant", np.linalg.det(a), float(exact_determinant(a)), n=n)
        exact = exact_inverse(a)
        yield equals("inverse", inverse(a.astype(float)), exact.astype(float), n=n)
        for k in range(-2, 5):
            factor = exact if k < 0 else a.astype(object)
            expected = np.eye(n, dtype=int).astype(object)
            for _ in range(abs(k)):
                expected = expected @ factor
            yield equals("power", power(a.astype(float), k), expected.astype(float), k=k, n=n)


def reciprocals(a: np.ndarray) -> np.ndarray:
    """One over each entry."""
    with np.errstate(divide="ignore"):
        return 1 / a


numpy_matrix_basics.foil("`A**k` takes powers of the entries", power=lambda a, k: a**k)
numpy_matrix_basics.foil("`1 / A` takes reciprocals of the entries", inverse=reciprocals)

COMPLEX_SINCE = (2, 5)
"""The NumPy from which on `eig` answers in complex numbers, whatever the eigenvalues are."""


@claim(
    by="identity", sources=("A-414",), budget=0.5,
    short=r"\mathtt{w, V = eig(A)}: \quad A V = V \operatorname{diag}(w)",
)  # fmt: skip
def numpy_eig(vectors: Literal["columns", "rows"] = "columns"):
    r"""Eigenvectors are the columns.

    `w, V = np.linalg.eig(A)` returns eigenvalues in no particular order and a matrix whose columns
    `V[:, i]` are unit eigenvectors, $A V = V \operatorname{diag}(w)$. Where all eigenvalues of a
    real matrix are real, both are arrays of real numbers up to NumPy 2.4, and from NumPy 2.5 on
    they are complex there, too, with imaginary parts of zero. For a symmetric $A$ use
    `np.linalg.eigh`, which sorts ascending and returns orthonormal columns of real numbers.

    *Check.* Whole matrices $A = T \operatorname{diag}(1, \dots, n)\, T^{-1}$ with planted
    eigenvalues. Those found belong to a matrix within some $n \varepsilon \|A\|$ of it, with the
    machine precision $\varepsilon$, and so are off by at most that times the condition of $T$
    (Bauer and Fike, 1960).

    Knobs:
        vectors: What of $V$ is taken for the eigenvectors.
    """
    always = tuple(map(int, np.__version__.split(".")[:2])) >= COMPLEX_SINCE
    cases = [np.array([[1, 1], [0, 1]])]
    for n in (2, 3, 5):
        cases.append(np.triu(whole(n, n, most=2), 1) + np.eye(n, dtype=int))
    for t in cases:
        n, planted = len(t), np.arange(1, len(t) + 1)
        planted = np.array([1, 3]) if t is cases[0] else planted  # [[1, 2], [0, 3]]
        a = t @ np.diag(planted) @ np.rint(np.linalg.inv(t)).astype(int)
        rounding = 10 * n * np.finfo(float).eps * np.linalg.cond(t) * np.linalg.norm(a)
        w, v = np.linalg.eig(a)
        taken = {"columns": v, "rows": v.T}[vectors]
        yield equals("A times an eigenvector", a @ taken, taken * w, n=n)
        yield equals("length of an eigenvector", np.linalg.norm(v, axis=0), 1.0, n=n)
        found, imaginary = np.sort(np.real(w)), np.imag(w).copy()
        yield equals("eigenvalues, sorted", found, planted.astype(float), tol=rounding, n=n)
        yield equals("imaginary parts of real eigenvalues", imaginary, 0.0, tol=rounding, n=n)
        name = "bytes of a real eigenvalue and of an entry of its eigenvector"
        yield equals(name, [w.itemsize, v.itemsize], 16 if always else 8, n=n)
    turn = np.linalg.eig(np.array([[0.0, -1.0], [1.0, 0.0]]))[0]
    yield equals("imaginary parts for a quarter turn, sorted", np.sort(np.imag(turn)), [-1.0, 1.0])
    order = np.real(np.linalg.eig(np.diag([3.0, 1.0, 2.0]))[0])
    yield equals("eigenvalues of diag(3, 1, 2) as they come", order, [3.0, 1.0, 2.0])
    for n in (2, 4):
        a = uniform(n, n) - 0.5
        w, v = np.linalg.eigh(a + a.T)
        yield at_least("steps between eigenvalues of eigh", np.diff(w), 0.0, tol=0.0, n=n)
        yield equals("products of columns of eigh", v.T @ v, np.eye(n), tol=1e-12, n=n)
        yield equals("A times a column of eigh", (a + a.T) @ v, v * w, tol=1e-12, n=n)
        yield equals("bytes of an eigenvalue of eigh", w.itemsize, 8, n=n)


numpy_eig.foil("the rows are no eigenvectors", vectors="rows")


@claim(
    by="identity", sources=("A-416", "A-417"), budget=0.5,
    short=r"\mathtt{norm(A)} = (\textstyle\sum_{ij} A_{ij}^2)^{1/2}, \quad"
    r" \mathtt{norm(A, 2)} = \sigma_1(A)",
)  # fmt: skip
def numpy_norm(spectral: bool = True):
    r"""Default and operator norms in NumPy.

    `np.linalg.norm(x)` is the Euclidean norm of a vector and the Frobenius norm
    $(\sum_{ij} A_{ij}^2)^{1/2}$ of a matrix; `np.linalg.norm(A, ord=2)` is the largest singular
    value of a matrix, $\max_{\|x\| = 1} \|A x\|$.

    Knobs:
        spectral: Whether `ord=2` is given to have the largest singular value, or nothing.
    """
    witness = np.diag([3.0, 4.0])
    chosen: dict[str, Any] = {"ord": 2} if spectral else {}
    yield equals("norm(diag(3, 4))", np.linalg.norm(witness), 5.0)
    yield equals("norm(diag(3, 4), ord=2)", np.linalg.norm(witness, **chosen), 4.0)
    for shape in ((1, 4), (3, 3), (5, 2)):
        a, at = uniform(*shape) - 0.5, {"rows": shape[0], "columns": shape[1]}
        frobenius = sum(v * v for v in a.ravel().tolist()) ** 0.5
        yield equals("norm of a matrix", np.linalg.norm(a), frobenius, tol=1e-12, **at)
        yield equals("norm of a vector", np.linalg.norm(a.ravel()), frobenius, tol=1e-12, **at)
        gram = np.linalg.eigvalsh(a.T @ a)[-1] ** 0.5
        found = np.linalg.norm(a, **chosen)
        yield equals("norm of a matrix with ord=2", found, gram, **at)


numpy_norm.foil("the default for a matrix is not the spectral norm: 5 instead of 4", spectral=False)


@claim(
    by="identity", sources=("A-419",), budget=0.5,
    short=r"\mathtt{U, S, Vt = svd(A)}: \quad A = U \operatorname{diag}(S)\, \mathtt{Vt}",
)  # fmt: skip
def numpy_svd(transposed: bool = True):
    r"""The SVD comes with V already transposed.

    `U, S, Vt = np.linalg.svd(A)` returns the vector `S` of singular values in decreasing order and
    $V^\top$, so `A = (U[:, :k] * S) @ Vt[:k]` with `k = len(S) = min(A.shape)`;
    `full_matrices=False` gives the thin factors directly.

    Knobs:
        transposed: Whether the third factor is taken for $V^\top$, and not for $V$.
    """
    asymmetric = np.diag([1.0, 2.0, 3.0]) @ np.roll(np.eye(3), 1, axis=1)
    for a in (asymmetric, uniform(6, 5) - 0.5, uniform(2, 4) - 0.5, uniform(1, 1)):
        u, s, vt = np.linalg.svd(a)
        k, at = len(s), {"rows": a.shape[0], "columns": a.shape[1]}
        yield equals("number of singular values", k, min(a.shape), **at)
        yield at_least(
            "singular value, against the next one, or 0 after the last",
            np.append(s, 0.0)[:-1],
            np.append(s, 0.0)[1:],
            tol=0.0,
            **at,
        )
        gram = np.flip(np.linalg.eigvalsh(a.T @ a))[:k].copy()
        yield equals("squares of the singular values", s**2, gram, tol=1e-12, **at)
        product = (u[:, :k] * s) @ (vt if transposed else vt.T)[:k]
        yield equals("product of the three factors", product, a, tol=1e-12, **at)
        for q in (u, vt):
            yield equals("products of rows of a factor", q @ q.T, np.eye(len(q)), tol=1e-12, **at)
        thin = np.linalg.svd(a, full_matrices=False)
        yield equals("columns of the thin U", thin.U.shape[1], k, **at)
        product = (thin.U * thin.S) @ thin.Vh
        yield equals("product of the thin factors", product, a, tol=1e-12, **at)


numpy_svd.foil("the third factor is not V", transposed=False)
