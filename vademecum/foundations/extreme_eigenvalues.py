r"""Extreme eigenvalues of symmetric operators, with their multiplicity.

The Ritz pairs $(\theta_i, x_i)$ of a Krylov space are eigenpairs up to their residual norms: within
$\|A x_i - \theta_i x_i\|$ of $\theta_i$ there is an eigenvalue of $A$. The extreme ones converge
first, the faster the further they are from the rest. Where they are so close to it that a few
hundred products are not enough, as the smallest ones of a graph Laplacian are, and the matrix is at
hand, it is factorised, and the same is done with the inverse of $A - \sigma I$ for a shift $\sigma$
just beyond the end.

A Krylov space holds one eigenvector for each eigenvalue, so that further copies are searched for in
its complement; one is overlooked with a probability of about $10^{-4}$. Residuals do not tell
whether an eigenvalue was passed over: from a random start, one further out than the last of those
found, and not closer to these, than a thousandth of the largest $|\theta|$ (or four times the
tolerance, if that is more) is overlooked with a probability of about $10^{-2}$ at most. Eigenvalues
closer to each other than the tolerance are not told apart. The claim is `lanczos_residual_bound`.
"""

import math
import warnings
from functools import cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Inexact
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from vademecum.arguments import choice, floats, number, whole
from vademecum.foundations._lanczos import KrylovBasis
from vademecum.foundations._probes import insist_on_symmetry, square_operator, watching
from vademecum.foundations._shift_invert import by_inverse, factorisation
from vademecum.foundations._thick_restarts import Pairs, extreme_pairs, in_space, rank
from vademecum.foundations.operators import LinearOperator
from vademecum.results import one_line

__all__ = ["Eigenpairs", "eigsh"]


class Eigenpairs(NamedTuple):
    """Eigenvalues, eigenvectors, and what they are worth.

    Example:
        >>> eigsh(torch.diag(torch.tensor([1.0, 3.0])), 1).values
        tensor([3.])
    """

    values: Float[Tensor, " k"]
    r"""The eigenvalues $\theta$, in the order asked for."""
    vectors: Inexact[Tensor, " n k"]
    """The eigenvectors $x$, unit vectors, as columns."""
    residuals: Float[Tensor, " k"]
    r"""The norms of $A x - \theta x$; bounds of them where copies of eigenvalues were found."""
    applications: int
    """The number of vectors that the operator was applied to."""
    converged: bool
    """Whether all residuals are below the tolerance and no further eigenvalues, or copies of those
    found, are likely to be hidden."""

    __repr__ = one_line


