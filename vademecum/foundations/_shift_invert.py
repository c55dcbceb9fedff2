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
from vademecum.foundations._probes import watched
from vademecum.foundations._thick_restarts import Pairs, extreme_pairs, in_space
from vademecum.foundations.operators import LinearOperator

__all__ = ["by_inverse", "invertible"]

_LARGEST = 10_000  # rows, which two cores factorise in some seconds even if all is filled in
_ROUNDS = 8  # each with another shift, and sharper by one digit
_ROUND = 5  # solutions for each basis vector, after which a better shift pays


def invertible(op: LinearOperator) -> bool:
    """Whether the matrix is at hand, and small enough for its factorisation to take seconds."""
    return op.shape[0] <= _LARGEST and matrix_of(op) is not None


def by_inverse(
    op: LinearOperator, guess: Pairs, sign: int, tol: float, goal: float, degenerate: bool,
    size: int, limit: int, generator: torch.Generator | None, progress: bool,
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
        progress: Whether to show a progress bar.

    Returns:
        What was found, and the number of products.
    """
    k, spent = len(guess.values), 0
    for sharper in range(_ROUNDS):
        inverse = _inverse_beyond(op, guess, sign, goal)
        left = min(limit - spent, _ROUND * size)
        within = max(tol / 4 / 10**sharper, 1e-14)
        with watched(inverse, left, progress=progress) as inverse:
            basis = KrylovBasis(inverse, size, generator, symmetry_tol=math.inf)
            found, _ = extreme_pairs(basis, k, "largest", within, degenerate, left)
        X = found.vectors.to(op.device, op.dtype)
        guess = in_space(op, X, "smallest" if sign > 0 else "largest", found.outcome)
        spent += basis.applications + k
        if guess.settled(goal) or spent >= limit:
            break
    return guess, spent


def _inverse_beyond(op: LinearOperator, guess: Pairs, sign: int, goal: float) -> LinearOperator:
    """The inverse for a shift just beyond the end: about as far as the guesses reach inwards."""
    ends = sign * guess.values.double()
    offset = max(float(guess.residuals.max()), float(ends[-1] - ends[0]), goal)
    while (solve := _solver(matrix_of(op), sign, float(ends[0]) - offset)) is None:
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
        return None if failed else lambda x: torch.cholesky_solve(x, L)
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
