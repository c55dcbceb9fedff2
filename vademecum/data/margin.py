r"""Linearly separable points with a planted separator.

A unit vector $w$ and points $x_1, \dots, x_n$ of the unit ball with labels
$y_i = (-1)^{i+1}$ such that

$$y_i \langle w, x_i \rangle \ge \gamma \lVert w \rVert, \qquad \lVert x_i \rVert \le 1.$$

The points have a density proportional to the distance $t = |\langle w, x \rangle|$ from the
hyperplane, over the part of the ball where $t \ge \gamma$. Then
$P(T > t) = \big((1 - t^2) / (1 - \gamma^2)\big)^{(d+1)/2}$, which inverts in closed form, and given
$t$ the point is uniform in its slice, a ball of radius $\sqrt{1 - t^2}$ in $d - 1$ dimensions. No
draw is ever rejected. In high dimension most points lie close to the margin.

Both inequalities are exact, in real arithmetic, for the numbers returned: the points are computed
in double precision for a margin that is larger, and a ball that is smaller, by more than all
rounding errors together. (A product `x @ w` in the points' own precision rounds anew.)
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.randomness import place, source
from vademecum.results import one_line

__all__ = ["Separable", "separable"]


class Separable(NamedTuple):
    r"""Points, labels and what separates them.

    Attributes:
        x: The points, of norm at most 1.
        y: The labels, +1 and -1 in turn.
        w: The planted separator, a unit vector (to rounding).
        margin: The $\gamma$.
    """

    x: Float[Tensor, " n d"]
    y: Float[Tensor, " n"]
    w: Float[Tensor, " d"]
    margin: float

    __repr__ = one_line


def separable(
    n: int,
    d: int,
    *,
    margin: float,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Separable:
    r"""Draw separable points of the unit ball.

    Args:
        n: The number of points.
        d: The dimension.
        margin: The $\gamma$, between 0 and 1 (and below 1 by a few roundings of `dtype`).
        generator: Where random numbers come from; torch's global generator by default.
        dtype: A floating dtype; torch's default if None.
        device: Where the points are; on the device of `generator`, or torch's default, if None.

    Raises:
        ValueError: Where an argument is out of its range.

    Example:
        >>> x, y, w, margin = separable(100, 20, margin=0.1)
        >>> bool((y.double() * (x.double() @ w.double()) >= margin).all()), y[:4].tolist()
        (True, [1.0, -1.0, 1.0, -1.0])
    """
    whole("n", n, low=1)
    whole("d", d, low=1)
    dtype, device = place(generator, dtype, device)
    slack = 4 * torch.finfo(dtype).eps + 16 * (d + 16) * torch.finfo(torch.float64).eps
    number("margin", margin, above=0, below=1 - 4 * slack)
    options = dict(source(generator, device), dtype=torch.float64)

    y = 1.0 - 2.0 * (torch.arange(n, device=options["device"]) % 2).double()
    w = torch.nn.functional.normalize(torch.randn(d, **options), dim=0)
    low, radius = margin + slack, 1 - slack
    spread = torch.rand(n, **options) ** (2 / (d + 1)) * (radius**2 - low**2)  # radius^2 - t^2
    t = torch.sqrt(radius**2 - spread)
    x = torch.cat([(y * t)[:, None], _slice(n, d - 1, spread, options)], dim=1)
    x = _turn(x, w)
    return Separable(x.to(device, dtype), y.to(device, dtype), w.to(device, dtype), margin)


def _slice(n: int, k: int, squared: Tensor, options: dict) -> Tensor:
    """Points uniform in balls of `k` dimensions with the squared radii given."""
    if k == 0:
        return squared.new_zeros(n, 0)
    direction = torch.nn.functional.normalize(torch.randn(n, k, **options), dim=1)
    share = torch.rand(n, **options) ** (1 / k)
    return direction * (share * squared.sqrt())[:, None]


def _turn(x: Tensor, w: Tensor) -> Tensor:
    """Apply an orthogonal map that takes the first axis to `w`: a reflection, and a sign."""
    sign = math.copysign(1.0, w[0].item())
    v = w.clone()
    v[0] += sign
    return -sign * (x - (x @ v)[:, None] * (v * (2 / (v @ v))))
