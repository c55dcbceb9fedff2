r"""Perturbations that survive being stored as pixels: inputs $k q$ with whole $k$.

On the grid a perturbation is $q\,(k - k_0)$. For linf each $k$ is rounded and clipped to what
radius and box allow. For l1 and l2 the steps $|k - k_0|$ are first rounded down; then those
entries that lost most are rounded up after all, in the order of what they lost, as long as the sum
of the steps' moduli, or squares, stays below $(\epsilon / q)^p$. So the result lies on the grid
and in the ball, and is near the nearest point that does; it need not be the nearest.

Values are $k / m$ where $1 / q$ is a whole number $m$, as pixels divided by 255 are, else $k q$.
"""

import torch
from torch import Tensor

from vademecum.arguments import number
from vademecum.robustness._threat import NORMS, Threat

__all__ = ["on_grid", "snapped"]


def on_grid(quantum: float | None, x: Tensor) -> float | None:
    """The spacing of the grid, if inputs lie on it up to rounding."""
    if quantum is None:
        return None
    q = float(number("quantum", quantum, above=0))
    near = _value((x.double() / q).round(), q, x)
    off = (x - near).abs() > 4 * torch.finfo(x.dtype).eps * x.abs().clamp(min=q)
    if bool(off.any()):
        raise ValueError(
            f"x must lie on the grid of quantum = {q:.6g}, got {x[off][0].item():.9g}, which is"
            f" {abs(x[off][0].item() / q % 1):.3g} of a step off"
        )
    return q


def snapped(threat: Threat, x0: Tensor, z: Tensor, q: float) -> Tensor:
    """Points of the grid near z which in double precision exceed neither radius nor box."""
    start = (x0.double() / q).round()
    if threat.norm in ("linf", "l0"):
        return _rounded_within(threat, x0, start, z, q)
    part, less = torch.ones_like(threat.radius, dtype=torch.float64), 2.0**-30
    while True:
        steps = _filled(threat, x0, start, z, q, part)
        points = torch.where(steps == 0, x0, _value(start + steps, q, x0))
        over = threat.distance(x0, points) > threat.radius.double() * (1 - 2.0**-40)
        if not bool(over.any()):
            return points
        part, less = torch.where(over, part * (1 - less), part), min(2 * less, 0.5)


def _rounded_within(threat: Threat, x0: Tensor, start: Tensor, z: Tensor, q: float) -> Tensor:
    """Rounded entry by entry; where that is not allowed, a step nearer to where it began."""
    k = (z.double() / q).round()
    low, high = threat.limits(x0)
    for _ in range(2):
        value = _value(k, q, x0)
        beyond = (value < low) | (value > high)
        k = torch.where(beyond, k - (k - start).sign(), k)
    value = torch.where(k == start, x0, _value(k, q, x0))
    return torch.where((value < low) | (value > high), x0, value)


def _filled(threat: Threat, x0: Tensor, start: Tensor, z: Tensor, q: float, part: Tensor) -> Tensor:
    """Whole steps from the start, rounded down, and up again as long as a part of the radius lasts.

    A quarter of a step is not worth one. What is stored may be rounded out of a box whose end is on
    the grid: then a step less is made.
    """
    p = NORMS[threat.norm]
    way = (z.double() - x0.double()).flatten(1) / q * part[:, None]
    low, high = threat.limits(x0)

    def outside(steps: Tensor) -> Tensor:
        value = _value(start + (steps * way.sign()).view_as(x0), q, x0)
        return ((steps.view_as(x0) > 0) & ((value < low) | (value > high))).flatten(1)

    down = way.abs().floor()
    down = torch.where(outside(down), down - 1, down)
    lost, cost = way.abs() - down, (down + 1) ** p - down**p
    lost = lost.masked_fill(outside(down + 1) | (lost <= 0.25), -1)
    order = lost.argsort(dim=1, descending=True)
    spent = (down**p).sum(1, keepdim=True) + cost.gather(1, order).cumsum(1)
    room = (part * threat.radius.double() / q)[:, None] ** p
    up = torch.zeros_like(lost, dtype=torch.bool)
    up = up.scatter(1, order, (spent <= room) & (lost.gather(1, order) > 0))
    return ((down + up) * way.sign()).view_as(x0)


def _value(k: Tensor, q: float, like: Tensor) -> Tensor:
    m = round(1 / q)
    exact = m > 0 and abs(1 / q - m) < 1e-9 * m
    return (k / m if exact else k * q).to(like.dtype)
