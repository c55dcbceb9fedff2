r"""Points of the plane that no line separates: moons, spirals and exclusive or.

Without noise a point lies on its class's curve, exactly up to rounding:

* moons: $(\cos a, \sin a)$ and $(1 - \cos a, \tfrac12 - \sin a)$ for $0 \le a \le \pi$;
* spirals: $r (\cos a, \sin a)$ with $a = 2 \pi (\tau r + k / K)$ for class $k$ of $K$, $\tau$ turns
  and $0 < r \le 1$, which meet nowhere;
* exclusive or: $x \in \{0, 1\}^2$ with $y = x_1 \oplus x_2$.

Then Gaussian noise of standard deviation `noise` is added to each coordinate. Labels take turns, so
that every run of consecutive points is balanced to within one; $a$ and $r$ are uniform.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.randomness import place, source
from vademecum.results import one_line

__all__ = ["Points", "moons", "spirals", "xor"]


class Points(NamedTuple):
    """Labelled points.

    Attributes:
        x: The points.
        y: Their classes, from 0.
    """

    x: Float[Tensor, " n d"]
    y: Int64[Tensor, " n"]

    __repr__ = one_line


def moons(
    n: int,
    *,
    noise: float = 0.0,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Points:
    """Draw two half circles, each of which reaches into the other.

    Args:
        n: The number of points, at least 2.
        noise: The standard deviation of the noise.
        generator: Where random numbers come from; torch's global generator by default.
        dtype: A floating dtype; torch's default if None.
        device: Where the points are; on the device of `generator`, or torch's default, if None.

    Raises:
        ValueError: Where an argument is out of its range.

    Example:
        >>> x, y = moons(4)
        >>> y.tolist(), bool((x[0].norm() - 1).abs() < 1e-6)
        ([0, 1, 0, 1], True)
    """
    whole("n", n, low=2)
    dtype, device = place(generator, dtype, device)
    a = math.pi * torch.rand(n, dtype=dtype, **source(generator, device)).to(device)
    y = torch.arange(n, device=device) % 2
    outer = torch.stack([a.cos(), a.sin()], dim=1)
    inner = torch.stack([1 - a.cos(), 0.5 - a.sin()], dim=1)
    return Points(_blur(torch.where(y[:, None] == 0, outer, inner), noise, generator), y)


def spirals(
    n: int,
    *,
    classes: int = 2,
    turns: float = 1.0,
    noise: float = 0.0,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Points:
    r"""Draw the arms of a spiral.

    Args:
        n: The number of points, at least one a class.
        classes: The number of arms $K$, at least 2.
        turns: The $\tau$: how often an arm winds around the origin; negative for the other way.
        noise: The standard deviation of the noise.
        generator: Where random numbers come from; torch's global generator by default.
        dtype: A floating dtype; torch's default if None.
        device: Where the points are; on the device of `generator`, or torch's default, if None.

    Raises:
        ValueError: Where an argument is out of its range.

    References:
        K. J. Lang, M. J. Witbrock, Learning to tell two spirals apart, Proceedings of the 1988
        Connectionist Models Summer School, 1988.

    Example:
        >>> x, y = spirals(6, classes=3)
        >>> y.tolist(), bool((x.norm(dim=1) <= 1 + 1e-6).all())
        ([0, 1, 2, 0, 1, 2], True)
    """
    whole("classes", classes, low=2)
    whole("n", n, low=classes)
    number("turns", turns)
    dtype, device = place(generator, dtype, device)
    r = 1 - torch.rand(n, dtype=dtype, **source(generator, device)).to(device)
    y = torch.arange(n, device=device) % classes
    a = 2 * math.pi * (turns * r + y.to(dtype) / classes)
    x = r[:, None] * torch.stack([a.cos(), a.sin()], dim=1)
    return Points(_blur(x, noise, generator), y)


def xor(
    n: int,
    *,
    noise: float = 0.0,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Points:
    """Draw the truth table of exclusive or, over and over.

    Args:
        n: The number of points, at least 2; four make the table.
        noise: The standard deviation of the noise.
        generator: Where random numbers come from; torch's global generator by default.
        dtype: A floating dtype; torch's default if None.
        device: Where the points are; on the device of `generator`, or torch's default, if None.

    Raises:
        ValueError: Where an argument is out of its range.

    Example:
        >>> x, y = xor(4)
        >>> x.tolist(), y.tolist()
        ([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 0.0]], [0, 1, 0, 1])
    """
    whole("n", n, low=2)
    dtype, device = place(generator, dtype, device)
    row = torch.arange(n, device=device)
    y = row % 2
    first = row // 2 % 2
    x = torch.stack([first, first ^ y], dim=1).to(dtype)
    return Points(_blur(x, noise, generator), y)


def _blur(x: Tensor, noise: float, generator: torch.Generator | None) -> Tensor:
    number("noise", noise, low=0)
    z = torch.randn(x.shape, dtype=x.dtype, **source(generator, x.device))
    return x + noise * z.to(x.device)
