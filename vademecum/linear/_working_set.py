r"""A working set of features for the lasso, and the passes over the data that certify it.

The features with a weight at the optimum of
$\frac1{2n} \|y - X w - b\|^2 + \alpha \|w\|_1$ satisfy
$\frac1n \langle x_j, r \rangle = \alpha \operatorname{sign}(w_j)$, all others
$\frac1n |\langle x_j, r \rangle| \le \alpha$. So a few features are solved by
`vademecum.linear.coordinate_descent`; then one pass over the data finds those that violate the
condition, of which the worst join, no more at a time than have a weight by now; and so on. Since
residuals are centred, features need not be:
$\langle x_j - \bar x_j, r \rangle = \langle x_j, r \rangle$. Weighted examples are rows times the
roots $\rho_i$ of their weights, which have the mean 1; then the intercept is the weight of the
column $\rho$, which takes the place of a column of ones. Along a path of penalties the slopes
$\frac1n \langle x_j, r \rangle$ are piecewise linear in $\alpha$: carried on from the last two
solutions, they tell beforehand which features the next few penalties need.

A pass also gives the duality gap of the whole problem, exact up to the rounding of a product in the
dtype of the data; the working set itself is kept in double precision. Neighbouring penalties share
their passes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.arrays import one_blas_thread, views
from vademecum.estimators import SparseRows, precision, warn_unconverged
from vademecum.linear.coordinate_descent import descend, duality_gap

__all__ = ["Point", "WorkingSet"]

START = 32  # features that may join a working set even while few have a weight
SHARE = 0.3  # of the allowed gap that the working set may keep


@dataclass
class Point:
    """A solution: the weights of the working set, as it was then, and what is known of them."""

    alpha: float
    w: Any = None  # a NumPy array
    sweeps: int = 0
    gap: float = float("inf")
    slope: Any = None  # how every feature correlates with the residuals


class WorkingSet:
    """The lasso on `x`, a tensor or `SparseRows`, and `y`, warm from one `solve` to the next.

    Example:
        >>> x, y = torch.tensor([[-1.0], [1.0]]), torch.tensor([2.0, 6.0])
        >>> problem = WorkingSet(x, y, centre=True, tol=1e-9, max_iter=10)
        >>> [problem.map(point)[0].item() for point in problem.solve([2.5, 1.0])]
        [0.0, 1.0]
    """

    def __init__(
        self,
        x: Any,
        y: Tensor,
        *,
        centre: bool,
        tol: float,
        max_iter: int,
        weights: Tensor | None = None,
    ):
        self.tol = number("tol", tol, above=0.0)
        self.max_iter = whole("max_iter", max_iter, low=1)
        self.x, self.centre, y = x.to(precision(x, y)), centre, y.double()
        self.roots = torch.ones_like(y)
        if weights is not None:
            kept = weights > 0
            self.roots = (weights[kept] / weights[kept].mean()).sqrt()
            self.x, y = _scaled(self.x[kept], self.roots), y[kept] * self.roots
        self.mean_y = self.roots @ y / len(y) * centre
        self.y = y - self.mean_y * self.roots
        self.power = float(self.y.square().mean())
        self.enough = self.tol * self.power
        self.rows = self.y.new_empty(START, len(y))  # centred features, of which some are filled in
        self.features, self.means = self.y[:0].long(), self.y[:0]
        self.gram, self.c = np.empty((0, 0)), np.empty(0)
        self.last = self.before = Point(1.0, np.empty(0))
        self._look([self.last])
        self.last.alpha = float(self.last.slope.abs().max())  # the least without weights

    def solve(self, alphas: list[float]) -> list[Point]:
        """The solutions for a few penalties, each the start of the next."""
        points = [Point(alpha) for alpha in alphas]
        pending, known = points, [self.last, *points]
        self._extend(self._foreseen(min(alphas)))
        while pending:
            with one_blas_thread():  # as small products should
                moved = [self._improve(point) for point in pending]
            self._look(pending)
            unsolved = [p for p in pending if not self.is_solved(p)]
            pending = [p for p in unsolved if p.sweeps < self.max_iter]
            violations = [p.slope.abs() / p.alpha for p in pending]
            grown = bool(pending) and self._extend(torch.stack(violations).amax(0))
            if not grown and not any(moved):  # only rounding is left to the whole problem
                break
        self.before, self.last = known[-2:]
        for p in points:
            if not self.is_solved(p):
                message = f"duality gap {p.gap:.3g} after {p.sweeps} sweeps at alpha={p.alpha:g},"
                message += f" wanted {self.enough:.3g}; max_iter={self.max_iter}, tol={self.tol}"
                warn_unconverged(message)
        return points

    def is_solved(self, point: Point) -> bool:
        """Whether the gap is as small as it should be."""
        return bool(point.gap <= self.enough)

    def _foreseen(self, alpha: float) -> Float[Tensor, " d"]:
        """How strongly features will violate the condition at `alpha`: slopes fall as they fell."""
        slope = self.last.slope
        if (gone := self.before.alpha - self.last.alpha) > 0:
            slope = slope + (slope - self.before.slope) * ((self.last.alpha - alpha) / gone)
        return slope.abs() / alpha

    def map(self, point: Point) -> tuple[Float[Tensor, " d"], Float[Tensor, ""]]:
        """The weights of all features, and the intercept."""
        own, k = torch.from_numpy(point.w).to(self.y), len(point.w)
        w = self.y.new_zeros(self.x.shape[1]).index_copy(0, self.features[:k], own)
        return w, self.mean_y - own @ self.means[:k]

    def _improve(self, point: Point) -> int:
        """Solve on the working set; the number of sweeps that took."""
        start = self.last.w if point.w is None else point.w
        allowed = point.gap if self.lacking and point.w is not None else self.enough
        point.w = np.pad(start, (0, len(self.c) - len(start)))
        sweeps = descend(
            self.gram, self.c, point.w, alpha=point.alpha, power=self.power,
            enough=SHARE * allowed, max_iter=self.max_iter - point.sweeps,
        )  # fmt: skip
        point.sweeps += sweeps
        self.last = point
        return sweeps

    def _look(self, points: list[Point]) -> None:
        """One pass over the data: how every feature correlates with the points' residuals."""
        n, w = len(self.y), torch.from_numpy(np.stack([p.w for p in points])).to(self.y)
        r = self.y - _product(w, self.rows[: w.shape[1]])
        r_ = r.to(self.x.dtype)
        dense = isinstance(self.x, Tensor)
        slopes = (_product(r_, self.x) if dense else self.x.pull(r_)).double() / n
        known = slopes.abs().amax(1), r @ self.y / n, r.square().sum(1) / n, w.abs().sum(1)
        for point, slope, *numbers in zip(
            points, slopes, *(v.tolist() for v in known), strict=True
        ):
            steepest, fit, residual, l1 = numbers
            point.slope = slope
            point.gap = duality_gap(point.alpha, l1, fit, residual, steepest)

    def _extend(self, violation: Float[Tensor, " d"]) -> bool:
        """Let the worst of the features above one join; whether there were any."""
        violation = violation.index_fill(0, self.features, 0.0)
        wanted = int((violation > 1).sum())
        count = min(wanted, max(START, int(np.count_nonzero(self.last.w))))
        self.lacking = count < wanted
        if not count:
            return False
        new, n, k = violation.topk(count).indices, len(self.y), len(self.features)
        if k + count > len(self.rows):
            wider = self.rows.new_empty(2 * (k + count), n)
            wider[:k] = self.rows[:k]
            self.rows = wider
        own = self.rows[k : k + count]
        if isinstance(self.x, SparseRows):
            own.copy_(self.x.columns(new).T)
        else:
            own.copy_(self.x.gather(1, new.expand(n, -1)).T)  # quicker than index_select
        means = own @ self.roots / n * self.centre
        own -= means[:, None] * self.roots
        self.features, self.means = torch.cat([self.features, new]), torch.cat([self.means, means])
        if not torch.linalg.vector_norm(own).square().isfinite():
            raise ValueError("X must be smaller: the squares of its entries overflow")
        largest = own.abs().amax(1)
        if ((largest > 0) & (largest.square() < torch.finfo(own.dtype).tiny)).any():
            raise ValueError("X must be larger: the squares of a column underflow")
        cross, inner = (_product(z, own.T).div_(n).cpu().numpy() for z in (self.rows[:k], own))
        self.gram = np.block([[self.gram, cross], [cross.T, inner]])
        self.c = np.append(self.c, (own @ self.y / n).cpu().numpy())
        return True


def _scaled(x: Any, roots: Float[Tensor, " n"]) -> Any:
    return x.times(roots) if isinstance(x, SparseRows) else x * roots.to(x)[:, None]


def _product(a: Float[Tensor, " k m"], b: Float[Tensor, " m n"]) -> Float[Tensor, " k n"]:
    """The product, by NumPy where it can be: quicker than torch where k is small.

    All of them, since the threads of the two would hold each other up.
    """
    a_, b_ = views(a, b)
    return torch.as_tensor(a_ @ b_)
