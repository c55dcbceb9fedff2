r"""Eigenvalues at the lower end of a matrix from the inverse, where that end is crowded.

For a shift $\sigma$ below the least eigenvalue of $A$ the inverse $(A - \sigma I)^{-1}$ has the
same eigenvectors, with the eigenvalues $\theta = 1 / (\lambda - \sigma) > 0$. Its largest ones
belong to the smallest of $A$, and are the further apart the closer $\sigma$ is. That it lies below
all of them is what the factorisation tells: $A - \sigma I$ is positive definite if and only if
Cholesky's succeeds, or, of a sparse matrix, if all pivots on the diagonal are positive.

The Ritz pairs of $A$ within the space found are exact up to residuals that are computed from
products with $A$ itself. Everything is done in double precision.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vademecum.foundations._lanczos import KrylovBasis
from vademecum.foundations._operator_functions import from_arrays, matrix_of
from vademecum.foundations._thick_restarts import Pairs, extreme_pairs, in_space
from vademecum.foundations.operators import LinearOperator

__all__ = ["by_inverse", "factorisation"]

# Multiplications: at most, which take some 6 s and 1 s, and as many as take as long as one of the
# products with the matrix (two cores, EPYC).
_DENSE, _SPARSE = (3e11, 25), (1e10, 10)


def factorisation(op: LinearOperator, size: int) -> float:
    """About how many steps of Lanczos a factorisation takes as long as; infinity if it is too long.

    That of a sparse matrix takes at most as long as within the band that a good order makes of it.
    """
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    A, n = matrix_of(op), op.shape[0]
    if A is None:
        return math.inf
    if isinstance(A, Tensor) and A.layout == torch.strided:
        work, entries, (most, faster) = 4 / 3 * n**3, n**2, _DENSE
    else:
        A = (_in_scipy(A) if isinstance(A, Tensor) else A).tocsr()
        place = np.empty(n, int)
        place[reverse_cuthill_mckee(A, symmetric_mode=True)] = np.arange(n)
        rows, columns = A.nonzero()
        band = int(np.abs(place[rows] - place[columns]).max(initial=0))
        work, entries, (most, faster) = n * band**2, A.nnz, _SPARSE
    return work / (entries + 2 * n * size) / faster if work <= most else math.inf


def by_inverse(
    op: LinearOperator, guess: Pairs, sign: int, tol: float, goal: float, degenerate: bool,
    size: int, limit: int, generator: torch.Generator | None, watch: Callable,
) -> tuple[Pairs, int]:  # fmt: skip
    """Better eigenvalues at the lower end (sign 1) or the upper one (sign -1) of a matrix.

    Args:
        op: An operator made of a matrix.
        guess: Where to begin.
        sign: Which end.
        tol: The tolerance, relative to the largest eigenvalue.
        goal: The largest residual norm allowed.
        degenerate: Whether to search for further copies.
        size: The most basis vectors to hold.
        limit: The most products, as which solutions of linear systems count, too.
        generator: For the random vectors.
        watch: What counts products for a progress bar.

    Returns:
        What was found, and the number of products.
    """
    k, spent, within, before = len(guess.values), 0, tol / 4, math.inf
    best, solved = guess, math.inf
    while not guess.settled(goal) and limit - spent > 2 * k:  # fewer products give no k vectors
        offset = max(float((guess.values[-1] - guess.values[0]).abs()), goal)
        inverse, left = _inverse_beyond(op, sign, float(guess.values[0]), offset), limit - spent - k
        if offset < before / 4:  # by then a better shift may pay
            steps = size + 1 + int(min(4 * size, 2 * factorisation(op, size)))
            left, before = min(left, steps), offset
        basis = KrylovBasis(watch(inverse), size, generator, symmetry_tol=math.inf)
        found, enough = extreme_pairs(basis, k, "largest", within, degenerate, left.__le__)
        which = "smallest" if sign > 0 else "largest"
        guess = in_space(watch(op), found.vectors, which, found.outcome)
        spent, within = spent + basis.applications + k, max(within / 10, 1e-14)
        worst = float(guess.residuals.max())
        best = guess if guess.settled(goal) or worst <= float(best.residuals.max()) else best
        if found.settled(enough):
            if worst > solved / 2:  # no inverse will do better: rounding or asymmetry is left
                break
            solved = worst
    return best, spent


def _inverse_beyond(op: LinearOperator, sign: int, end: float, offset: float) -> LinearOperator:
    """The inverse for a shift beyond the end, by the offset if that is far enough."""
    while (solve := _solver(matrix_of(op), sign, sign * end - offset)) is None:
        offset *= 4
    dtype = torch.promote_types(op.dtype, torch.float64)
    device = "cpu" if isinstance(solve, partial) else op.device
    return LinearOperator(op.shape, solve, solve, dtype=dtype, device=device)


def _solver(A: Any, sign: int, sigma: float) -> Callable[[Tensor], Tensor] | None:
    """The inverse of sign A - sigma I on blocks; None if that matrix is not positive definite."""
    if isinstance(A, Tensor) and A.layout == torch.strided:
        shifted = sign * A.detach().to(torch.promote_types(A.dtype, torch.float64))
        shifted.diagonal().sub_(sigma)
        L, failed = torch.linalg.cholesky_ex(shifted)
        if failed:
            return None
        M = torch.linalg.solve_triangular(L, torch.eye(len(L)).to(L), upper=False)
        return lambda x: M.mH @ (M @ x)  # much faster, for few columns, than to solve with L
    return _sparse_solver(_in_scipy(A) if isinstance(A, Tensor) else A, sign, sigma)


def _sparse_solver(A: Any, sign: int, sigma: float) -> Callable[[Tensor], Tensor] | None:
    from scipy.sparse import eye_array
    from scipy.sparse.linalg import splu

    dtype = np.promote_types(A.dtype, np.float64)
    shifted = (sign * A.astype(dtype) - sigma * eye_array(A.shape[0])).tocsc()
    diagonal = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0}
    try:
        lu = splu(shifted, options={"SymmetricMode": True}, **diagonal)
    except RuntimeError as error:
        if "singular" in str(error):
            return None
        raise
    if not np.array_equal(lu.perm_r, lu.perm_c) or lu.U.diagonal().real.min() <= 0:
        return None
    return partial(from_arrays, lu.solve, torch.as_tensor(np.empty(0, dtype)).dtype)


def _in_scipy(A: Tensor) -> Any:
    from scipy.sparse import coo_array

    A = A.detach().to_sparse_coo().coalesce().cpu()
    return coo_array((A.values().numpy(), tuple(A.indices().numpy())), shape=tuple(A.shape))
