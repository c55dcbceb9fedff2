r"""Preconditioned L-BFGS: a smooth convex function minimised to a tolerance of its gradient.

Steps $s_i = \theta_{i+1} - \theta_i$ and gradient differences $y_i = g_{i+1} - g_i$ of the last
iterations define an approximate inverse Hessian $H$: the inverse $P$ of a preconditioner, scaled by
$\gamma$ and corrected so that it maps the last $y_i$ to $s_i$. With the pairs scaled to
$\langle s_i, y_i \rangle = 1$ the two-loop recursion finds its product with a gradient,

$$H \leftarrow (I - s_i y_i^\top)\, H\, (I - y_i s_i^\top) + s_i s_i^\top, \qquad
\text{from } H = \gamma P, \quad \gamma = 1 / \langle y, P y \rangle \text{ of the last pair.}$$

A step $-t H g$ starts at $t = 1$ and shrinks until the value falls (Armijo) and the slope behind
it is at most $0.9$ times as steep as before it. The value is asked only up to a slack, so that near
the minimum the gradient decides, which has more correct digits there. Where rounding stops the
progress, the function is asked to compute more precisely. For a preconditioner near the Hessian
this is Newton's method, at one gradient a step.
"""

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

__all__ = ["Minimum", "Objective", "minimise"]

PAIRS = 20
SLACK = 1e-6  # of the value
ROUNDING = 1e-15
PATIENCE = 30  # iterations with neither a smaller gradient nor a smaller value: rounding
Solve = Callable[[Tensor], Tensor]


@runtime_checkable
class Objective(Protocol):
    """A convex function of a vector, with what the iteration asks of it."""

    def __call__(self, theta: Tensor) -> tuple[float, Tensor]:
        """The value and the gradient."""
        ...

    def preconditioner(self, theta: Tensor) -> Solve:
        """The product with an approximate inverse Hessian at `theta`."""
        ...

    def refine(self) -> bool:
        """Compute more precisely from now on; whether that is possible."""
        ...


class Minimum(NamedTuple):
    """Where the iteration stopped: `gradient` is the largest entry of the gradient there."""

    theta: Tensor
    value: float
    gradient: float
    n_iter: int
    step: Tensor


def minimise(objective: Objective, theta: Tensor, *, tol: float, max_iter: int) -> Minimum:
    r"""Minimise until $\|g\|_\infty \le$ `tol`, or as far as `max_iter` and rounding allow.

    The preconditioner is built at the start and again after 16, 64, 256, ... iterations.

    Args:
        objective: The function.
        theta: The start, a vector in double precision.
        tol: The largest entry of the gradient to be reached.
        max_iter: The most iterations.

    References:
        Liu and Nocedal, On the limited memory BFGS method for large scale optimization,
        Mathematical Programming, 1989.
        Hager and Zhang, A new conjugate gradient method with guaranteed descent and an efficient
        line search, SIAM Journal on Optimization, 2005 (for the slack).
    """
    value, g = objective(theta)
    solve = objective.preconditioner(theta)
    pairs: list[tuple[Tensor, Tensor]] = []
    step, waited, n_iter, refresh = torch.zeros_like(theta), 0, 0, 16
    least = lowest = math.inf
    while True:
        size = float(g.abs().max())
        waited = 0 if size < least or value < lowest - ROUNDING * (1 + abs(value)) else waited + 1
        least, lowest = min(least, size), min(lowest, value)
        if size <= tol or n_iter >= max_iter or not math.isfinite(size):
            return Minimum(theta, value, size, n_iter, step)
        if n_iter == refresh:
            solve, refresh = objective.preconditioner(theta), 4 * refresh
        d = _direction(g, solve, pairs)
        moved = _search(objective, theta, value, g, d) if waited < PATIENCE else None
        if moved is None:
            if not objective.refine():
                return Minimum(theta, value, size, n_iter, step)
            value, g = objective(theta)
            least = lowest = math.inf
            continue
        n_iter += 1
        before = g
        step, value, g = moved
        theta = theta + step
        curvature = float(step @ (g - before))
        if curvature > 0:
            scale = curvature**-0.5
            pairs = [*pairs[1 - PAIRS :], (step * scale, (g - before) * scale)]


def _direction(g: Tensor, solve: Solve, pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The quasi-Newton direction, by the two-loop recursion."""
    if not pairs:
        return -solve(g)
    q, alphas = g, []
    for s, y in reversed(pairs):
        alphas.append(s @ q)
        q = q - alphas[-1] * y
    y = pairs[-1][1]
    r = solve(q) / (y @ solve(y))
    for (s, y), alpha in zip(pairs, reversed(alphas), strict=True):
        r = r + (alpha - y @ r) * s
    return -r


def _search(
    objective: Objective, theta: Tensor, value: float, g: Tensor, d: Tensor
) -> tuple[Tensor, float, Tensor] | None:
    """A step along `d`, the value and the gradient there; None where nothing is gained."""
    slope, t = float(g @ d), 1.0
    if not slope < 0:
        return None
    for _ in range(25):
        there, gradient = objective(theta + t * d)
        behind = float(gradient @ d)
        allowed = value + 1e-4 * t * slope + SLACK * (1 + abs(value))
        if there <= allowed and behind <= -0.9 * slope:
            return t * d, there, gradient
        cut = slope / (slope - behind) if math.isfinite(behind) else 0.1
        t *= min(max(cut, 0.1), 0.5)
    return None
