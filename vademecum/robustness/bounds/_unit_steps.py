r"""Scalar units $y = \varphi(z)$: what they do to intervals, and the lines between which they run.

On $[l, u]$ let $t_0 = l < t_1 < \dots < t_K = u$ be points that include every kink of $\varphi$,
and let $|\varphi''| \le c$ between kinks. For a slope $s$ the function $\varphi(z) - s z$ is at
most $c h^2 / 8$ above the chords between points that are $h$ apart, so

$$\varphi(z) \le s z + b, \qquad b = \max_k \big(\varphi(t_k) - s t_k\big) + \frac{c h^2}{8},$$

and alike from below. Any slope will do; taken is the one whose line is lowest in the middle of the
interval (least area, Zhang et al., Efficient neural network robustness certification, NeurIPS,
2018), among the chord, the tangent in the middle, and the lines through either end that touch
$\varphi$ elsewhere. For a rectifier these are the chord above, and 0 or the identity below,
whichever leaves less. Piecewise linear units have $c = 0$: their lines are exact.

The run computes $\varphi$ with an error of at most $e (|\varphi(z)| + |z|)$ or so, `error` in units
of the roundoff: elementary functions are taken to be right to within four units in the last place,
as their libraries say. Our own values are as good, and both are added to $b$.
"""

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.robustness.bounds._affine_steps import Ends
from vademecum.robustness.bounds._rounding import Arithmetic
from vademecum.robustness.bounds._unit_rules import Unit

__all__ = ["Lines", "UnitStep"]

_CELLS = 24  # of a smooth unit's interval; a unit of width 2 is then off by c / 1152


class Lines(NamedTuple):
    """Lines below and above: slopes and intercepts, for each entry."""

    low_slope: Tensor
    """The slopes below."""
    low: Tensor
    """The intercepts below."""
    high_slope: Tensor
    """The slopes above."""
    high: Tensor
    """The intercepts above."""


