r"""Extreme eigenvalues of symmetric operators, with their multiplicity.

The Ritz pairs $(\theta_i, x_i)$ of a Krylov space are eigenpairs up to their residual norms: within
$\|A x_i - \theta_i x_i\|$ of $\theta_i$ there is an eigenvalue of $A$. The extreme ones converge
first. A basis that is full shrinks to its best Ritz vectors (thick restart).

A Krylov space holds one eigenvector for each eigenvalue; the others are orthogonal to all of it.
Further copies are therefore searched for from a second random unit vector $w$ in its complement,
with the projection $P$ onto that. Let $\mu_i$ be the Ritz values of the search, those dropped by
restarts included, and $u$ a unit eigenvector for the eigenvalue $\lambda$ that is still hidden. The
next basis vector is $\prod_i (P A P - \mu_i) w / \prod_j \beta_j$, and its component along $u$

$$\frac{\prod_i |\lambda - \mu_i|}{\prod_j \beta_j}\, |u^H w| \le 1 .$$

The search ends when for each $\lambda$ found so far this bounds $|u^H w|$ by $10^{-4} / \sqrt n$,
which has a probability of about $10^{-4}$. Eigenvalues closer to each other than the tolerance are
not told apart. The claim is `lanczos_residual_bound`.
"""

import math
import warnings
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Inexact
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from vademecum.arguments import choice, number, whole
from vademecum.foundations._lanczos import KrylovBasis
from vademecum.foundations._probes import insist_on_symmetry, square_operator, watched
from vademecum.foundations.operators import LinearOperator
from vademecum.results import one_line

__all__ = ["Eigenpairs", "eigsh"]

_LUCK = 1e-4


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
    r"""The norms of $A x - \theta x$."""
    applications: int
    """The number of vectors that the operator was applied to."""
    converged: bool
    """Whether all residuals are below the tolerance and no further copies are hidden."""

    __repr__ = one_line


def eigsh(
    op: Any,
    k: int = 6,
    *,
    which: str = "largest",
    tol: float | None = None,
    degenerate: bool = True,
    subspace: int | None = None,
    max_iter: int | None = None,
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
            machine precision, since their errors go with the square.
        degenerate: Whether to search for further copies of the eigenvalues found. False saves
            applications where they are known to be simple.
        subspace: The most basis vectors to hold; by default $2 k + 24$. Where $n$ is not larger,
            the matrix is made dense.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. One product with
            the operator each; by default $10 n$ of them.
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
    tol = number("tol", torch.finfo(op.dtype).eps ** 0.5 if tol is None else tol, above=0)
    size = whole("subspace", 2 * k + 24 if subspace is None else subspace, low=k + 2)
    limit = whole("max_iter", 10 * n if max_iter is None else max_iter, low=1)
    if n <= size:
        return _dense(op, k, which)
    with watched(op, limit, progress=progress) as op:
        basis = KrylovBasis(op, size, generator)
        theta, residuals, goal, outcome = _pairs(basis, k, which, tol, degenerate, limit)
    converged = outcome == "none" and bool((residuals <= goal).all())
    if not converged:
        message = f"max_iter={limit} reached with residual norms of up to"
        message += f" {float(residuals.max()):.3g}, for a tolerance of {goal:.3g}"
        message += ", and further copies may be hidden" if outcome == "unknown" else ""
        warnings.warn(message, ConvergenceWarning, stacklevel=2)
    return Eigenpairs(theta, basis.V[:k].T.clone(), residuals, basis.applications, converged)


def _pairs(
    basis: KrylovBasis, k: int, which: str, tol: float, degenerate: bool, limit: int
) -> tuple[Tensor, Tensor, float, str]:
    """Ritz values, residuals, the largest one allowed, and what the search for copies found."""
    size = basis.size
    # Vectors that were locked and are so no longer leave out their residuals: make room for that.
    sharp = tol / (2 * k**0.5) if degenerate and k > 1 else tol
    room = size - max(2, (size - k) // 2) if degenerate else k
    left_out = 0.0
    while True:
        theta, residuals, scale = _hunt(basis, k, room, which, sharp, limit)
        residuals = torch.hypot(residuals, residuals.new_tensor(left_out))
        left_out = float(residuals.norm())
        outcome = _search(basis, theta, which, tol * scale, limit) if degenerate else "none"
        if outcome != "more":
            return theta, residuals, tol * scale, outcome


def _rank(theta: Tensor, which: str) -> Tensor:
    """What is large for the eigenvalues wanted."""
    return {"largest": theta, "smallest": -theta, "magnitude": theta.abs()}[which]


def _dense(op: LinearOperator, k: int, which: str) -> Eigenpairs:
    A = op.dense().detach()
    insist_on_symmetry(torch.eye(len(A), dtype=A.dtype, device=A.device), A)
    theta, X = torch.linalg.eigh(A)
    best = _rank(theta, which).argsort(descending=True)[:k]
    theta, X = theta[best], X[:, best]
    return Eigenpairs(theta, X, torch.linalg.vector_norm(A @ X - X * theta, dim=0), len(A), True)


def _hunt(
    basis: KrylovBasis, k: int, room: int, which: str, tol: float, limit: int
) -> tuple[Tensor, Tensor, float]:
    """Grow and shrink until the best k Ritz pairs have converged, put these first, keep `room`."""
    keep = k + (basis.size - k) // 3
    while True:
        basis.grow()
        full, spent = basis.j == basis.size, basis.applications >= limit
        if basis.j < k or not (full or spent or basis.j % (1 + basis.j // 32) == 0):
            continue  # where the matrix H is large, not every step is worth its eigenvalues
        theta, Y, residuals = basis.ritz()
        order = _rank(theta, which).argsort(descending=True)
        best, scale = order[:k], float(theta.abs().max())
        if spent or bool((residuals[best] <= tol * scale).all()):
            few = order[:room]
            basis.shrink(theta[few], Y[:, few])
            return theta[best], residuals[best], scale
        if full:
            basis.shrink(theta[order[:keep]], Y[:, order[:keep]])


def _search(basis: KrylovBasis, theta: Tensor, which: str, slack: float, limit: int) -> str:
    """Whether the complement of the basis hides "more" copies, "none", or that is "unknown"."""
    worst = _rank(theta, which)[-1] + slack
    copies = theta[_rank(theta, which) > worst]
    if not len(copies):
        return "none"
    basis.locked, basis.betas = basis.j, []
    basis.refresh()
    keep = max(1, (basis.size - basis.locked) // 3)
    dropped = theta[:0]
    while basis.applications < limit:
        basis.grow()
        mu, Y, _ = basis.ritz()
        order = _rank(mu, which).argsort(descending=True)
        if _rank(mu, which)[order[0]] > worst:
            basis.shrink(mu[order[:1]], Y[:, order[:1]])
            basis.V[len(theta)] = basis.V[basis.locked]  # go on from there, and the k found
            basis.j, basis.locked = len(theta), 0
            return "more"
        roots = torch.cat([mu, dropped])
        growth = (copies[:, None] - roots).abs().log().sum(1)
        growth -= sum(math.log(beta) if beta else -math.inf for beta in basis.betas)
        if bool((growth > math.log(len(basis.V[0]) ** 0.5 / _LUCK)).all()):
            return "none"
        if basis.j == basis.size:
            dropped = torch.cat([dropped, mu[order[keep:]]])
            basis.shrink(mu[order[:keep]], Y[:, order[:keep]])
    return "unknown"
