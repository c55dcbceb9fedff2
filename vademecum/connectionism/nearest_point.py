r"""The shortest vector between two convex hulls, by Wolfe's algorithm.

Of the differences $z = p_i - q_j$ of two sets of points the convex hull has a unique point $w$ of
least norm, the shortest vector from the hull of the $q_j$ to that of the $p_i$. It is optimal
exactly if $\langle w, z \rangle \ge \|w\|^2$ for all $z$, and any $w$ in the hull shows that

$$\frac{1}{\|w\|} \Big(\min_i \langle w, p_i \rangle - \max_j \langle w, q_j \rangle\Big)
\le \text{distance} \le \|w\|.$$

Wolfe keeps a *corral* of affinely independent differences, at most $d + 1$, and the point $w$ of
least norm in their affine hull, in the interior of their convex hull. A major cycle adds the
difference with the least $\langle w, z \rangle$; minor cycles drop differences whose weight would
turn negative. Each major cycle lowers $\|w\|$, so no corral comes twice and there is an end. The
differences are never formed: a cycle takes one product with all points.

In floating point it ends when the bounds above agree to `tol`, or when rounding forbids further
progress; the `gap` between the bounds, returned with the result, is what was reached.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats, number, whole

__all__ = ["NearestPoint", "nearest_point"]


class NearestPoint(NamedTuple):
    """The shortest vector between two hulls, and the points of the hulls that it connects.

    Example:
        >>> nearest_point(torch.tensor([[1.0, 0.0], [2.0, 1.0]])).weights
        tensor([1., 0.])
    """

    point: Float[Tensor, " d"]
    r"""The vector $w = \sum_i \lambda_i p_i - \sum_j \mu_j q_j$."""
    weights: Float[Tensor, " n"]
    r"""The $\lambda_i \ge 0$, which sum to 1."""
    others: Float[Tensor, " m"]
    r"""The $\mu_j \ge 0$, which sum to 1."""
    gap: float
    """How much longer the vector is than the distance of the hulls, at most."""
    n_iter: int
    """The number of major cycles."""


def nearest_point(
    p: Float[Tensor, " n d"],
    q: Float[Tensor, " m d"] | None = None,
    *,
    tol: float = 1e-12,
    max_iter: int = 100_000,
) -> NearestPoint:
    r"""The shortest vector from the hull of the rows of `q` to the hull of the rows of `p`.

    Args:
        p: Points.
        q: Other points; the origin alone by default, which gives the point of least norm.
        tol: The relative gap $1 - \langle w, z \rangle / \|w\|^2$ to reach.
        max_iter: The most major cycles.

    Returns:
        The vector, the weights and the gap. Hulls that meet give a vector that is zero up to
        rounding, with a gap as large as itself.

    References:
        Wolfe, Finding the nearest point in a polytope, Mathematical Programming, 1976.

    Example:
        >>> p, q = torch.tensor([[3.0, 0.0], [4.0, 1.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> nearest_point(p, q).point
        tensor([2., 0.])
    """
    floats("p", p, ndim=2)
    q = torch.zeros_like(p[:1]) if q is None else floats("q", q, ndim=2, width=p.shape[1])
    number("tol", tol, low=0)
    whole("max_iter", max_iter, low=1)
    w = p.mean(0) - q.mean(0)
    pairs = [_support(p, q, w)]
    corral = _difference(p, q, pairs)
    lam = corral.new_ones(1)
    w = corral[0]
    n_iter = 0
    while n_iter < max_iter:
        n_iter += 1
        new = _support(p, q, w)
        z = _difference(p, q, [new])
        if new in pairs or w @ w - w @ z[0] <= tol * (w @ w):
            break
        step = _minor_cycles(
            [*pairs, new], torch.cat([corral, z]), torch.cat([lam, lam.new_zeros(1)])
        )
        if step is None or step[3].norm() >= w.norm():  # rounding forbids progress
            break
        pairs, corral, lam, w = step
    z = _difference(p, q, [_support(p, q, w)])[0]
    length = float(w.norm())
    gap = max(0.0, length - max(0.0, float(w @ z)) / length) if length else 0.0
    weights, others = p.new_zeros(len(p)), q.new_zeros(len(q))
    rows, columns = torch.tensor(pairs, device=p.device).T
    return NearestPoint(
        w, weights.index_add(0, rows, lam), others.index_add(0, columns, lam), gap, n_iter
    )


def _support(p: Tensor, q: Tensor, w: Tensor) -> tuple[int, int]:
    return int((p @ w).argmin()), int((q @ w).argmax())


def _difference(p: Tensor, q: Tensor, pairs: list[tuple[int, int]]) -> Tensor:
    rows, columns = torch.tensor(pairs, device=p.device).T
    return p[rows] - q[columns]


def _minor_cycles(
    pairs: list[tuple[int, int]], corral: Tensor, lam: Tensor
) -> tuple[list[tuple[int, int]], Tensor, Tensor, Tensor] | None:
    """Move the weights to the best point of the affine hull, dropping whatever is in the way."""
    while True:
        best = _affine(corral)
        if not best.isfinite().all():
            return None
        if (best > 0).all():
            return pairs, corral, best, best @ corral
        ratio = torch.where(best > 0, torch.inf, lam / (lam - best))
        lam = lam + ratio.min() * (best - lam)
        keep = (lam > 0) & (ratio > ratio.min())
        pairs = [pair for pair, kept in zip(pairs, keep.tolist(), strict=True) if kept]
        corral, lam = corral[keep], lam[keep] / lam[keep].sum()


def _affine(corral: Tensor) -> Tensor:
    r"""Weights, summing to 1, of the least vector $S^\top v$ in the affine hull of the rows of $S$.

    They are proportional to the solution of $(\sigma^2 1 1^\top + S S^\top) v = 1$ for any
    $\sigma > 0$, here solved by the triangle of a QR decomposition, which does not square the
    condition.
    """
    sigma = torch.linalg.vector_norm(corral, dim=1, keepdim=True).max().expand(len(corral), 1)
    r = torch.linalg.qr(torch.cat([sigma, corral], 1).T, mode="r").R
    if len(r) < len(corral):
        return torch.full_like(corral[:, 0], torch.nan)
    half = torch.linalg.solve_triangular(r.T, torch.ones_like(corral[:, :1]), upper=False)
    v = torch.linalg.solve_triangular(r, half, upper=True)[:, 0]
    return v / v.sum()
