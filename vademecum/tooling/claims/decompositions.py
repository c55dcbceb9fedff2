"""What the course claims of NumPy's linear algebra."""

from collections.abc import Callable
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np

from vademecum.claims import at_least, claim, equals
from vademecum.tooling.claims.arrays import integers, uniform
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
        a = integers(n, n)
        if exact_determinant(a) and np.linalg.cond(a) < 30:
            return a


@claim(by="identity", sources=("A-411", "A-412", "A-413", "A-415", "A-420", "A-426"), budget=0.5)
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
    """
    witness = np.array([[2, 1], [1, 3]])
    yield equals(power(witness, 2), [[5, 5], [5, 10]])
    yield equals(int(np.eye(3).dtype == np.float64), 1)
    yield equals(raises(np.linalg.LinAlgError, lambda: np.linalg.inv(np.zeros((2, 2)))), 1)
    for a in (witness, regular(1), regular(3), regular(4)):
        n = len(a)
        yield equals(np.eye(n) @ a, a.astype(float), tol=0.0, n=n)
        yield equals(np.diag(a).tolist(), [int(a[i, i]) for i in range(n)], n=n)
        yield equals(np.diag(np.diag(a)), a * (np.arange(n)[:, None] == np.arange(n)), n=n)
        yield equals(int(np.trace(a)), sum(int(a[i, i]) for i in range(n)), n=n)
        yield equals(np.linalg.det(a), float(exact_determinant(a)), n=n)
        exact = exact_inverse(a)
        yield equals(inverse(a.astype(float)), exact.astype(float), n=n)
        for k in range(-2, 5):
            factor = exact if k < 0 else a.astype(object)
            expected = np.eye(n, dtype=int).astype(object)
            for _ in range(abs(k)):
                expected = expected @ factor
            yield equals(power(a.astype(float), k), expected.astype(float), n=n, k=k)


def reciprocals(a: np.ndarray) -> np.ndarray:
    """One over each entry."""
    with np.errstate(divide="ignore"):
        return 1 / a


numpy_matrix_basics.foil("`A**k` takes powers of the entries", power=lambda a, k: a**k)
numpy_matrix_basics.foil("`1 / A` takes reciprocals of the entries", inverse=reciprocals)


@claim(by="identity", sources=("A-414",), budget=0.5)
def numpy_eig(vectors: str = "columns"):
    r"""Eigenvectors are the columns.

    `w, V = np.linalg.eig(A)` returns eigenvalues in no particular order and a matrix whose columns
    `V[:, i]` are unit eigenvectors, $A V = V \operatorname{diag}(w)$. For a symmetric $A$ use
    `np.linalg.eigh`, which sorts ascending and returns orthonormal columns.
    """
    cases = [(np.array([[1, 2], [0, 3]]), [1, 3])]
    for n in (2, 3, 5):
        t = np.triu(integers(n, n, low=-2, high=3), 1) + np.eye(n, dtype=int)
        planted = np.arange(1, n + 1)
        a = t @ np.diag(planted) @ np.rint(np.linalg.inv(t)).astype(int)
        cases.append((a, planted.tolist()))
    for a, planted in cases:
        w, v = np.linalg.eig(a)
        taken = {"columns": v, "rows": v.T}[vectors]
        yield equals(a @ taken, taken * w, n=len(a))
        yield equals(np.linalg.norm(v, axis=0), 1.0, n=len(a))
        yield equals(np.sort(w), np.array(planted, float), tol=1e-6, n=len(a))  # ill-conditioned
    yield equals(np.linalg.eig(np.diag([3.0, 1.0, 2.0]))[0], [3.0, 1.0, 2.0])
    for n in (1, 4):
        a = uniform(n, n) - 0.5
        w, v = np.linalg.eigh(a + a.T)
        yield at_least(np.diff(w, prepend=w[:1]), 0.0, tol=0.0, n=n)
        yield equals(v.T @ v, np.eye(n), tol=1e-12, n=n)
        yield equals((a + a.T) @ v, v * w, tol=1e-12, n=n)


numpy_eig.foil("the rows are no eigenvectors", vectors="rows")


@claim(by="identity", sources=("A-416", "A-417"), budget=0.5)
def numpy_norm(spectral: int | None = 2):
    r"""Default and operator norms in NumPy.

    `np.linalg.norm(x)` is the Euclidean norm of a vector and the Frobenius norm
    $(\sum_{ij} A_{ij}^2)^{1/2}$ of a matrix; `np.linalg.norm(A, ord=2)` is the largest singular
    value of a matrix, $\max_{\|x\| = 1} \|A x\|$.
    """
    witness = np.diag([3.0, 4.0])
    yield equals(np.linalg.norm(witness), 5.0)
    yield equals(np.linalg.norm(witness, ord=spectral), 4.0)
    for shape in ((1, 4), (3, 3), (5, 2)):
        a = uniform(*shape) - 0.5
        frobenius = sum(v * v for v in a.ravel().tolist()) ** 0.5
        yield equals(np.linalg.norm(a), frobenius, tol=1e-12, rows=shape[0])
        yield equals(np.linalg.norm(a.ravel()), frobenius, tol=1e-12, rows=shape[0])
        gram = np.linalg.eigvalsh(a.T @ a)[-1] ** 0.5
        yield equals(np.linalg.norm(a, ord=spectral), gram, rows=shape[0])


numpy_norm.foil("the default for a matrix is not the spectral norm: 5 instead of 4", spectral=None)


@claim(by="identity", sources=("A-419",), budget=0.5)
def numpy_svd(transposed: bool = True):
    r"""The SVD comes with V already transposed.

    `U, S, Vt = np.linalg.svd(A)` returns the vector `S` of singular values in decreasing order and
    $V^\top$, so `A = (U[:, :k] * S) @ Vt[:k]` with `k = len(S) = min(A.shape)`;
    `full_matrices=False` gives the thin factors directly.
    """
    asymmetric = np.diag([1.0, 2.0, 3.0]) @ np.roll(np.eye(3), 1, axis=1)
    for a in (asymmetric, uniform(6, 5) - 0.5, uniform(2, 4) - 0.5, uniform(1, 1)):
        u, s, vt = np.linalg.svd(a)
        k, n = len(s), len(a)
        yield equals(k, min(a.shape), n=n)
        yield at_least(np.append(s, 0.0)[:-1], np.append(s, 0.0)[1:], tol=0.0, n=n)
        yield equals((u[:, :k] * s) @ (vt if transposed else vt.T)[:k], a, tol=1e-12, n=n)
        for q in (u, vt):
            yield equals(q @ q.T, np.eye(len(q)), tol=1e-12, n=n)
        thin = np.linalg.svd(a, full_matrices=False)
        yield equals((thin.U * thin.S) @ thin.Vh, a, tol=1e-12, n=n)


numpy_svd.foil("the third factor is not V", transposed=False)