class UnitStep:
    """A step that applies a scalar function to every entry.

    Args:
        name: The submodule or function, for messages.
        inputs: The number of the value that it reads.
        output: The number of the value that it makes.
        unit: The function.
    """

    def __init__(self, name: str, inputs: tuple[int, ...], output: int, unit: Unit):
        self.name, self.inputs, self.output, self.unit = name, inputs, output, unit

    def __call__(self, h: Tensor) -> Tensor:
        """The step on points."""
        return self.unit.function(h)

    def box(self, ends: Ends, arithmetic: Arithmetic) -> Ends:
        """The interval of values on an interval, for each entry."""
        (l, u), f = ends, self.unit
        low, high = f.function(l), f.function(u)
        if not f.rising:
            between = [f.function(_inside(k, l, u)) for k in f.kinks]
            values = torch.stack([low, high, *between])
            low, high = values.amin(0), values.amax(0)
        if f.error:
            off = self._off(torch.maximum(-l, u), torch.maximum(low.abs(), high.abs()), arithmetic)
            low, high = low - off, high + off
        return low, high

    def _off(self, z: Tensor, y: Tensor, arithmetic: Arithmetic) -> Tensor:
        """The error of values: the run's, and that of our own."""
        run = torch.finfo(arithmetic.run).eps / 2 if arithmetic.kind == "float" else 0.0
        scale = self.unit.error * (run + torch.finfo(arithmetic.own).eps)
        least = torch.finfo(arithmetic.run).tiny + self.unit.jump
        return (z.abs() + y.abs()).mul_(scale).add_(least)

    def undecided(self, ends: Ends) -> Tensor:
        """Where the function is not linear on its interval, so that a narrower one would help."""
        l, u = ends
        if self.unit.curvature:
            return l < u
        found = torch.zeros_like(l, dtype=torch.bool)
        for kink in self.unit.kinks:
            found |= (l < kink) & (u > kink)
        return found

    def lines(self, ends: Ends, arithmetic: Arithmetic) -> Lines:
        """The lines between which the function runs on its interval, also in floats."""
        (l, u), f = ends, self.unit
        z, middle, eps = torch.maximum(-l, u), (l + u) / 2, torch.finfo(arithmetic.own).eps
        if f.hinge is not None:
            low_slope, low, high_slope, high = _hinge_lines(l, u, f.hinge, eps)
            slack = self._off(z, z, arithmetic) if f.error else None
            if slack is not None:
                low, high = low - slack, high + slack
            return Lines(low_slope, low, high_slope, high)
        points, slack = self._points(l, u)
        values = [f.function(t) for t in points]
        size = torch.stack([values[0].abs(), values[-1].abs()]).amax(0)
        slopes = _slopes(points, values, self._derivative(middle))
        if f.error:
            slack = slack + self._off(z, size, arithmetic)
        steep = torch.stack(slopes).abs().amax(0)
        slack = slack + 8 * eps * (size + (steep + 1) * z)
        low = _best(slopes, points, values, middle, -1)
        high = _best(slopes, points, values, middle, 1)
        return Lines(low[0], low[1] - slack, high[0], high[1] + slack)

    def slopes(self, ends: Ends) -> Ends:
        """Between what the derivative lies on an interval, for each entry, in double precision."""
        (l, u), f = ends, self.unit
        steep = _numbers(f.steep, l)
        least = torch.zeros_like(steep) if f.rising else -steep
        points, _ = self._points(l, u)
        values = [f.function(t) for t in points]
        low, high = torch.full_like(l, torch.inf), torch.full_like(l, -torch.inf)
        pairs = zip(points, points[1:], values, values[1:], strict=False)
        for a, b, y, z in pairs:
            gap = b - a
            off = (
                8
                * torch.finfo(l.dtype).eps
                * (1 + f.error)
                * (a.abs() + b.abs() + y.abs() + z.abs())
            )
            slope, off = (z - y) / gap, off / gap + f.curvature * gap
            low = torch.where(gap > 0, torch.minimum(low, slope - off), low)
            high = torch.where(gap > 0, torch.maximum(high, slope + off), high)
        narrow = low > high  # a single point
        low, high = torch.where(narrow, least, low), torch.where(narrow, steep, high)
        return torch.maximum(low, least), torch.minimum(high, steep)

    def _derivative(self, z: Tensor) -> Tensor:
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.unit.function(z).sum(), z)
        return slope

    def _points(self, l: Tensor, u: Tensor) -> tuple[list[Tensor], Tensor]:
        """Points of the interval with all kinks among them, and what lies beyond the chords."""
        corners = [l, *(_inside(k, l, u) for k in self.unit.kinks), u]
        if not self.unit.curvature:
            return corners, torch.zeros_like(l)
        cells = max(1, _CELLS // (len(corners) - 1))
        points, widest = [l], torch.zeros_like(l)
        for a, b in pairwise(corners):
            points += [a + (b - a) * (i / cells) for i in range(1, cells)]
            points.append(b)
            widest = torch.maximum(widest, (b - a) / cells)
        return points, 1.001 * self.unit.curvature / 8 * widest.square()


def _hinge_lines(l: Tensor, u: Tensor, a: float | Tensor, eps: float) -> Lines:
    """For max(z, a z), a <= 1: the chord above, 1 or a below, and both where 0 is not inside."""
    one, a = torch.ones_like(l), _numbers(a, l).expand_as(l)
    slope = (u - a * l) / (u - l)
    slope = torch.where(l >= 0, one, torch.where(u <= 0, a, slope))
    ends = torch.maximum(u - slope * u, (a - slope) * l)
    slack = 4 * eps * (torch.maximum(u, (a * l).abs()) + slope.abs() * torch.maximum(-l, u))
    high = torch.where((l >= 0) | (u <= 0), 0, ends + slack)
    below = torch.where(u > -l, one, a)
    return Lines(torch.where(l >= 0, one, torch.where(u <= 0, a, below)), high * 0, slope, high)


def _numbers(a: float | Tensor, like: Tensor) -> Tensor:
    return a.to(like) if isinstance(a, Tensor) else torch.full_like(like[:1, ...], a)


def _inside(kink: float | Tensor, l: Tensor, u: Tensor) -> Tensor:
    """A kink moved into the interval."""
    if isinstance(kink, Tensor):
        return torch.minimum(torch.maximum(kink, l), u)
    return torch.clamp(torch.full_like(l, kink), l, u)


def _slopes(points: list[Tensor], values: list[Tensor], middle: Tensor) -> list[Tensor]:
    """Slopes to choose from: the middle's, and the flattest and steepest from either end."""
    found = [middle]
    for at, others in ((0, range(1, len(points))), (-1, range(len(points) - 1))):
        low = high = None
        for i in others:
            gap = points[i] - points[at]
            slope = torch.where(gap != 0, (values[i] - values[at]) / gap, middle)
            slope = torch.where(slope.isfinite(), slope, middle)
            low = slope if low is None else torch.minimum(low, slope)
            high = slope if high is None else torch.maximum(high, slope)
            if i in (0, len(points) - 1):
                found.append(slope)
        found += [each for each in (low, high) if each is not None]
    return found


def _best(
    slopes: list[Tensor], points: list[Tensor], values: list[Tensor], middle: Tensor, side: int
) -> tuple[Tensor, Tensor]:
    """The slope and intercept of the line above (1) or below (-1) that is nearest in the middle."""
    best: tuple[Tensor, Tensor] | None = None
    height = middle
    for slope in slopes:
        reach = None
        for t, y in zip(points, values, strict=True):
            each = y - slope * t
            reach = (
                each
                if reach is None
                else torch.maximum(reach, each)
                if side > 0
                else torch.minimum(reach, each)
            )
        assert reach is not None
        level = (slope * middle + reach) * side
        if best is None:
            best, height = (slope, reach), level
        else:
            better = level < height
            best = (torch.where(better, slope, best[0]), torch.where(better, reach, best[1]))
            height = torch.minimum(height, level)
    assert best is not None
    return best
