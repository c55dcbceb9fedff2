r"""The shortest vector between two convex hulls, by Wolfe's algorithm.

Of the differences $z = p_i - q_j$ of two sets of points the convex hull has a unique point $w$ of
least norm, the shortest vector from the hull of the $q_j$ to that of the $p_i$. It is optimal
exactly if $\langle w, z \rangle \ge \|w\|^2$ for all $z$, and any $w$ in the hull shows that

$$\frac{1}{\|w\|} \Big(\min_i \langle w, p_i \rangle - \max_j \langle w, q_j \rangle\Big)
\le \text{distance} \le \|w\|.$$

Wolfe keeps a set of affinely independent differences (his *corral*), at most $d + 1$, and the point
$w$ of least norm in their affine hull, in the interior of their convex hull. A major cycle adds the
difference with the least $\langle w, z \rangle$; minor cycles drop differences whose weight would
turn negative. Each major cycle lowers $\|w\|$, so no set comes twice and there is an end. The
differences of all pairs are never formed, and the factors of the set are updated
(`vademecum.connectionism._affine_hull`). Most cycles look only at the points that were best in the
last product with all of them, of which there is one whenever these are exhausted: any difference
with $\langle w, z \rangle < \|w\|^2$ makes progress, and the last look is at all points.

In floating point it ends when the bounds above agree to `tol`, or when rounding forbids further
progress; the `gap` between the bounds, returned with the result, is what was reached. The cycles
run on the CPU, the products with all points on the points' device; nothing is differentiated.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats, number, whole
from vademecum.arrays import power_of_two
from vademecum.connectionism._affine_hull import AffineHull
from vademecum.estimators import warn_unconverged
from vademecum.results import one_line

__all__ = ["NearestPoint", "nearest_point", "shortest_vector"]

CANDIDATES = 128  # of each set, between two looks at all points


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
    """The number of major cycles, the one that found nothing to add included."""
    converged: bool
    """Whether it ended by itself: the gap is what `tol` asks for, or what rounding allows."""

    __repr__ = one_line


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
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Each is a major
            cycle.

    Returns:
        The vector, the weights and the gap. Hulls that meet give a vector that is zero up to
        rounding, with a gap as large as itself.

    Raises:
        ValueError: If the points are not finite and real, in single or double precision, of one
            dtype and one width.

    References:
        Wolfe, Finding the nearest point in a polytope, Mathematical Programming, 1976.

    Example:
        >>> p, q = torch.tensor([[3.0, 0.0], [4.0, 1.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> nearest_point(p, q).point
        tensor([2., 0.])
    """
    found = shortest_vector(p, q, tol=tol, max_iter=max_iter)
    if not found.converged:
        warn_unconverged(
            f"max_iter={max_iter} reached: the vector is too long by {found.gap:.3g} at most"
        )
    return found


def shortest_vector(
    p: Tensor, q: Tensor | None = None, *, tol: float, max_iter: int
) -> NearestPoint:
    """The nearest point, without a warning."""
    p = _points("p", p).detach()
    q = torch.zeros_like(p[:1]) if q is None else _points("q", q, like=p).detach()
    number("tol", tol, low=0)
    whole("max_iter", max_iter, low=1)
    scale = power_of_two(p, q)
    if scale != 1:
        p, q = p / scale, q / scale
    wolfe = _search(p, q, tol, max_iter)
    rows, columns = torch.tensor(wolfe.pairs, device=p.device).T
    lam, w = torch.from_numpy(wolfe.lam).to(p), torch.from_numpy(wolfe.w).to(p)
    length = float(w.norm())
    reached = float((p @ w).min() - (q @ w).max())
    gap = max(0.0, length - max(0.0, reached) / length) if length else 0.0
    weights, others = p.new_zeros(len(p)), q.new_zeros(len(q))
    weights, others = weights.index_add(0, rows, lam), others.index_add(0, columns, lam)
    converged = wolfe.n_iter < max_iter or gap <= tol * length
    return NearestPoint(w * scale, weights, others, gap * scale, wolfe.n_iter, converged)