def eigsh(
    op: Any,
    k: int = 6,
    *,
    which: str = "largest",
    tol: float | None = None,
    degenerate: bool = True,
    v0: Inexact[Tensor, " n"] | None = None,
    subspace: int | None = None,
    max_iter: int | None = None,
    symmetry_tol: float | None = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> Eigenpairs:
    r"""Extreme eigenvalues of a symmetric (complex: Hermitian) operator, and their vectors.

    Args:
        op: The operator, or anything that `aslinearoperator` takes.
        k: How many eigenvalues.
        which: Those that are "largest", "smallest", or largest in "magnitude"; in this order.
        tol: Stop when all residual norms are at most `tol` times the largest $|\theta|$; by default
            the square root of the machine precision, which gives isolated eigenvalues to about
            machine precision, since their errors go with the square; or `symmetry_tol`.
        degenerate: Whether to search for further copies of the eigenvalues found. False saves
            applications where they are known to be simple.
        v0: Where to start, not zero; by default at a random vector. One that is close to an
            eigenvector saves applications, but hides the eigenvectors that it is orthogonal to, or
            nearly so.
        subspace: The most basis vectors to hold; by default $2 k + 24$. Where $n$ is not larger,
            the matrix is made dense.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. One product with
            the operator each, or one solution of a linear system; by default 2000, or 50 for each
            vector of the subspace if that is more, and $10 n$ at most.
        symmetry_tol: The largest relative difference of $\langle u, A v \rangle$ and $\langle A u,
            v \rangle$ for random vectors that passes for rounding; by default the square root of
            the machine precision. Operators that compute a part in single precision need 1e-5 or
            so. If given, `residuals` are measured by $k$ products more. With infinity nobody looks,
            which saves a product.
        generator: Where random numbers come from; torch's global generator by default.
        progress: Whether to show a progress bar on standard error.

    Raises:
        ValueError: If the operator is not symmetric, or in half precision.

    References:
        Lanczos, An iteration method for the solution of the eigenvalue problem of linear
        differential and integral operators, Journal of Research of the NBS 45, 1950. Wu and Simon,
        Thick-restart Lanczos method for large symmetric eigenvalue problems, SIAM Journal on Matrix
        Analysis and Applications 22, 2000.

    Example:
        >>> d = torch.arange(100.0)[:, None]  # a diagonal matrix that is never formed
        >>> A = LinearOperator((100, 100), lambda x: d * x, lambda x: d * x)
        >>> eigsh(A, 3).values.round(decimals=3)
        tensor([99., 98., 97.])
    """
    op = square_operator("op", op, half=False)
    n = op.shape[0]
    whole("k", k, low=1, high=n)
    choice("which", which, ("largest", "smallest", "magnitude"))
    tol = number("tol", _default_tol(op, symmetry_tol) if tol is None else tol, above=0)
    size = whole("subspace", 2 * k + 24 if subspace is None else subspace, low=k + 2)
    limit = min(10 * n, max(2000, 50 * size)) if max_iter is None else max_iter
    whole("max_iter", limit, low=1)
    if n <= size:
        return _dense(op, k, which, symmetry_tol)
    start = None if v0 is None else _start(op, v0)
    price = cache(lambda: factorisation(op, size) if which != "magnitude" else math.inf)
    with watching(limit, progress=progress) as watch:
        basis = KrylovBasis(watch(op), size, generator, symmetry_tol, start)
        found, goal = extreme_pairs(
            basis, k, which, tol, degenerate,
            lambda used: used >= limit or (used >= 2 * size and used >= 2 * size + price()),
        )  # fmt: skip
        applications, settled = basis.applications, found.settled(goal)
        left = 0 if settled else limit - applications
        if symmetry_tol not in (None, math.inf) or (left > 0 and found.outcome == "none"):
            found = in_space(watch(op), found.vectors, which, found.outcome)
            applications += k  # and what was bounded is known
        if left > 0 and not found.settled(goal) and price() < math.inf:
            found, more = by_inverse(
                op, found, 1 if which == "smallest" else -1, tol, goal, degenerate, size,
                limit - applications, generator, watch,
            )  # fmt: skip
            applications += more
    if not (converged := found.settled(goal)):
        _warn(found, goal, limit, applications)
    return Eigenpairs(*found[:3], applications, converged)


def _default_tol(op: LinearOperator, symmetry_tol: float | None) -> float:
    finite = symmetry_tol if symmetry_tol is not None and symmetry_tol < math.inf else 0.0
    return max(torch.finfo(op.dtype).eps ** 0.5, finite)


def _start(op: LinearOperator, v0: Tensor) -> Tensor:
    v0 = floats("v0", v0, ndim=1, width=op.shape[0]).detach().to(op.device, op.dtype)
    if not v0.any():
        raise ValueError(f"v0 must not be zero, got {len(v0)} zeros")
    return v0


def _warn(found: Pairs, goal: float, limit: int, applications: int) -> None:
    reached = limit - applications <= 2 * len(found.values)  # fewer do not begin anything new
    message = f"max_iter={limit} reached with" if reached else "rounding or asymmetry leaves"
    message += f" residual norms of up to {float(found.residuals.max()):.3g}"
    message += f", for a tolerance of {goal:.3g}"
    message += ", and others, or copies, may be hidden" if found.outcome == "unknown" else ""
    message += "; a larger subspace converges faster" if reached else ""
    warnings.warn(message, ConvergenceWarning, stacklevel=3)


def _dense(op: LinearOperator, k: int, which: str, symmetry_tol: float | None) -> Eigenpairs:
    A = op.dense().detach()
    insist_on_symmetry(torch.eye(len(A), dtype=A.dtype, device=A.device), A, tol=symmetry_tol)
    theta, X = torch.linalg.eigh(A)
    best = rank(theta, which).argsort(descending=True)[:k]
    theta, X = theta[best], X[:, best]
    return Eigenpairs(theta, X, torch.linalg.vector_norm(A @ X - X * theta, dim=0), len(A), True)
