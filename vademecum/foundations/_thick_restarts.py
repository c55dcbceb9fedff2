r"""Extreme Ritz pairs of a Krylov space of bounded size, and the search for copies of them.

A basis that is full shrinks to its best Ritz vectors (thick restart). A Krylov space holds one
eigenvector for each eigenvalue; the others are orthogonal to all of it. Further copies are
therefore searched for from a second random unit vector $w$ in its complement, with the projection
$P$ onto that. Let $\mu_i$ be the Ritz values of the search, those dropped by restarts included, and
$u$ a unit eigenvector for an eigenvalue $\lambda$ that is still hidden. The next basis vector is
$\prod_i (P A P - \mu_i) w / \prod_j \beta_j$, and its component along $u$

$$\frac{\prod_i |\lambda - \mu_i|}{\prod_j \beta_j}\, |u^H w| \le 1 .$$

The search ends when for each $\lambda$ found so far this bounds $|u^H w|$ by $10^{-4} / \sqrt n$,
which has a probability of about $10^{-4}$. Before it, where $P = I$, small residuals do not tell
whether an eigenvalue was passed over: the hunt goes on until that bounds $|u^H w|$ by $10^{-2} /
\sqrt n$ for each $\lambda$ further out than the last one found, and not closer to those found, than
$\max(4 \epsilon, 10^{-3}) \max |\mu_i|$, with the tolerance $\epsilon$. Between two $\mu_i$ the
logarithm of the product is concave, so that the ends of the intervals of such $\lambda$ decide. The
small eigenvalue problems are solved after every thirtieth of the products so far, which is as many
products as may be made in vain.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.arrays import lengths
from vademecum.foundations._lanczos import KrylovBasis
from vademecum.foundations.operators import LinearOperator

__all__ = ["Pairs", "extreme_pairs", "in_space", "rank"]

Over = Callable[[int], bool]
_LUCK = 1e-4
_START, _APART = 1e-2, 1e-3  # of what is apart by so much, as a share of the largest


class Pairs(NamedTuple):
    """Ritz pairs, the best first, and whether others are hidden: "none", or that is "unknown"."""

    values: Tensor
    vectors: Tensor
    residuals: Tensor
    outcome: str

    def settled(self, goal: float) -> bool:
        """Whether all is found, with residual norms that are allowed."""
        return self.outcome == "none" and bool((self.residuals <= goal).all())


def rank(theta: Tensor, which: str) -> Tensor:
    """What is large for the eigenvalues wanted."""
    return {"largest": theta, "smallest": -theta, "magnitude": theta.abs()}[which]


def extreme_pairs(
    basis: KrylovBasis, k: int, which: str, tol: float, degenerate: bool, over: Over
) -> tuple[Pairs, float]:
    """The best k Ritz pairs, and the largest residual norm that is allowed.

    It ends in any case when `over` says so of the number of applications.

    Example:
        >>> from vademecum.foundations import aslinearoperator
        >>> basis = KrylovBasis(aslinearoperator(torch.diag(torch.tensor([3.0, 3, 1, 0, 0]))), 4)
        >>> found, goal = extreme_pairs(basis, 2, "largest", 1e-4, True, lambda used: used > 99)
        >>> found.values.round(decimals=4), found.outcome
        (tensor([3., 3.]), 'none')
    """
    size = basis.size
    # Vectors that were locked and are so no longer leave out their residuals: make room for that.
    sharp = tol / (2 * k**0.5) if degenerate and k > 1 else tol
    room = size - max(2, (size - k) // 2) if degenerate else k
    left_out, known = 0.0, not basis.random
    while True:
        theta, residuals, scale, sure = _hunt(basis, k, room, which, sharp, over, known=known)
        known = True  # what was passed over, or the search will tell
        bounds, left_out = residuals + left_out, left_out + float(residuals.norm())
        outcome = _search(basis, theta, which, tol * scale, over) if degenerate else "none"
        if outcome != "more":
            outcome = outcome if sure else "unknown"
            return Pairs(theta, basis.V[:k].T.clone(), bounds, outcome), tol * scale


def in_space(op: LinearOperator, X: Tensor, which: str, outcome: str) -> Pairs:
    """The Ritz pairs in the space of orthonormal columns, with residuals from products with X."""
    X = X.to(op.device, torch.promote_types(op.dtype, torch.float64))
    image = (op @ X.to(op.dtype)).detach().to(X.dtype)
    theta, Y = torch.linalg.eigh(X.mH @ image)
    order = rank(theta, which).argsort(descending=True)
    theta, Y = theta[order], Y[:, order]
    residuals, real = lengths(image @ Y - (X @ Y) * theta), op.dtype.to_real()
    return Pairs(theta.to(real), (X @ Y).to(op.dtype), residuals.to(real), outcome)


def _hunt(
    basis: KrylovBasis, k: int, room: int, which: str, tol: float, over: Over, *, known: bool
) -> tuple[Tensor, Tensor, float, bool]:
    """Grow and shrink until the best k Ritz pairs have converged, put these first, keep `room`.

    Unless it is `known` what was passed over, nothing is likely to be; the last item says whether
    that holds, which it may not where `over` is what ends it.
    """
    keep, dropped = k + (basis.size - k) // 3, list[Tensor]()
    while True:
        basis.grow()
        full, spent = basis.j == basis.size, over(basis.applications)
        if basis.j < k or not (full or spent or _due(basis)):
            continue
        theta, Y, residuals = basis.ritz()
        order = rank(theta, which).argsort(descending=True)
        best, scale = order[:k], float(theta.abs().max())
        settled = bool((residuals[best] <= tol * scale).all())
        mu = torch.cat([theta, *dropped])
        ending = spent or settled
        sure = known or not ending or _nothing_passed(basis, theta[best], mu, which, tol)
        if spent or (settled and sure):
            few = order[:room]
            basis.shrink(theta[few], Y[:, few])
            return theta[best], residuals[best], scale, sure
        if full:
            dropped.append(theta[order[keep:]])
            basis.shrink(theta[order[:keep]], Y[:, order[:keep]])


def _nothing_passed(basis: KrylovBasis, found: Tensor, mu: Tensor, which: str, tol: float) -> bool:
    """Whether other eigenvalues, well apart from those found, would likely have been seen."""
    if 0.0 in basis.betas:  # the space is invariant
        return True
    found, mu = found.double(), mu.double()
    apart = max(4 * tol, _APART) * mu.abs().max()
    last = rank(found, which).min() + apart
    ends = torch.cat([found + apart, found - apart, torch.stack([last, -last])])
    near = ((ends[:, None] - found).abs() < 0.999 * apart).any(1)  # but for rounding
    ends = ends[(rank(ends, which) >= last) & ~near]
    growth = float((ends[:, None] - mu).abs().log().sum(1).min())
    betas = sum(map(math.log, basis.betas))
    return growth - betas >= math.log(basis.V.shape[1] ** 0.5 / _START)


def _search(basis: KrylovBasis, theta: Tensor, which: str, slack: float, over: Over) -> str:
    """Whether the complement of the basis hides "more" copies, "none", or that is "unknown"."""
    worst = rank(theta, which)[-1] + slack
    copies = theta[rank(theta, which) > worst]
    if not len(copies):
        return "none"
    basis.locked, basis.betas = basis.j, []
    basis.refresh()
    keep = max(1, (basis.size - basis.locked) // 3)
    dropped = torch.zeros_like(copies)  # the logarithms of their factors
    while not over(basis.applications):
        basis.grow()
        full = basis.j == basis.size
        if not (full or _due(basis)):
            continue
        mu, Y, _ = basis.ritz()
        order = rank(mu, which).argsort(descending=True)
        if rank(mu, which)[order[0]] > worst:
            basis.shrink(mu[order[:1]], Y[:, order[:1]])
            basis.V[len(theta)] = basis.V[basis.locked]  # go on from there, and the k found
            basis.j, basis.locked = len(theta), 0
            return "more"
        factors = (copies[:, None] - mu).abs().log()
        growth = factors.sum(1) + dropped
        growth -= sum(math.log(beta) if beta else -math.inf for beta in basis.betas)
        if bool((growth > math.log(len(basis.V[0]) ** 0.5 / _LUCK)).all()):
            return "none"
        if full:
            dropped += factors[:, order[keep:]].sum(1)
            basis.shrink(mu[order[:keep]], Y[:, order[:keep]])
    return "unknown"


def _due(basis: KrylovBasis) -> bool:
    return basis.applications % (1 + basis.applications // 32) == 0