def _points(name: str, x: Any, like: Tensor | None = None) -> Tensor:
    x = floats(name, x, ndim=2, width=None if like is None else like.shape[1])
    if x.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"{name} must be float32 or float64, got {x.dtype}")
    if like is not None and (x.dtype, x.device) != (like.dtype, like.device):
        raise ValueError(f"{name} must be {like.dtype} on {like.device}, got {x.dtype}")
    return x


def _search(p: Tensor, q: Tensor, tol: float, max_iter: int) -> "_Wolfe":
    start = p.mean(0) - q.mean(0)
    first = int((p @ start).argmin()), int((q @ start).argmax())
    wolfe = _Wolfe(first, (p[first[0]] - q[first[1]]).cpu().numpy(), tol, max_iter)
    progress = True
    while progress and wolfe.n_iter < max_iter:
        w = torch.from_numpy(wolfe.w).to(p.device)
        low, high = p @ w, q @ w
        if wolfe.is_best(float(low.min() - high.max())):
            wolfe.n_iter += 1
            break
        near = low.topk(min(CANDIDATES, len(p)), largest=False).indices
        far = high.topk(min(CANDIDATES, len(q))).indices
        progress = wolfe.improve(near.tolist(), _array(p[near]), far.tolist(), _array(q[far]))
    return wolfe


def _array(x: Tensor) -> np.ndarray:
    return x.cpu().numpy()


class _Wolfe:
    r"""The hull with the pairs of points behind it, the weights $\lambda$ and the vector $w$."""

    def __init__(self, pair: tuple[int, int], z: np.ndarray, tol: float, max_iter: int):
        self.pairs, self.hull, self.lam, self.w = [pair], AffineHull(z), np.ones(1, z.dtype), z
        self.tol, self.max_iter, self.n_iter = tol, max_iter, 0

    def is_best(self, least: float) -> bool:
        r"""Whether $\|w\|^2$ exceeds the least $\langle w, z \rangle$ no more than tolerated."""
        square = float(self.w @ self.w)
        return square - least <= self.tol * square

    def improve(
        self, rows: list[int], near: np.ndarray, columns: list[int], far: np.ndarray
    ) -> bool:
        """Major cycles on some of the points, until they have no more to add; whether any did."""
        progress = False
        while self.n_iter < self.max_iter:
            low, high = near @ self.w, far @ self.w
            i, j = int(low.argmin()), int(high.argmax())
            new = rows[i], columns[j]
            if self.is_best(float(low[i] - high[j])) or new in self.pairs:
                break
            self.n_iter += 1
            before = self.pairs, self.lam, self.hull.points.copy()
            w = self._shortened(new, near[i] - far[j])
            if w is None or not w @ w < self.w @ self.w:  # rounding forbids progress
                self.pairs, self.lam, points = before
                self.hull = AffineHull(*points)
                break
            self.w, progress = w, True
        return progress

    def _shortened(self, pair: tuple[int, int], z: np.ndarray) -> np.ndarray | None:
        """Add a difference, and drop whatever is in the way to the best point of the hull."""
        if not self.hull.add(z):
            return None
        self.pairs, self.lam = [*self.pairs, pair], np.append(self.lam, z.dtype.type(0))
        while True:
            best, w = self.hull.shortest()
            if not np.isfinite(best).all():
                return None
            if (best > 0).all():
                self.lam = best
                return w
            length = np.maximum(self.lam - best, np.finfo(z.dtype).tiny)
            ratio = np.where(best > 0, np.inf, self.lam / length)
            lam = self.lam + ratio.min() * (best - self.lam)
            keep = (lam > 0) & (ratio > ratio.min())
            for i in np.flatnonzero(~keep)[::-1].tolist():
                self.hull.drop(i)
            self.pairs = [pair for pair, kept in zip(self.pairs, keep, strict=True) if kept]
            self.lam = lam[keep] / lam[keep].sum()
