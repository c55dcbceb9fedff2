r"""Adaptive steps for $\dot y = v(t, y)$: Dormand and Prince's pair of orders 5 and 4.

A step of size $h$ takes six new evaluations and gives two results, whose difference estimates the
error of the weaker one. The step is kept if for every example the root mean square of
$\text{error}_i / (\tau + \tau \max(|y_i|, |y_i'|))$ is at most 1, so that a batch is as exact as
its worst example; the next one is larger or smaller by $0.9\, \text{error}^{-1/5}$. One step size
serves the whole batch. Times are in double precision.

References:
    Hairer, Norsett and Wanner, Solving ordinary differential equations I, Springer, 1993.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Integral", "integrate"]

NODES = (0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
ERRORS = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
_SAFETY, _LEAST, _MOST = 0.9, 0.2, 10.0  # factors of step sizes, as in Hairer's code


class Integral(NamedTuple):
    """Where an integration ended."""

    y: Tensor
    """The state, as it was given."""
    evaluations: int
    """How often the field was evaluated."""
    reached: float
    """The time that it reached."""


def integrate(
    field: Callable[[float, Tensor], Tensor],
    y: Tensor,
    start: float,
    end: float,
    *,
    tol: float,
    max_iter: int,
) -> Integral:
    """Follow a field from one time to another, forwards or backwards.

    It stops early after `max_iter` steps, tried or kept, or where steps become too small to count.

    Args:
        field: The derivative (n, D) of states (n, D) at a time.
        y: The states, (n, D).
        start: The time they have.
        end: The time to go to.
        tol: The error allowed in a step, relative and absolute.
        max_iter: The most steps.
    """
    if start == end or y.numel() == 0:
        return Integral(y, 0, end)
    sign = 1.0 if end > start else -1.0
    slopes = y.new_empty(7, y.numel())
    weights = [torch.tensor(row, dtype=y.dtype, device=y.device) for row in (*STAGES, ERRORS)]
    slopes[0] = field(start, y).reshape(-1)
    step, t, count, grow = _first_step(field, y, slopes[0], start, end, tol), start, 2, _MOST
    for _ in range(max_iter):
        step = min(step, abs(end - t))
        if t + sign * step == t:
            break
        h, flat, state = sign * step, y.reshape(-1), y
        for i in range(6):
            state = torch.addmv(flat, slopes[: i + 1].T, weights[i], alpha=h).view_as(y)
            slopes[i + 1] = field(t + NODES[i + 1] * h, state).reshape(-1)
        count += 6
        error = _size(h * (slopes.T @ weights[6]).view_as(y), y, state, tol)
        factor = min(grow, max(_LEAST, _SAFETY * error**-0.2)) if error > 0 else grow
        if error <= 1:  # and not for NaN
            t = end if step == abs(end - t) else t + h
            y, slopes[0], grow = state, slopes[6], _MOST
            if t == end:
                break
        else:
            factor, grow = factor if error > 1 else _LEAST, 1.0
        step *= factor
    return Integral(y, count, t)


def _size(error: Tensor, y: Tensor, other: Tensor, tol: float) -> float:
    allowed = tol * (1 + torch.maximum(y.abs(), other.abs()))
    return float((error / allowed).square().mean(1).max().sqrt())


def _first_step(
    field: Callable[[float, Tensor], Tensor], y: Tensor, slope: Tensor, start: float, end: float,
    tol: float,
) -> float:  # fmt: skip
    """A first guess from the sizes of the first two derivatives (Hairer et al., II.4)."""
    slope, span = slope.view_as(y), abs(end - start)
    zero = torch.zeros_like(y)
    low, high = _size(y, y, zero, tol), _size(slope, y, zero, tol)
    small = min(0.01 * low / high if low > 1e-5 and high > 1e-5 else 1e-6, span)
    sign = 1.0 if end > start else -1.0
    ahead = field(start + sign * small, y + sign * small * slope)
    bend = _size(ahead - slope, y, zero, tol) / small
    most = max(high, bend)
    guess = max(1e-6, small * 1e-3) if not most > 1e-15 else (0.01 / most) ** 0.2
    return min(100 * small, guess, span)
