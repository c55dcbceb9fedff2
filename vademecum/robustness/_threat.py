r"""What an adversary may do: the ball of a norm around each input, within a box.

For an input $x$, a radius $\epsilon$ and a box $[l, h]$ the adversary chooses a point of

$$S = \{z : \|z - x\|_p \le \epsilon,\; l \le z_i \le h\},$$

with "l0" one that differs from $x$ in at most $\epsilon$ entries. `nearest` is the Euclidean
projection onto $S$ (see `_nearest_points`), up to rounding. `project` rounds towards $x$, entry by
entry, so that the stored result, measured in double precision, never exceeds radius or box, not by
one unit in the last place. `furthest` maximises a linear function over $S$, and `step` over the
ball of radius 1. The claims are `robustness.ball_projection` and `robustness.steepest_direction`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vademecum.arguments import choice, floats, number
from vademecum.foundations import dual_norm
from vademecum.results import one_line
from vademecum.robustness._nearest_points import (
    filled,
    freest,
    shortened,
    sparse,
    stretched,
    thresholded,
)

__all__ = ["NORMS", "Threat", "as_threat", "per_example", "towards"]

NORMS = {"linf": math.inf, "l2": 2.0, "l1": 1.0, "l0": 0.0}
"""The exponents of the norms."""
_NEAREST = {"l2": shortened, "l1": thresholded, "l0": sparse}
_FURTHEST = {"l2": stretched, "l1": filled, "l0": freest}


class Threat(NamedTuple):
    """A norm, a radius for each example and a box.

    Example:
        >>> threat = as_threat(torch.zeros(1, 2), "l2", 1.0, None)
        >>> threat.project(torch.zeros(1, 2), torch.tensor([[3.0, 4.0]]))
        tensor([[0.6000, 0.8000]])
    """

    norm: str
    """The norm: "linf", "l2", "l1" or "l0"."""
    radius: Tensor
    """The radii (n,), in the dtype of the inputs."""
    box: tuple[float, float] | None
    """The least and the largest value of an entry, exact in the dtype of the inputs; or None."""

    __repr__ = one_line

    def rows(self, index: Any) -> "Threat":
        """The same for some of the examples."""
        return self._replace(radius=self.radius[index])

    def limits(self, x0: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds of every entry from the box and, for linf, the radius: exact, see `project`."""
        low, high = self.box or (-math.inf, math.inf)
        if self.norm != "linf":
            return torch.full_like(x0, low), torch.full_like(x0, high)
        r = per_example(self.radius, x0)
        below, above = towards(x0, x0 - r, r), towards(x0, x0 + r, r)
        return below.clamp_(min=low), above.clamp_(max=high)

    def distance(self, x0: Tensor, x: Tensor) -> Tensor:
        """How far examples lie from where they began, in double precision."""
        gap = (x.double() - x0.double()).flatten(1)
        return torch.linalg.vector_norm(gap, NORMS[self.norm], dim=1)

    def step(self, gradient: Tensor) -> Tensor:
        """For each example the vector of norm 1 along which a linear function rises most."""
        if self.norm == "linf":
            return gradient.sign()
        p = NORMS[self.norm] or 1.0
        return dual_norm(gradient.flatten(1), p).maximiser.view_as(gradient)

    def nearest(self, x0: Tensor, z: Tensor, limits: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """The nearest points that are allowed, up to rounding; with `limits` if they are known."""
        if self.norm == "linf":
            return z.clamp(*(limits or self.limits(x0)))
        wide = torch.promote_types(x0.dtype, torch.float32)
        return self._moved(x0, z.to(wide) - x0.to(wide), _NEAREST[self.norm])

    def furthest(self, x0: Tensor, gradient: Tensor) -> Tensor:
        """Where a linear function is largest among the points that are allowed, up to rounding.

        Entries in which it does not change stay.
        """
        if self.norm == "linf":
            low, high = self.limits(x0)
            return torch.where(gradient > 0, high, torch.where(gradient < 0, low, x0))
        return self._moved(x0, gradient, _FURTHEST[self.norm])

    def _moved(self, x0: Tensor, v: Tensor, rule: Callable[..., Tensor]) -> Tensor:
        wide = torch.promote_types(x0.dtype, torch.float32)  # half precision cannot hold squares
        start, v, r = x0.to(wide), v.to(wide), self.radius.to(wide)[:, None]
        room = self._room(start, v)
        v = rule(v.flatten(1), None if room is None else room.flatten(1), r)
        return self._boxed((start + v.view_as(x0)).to(x0.dtype))

    def project(self, x0: Tensor, z: Tensor) -> Tensor:
        """The nearest points that are allowed, which in double precision exceed nothing.

        Points that are allowed come back as they are, but for those within rounding of the sphere.
        """
        if self.norm == "l0":
            return torch.where(self.nearest(x0, z) == x0, x0, self._boxed(z))
        z = self._kept(x0, z)
        if self.norm == "linf":
            return z
        d = x0[0].numel()
        safe = self.radius.double() * (1 - 2 * (2 + math.log2(d)) * 2.0**-52)  # any order of sums
        size = self.distance(x0, z)
        scale = torch.where(size > safe, safe / size.clamp(min=torch.finfo(size.dtype).tiny), 1)
        v = (z.double() - x0.double()) * per_example(scale, x0)
        inside = towards(x0, (x0.double() + v).to(x0.dtype), v.abs())
        return torch.where(per_example(scale < 1, x0), inside, z)

    def _kept(self, x0: Tensor, z: Tensor) -> Tensor:
        """The nearest points; what is allowed already stays, bit by bit."""
        boxed = self._boxed(z)
        fine = self.distance(x0, boxed) <= self.radius
        fine &= (boxed == z).flatten(1).all(1)
        if bool(fine.all()):
            return z
        return torch.where(per_example(fine, x0), z, self.nearest(x0, z))

    def _boxed(self, z: Tensor) -> Tensor:
        return z if self.box is None else z.clamp(*self.box)

    def _room(self, x0: Tensor, v: Tensor) -> Tensor | None:
        """How far each entry may move in its direction; None if as far as it likes."""
        if self.box is None:
            return None
        return torch.where(v > 0, self.box[1] - x0, x0 - self.box[0])


def as_threat(
    x: Tensor,
    norm: str,
    radius: float | Tensor,
    box: tuple[float, float] | None,
    *,
    norms: tuple[str, ...] = ("linf", "l2", "l1"),
    infinite: bool = False,
    outward: bool = False,
) -> Threat:
    """What an adversary may do to some inputs, if that makes sense.

    Args:
        x: The inputs (n, ...).
        norm: The norm, one of `norms`.
        radius: The radius, or one for each example.
        box: The least and the largest value of an entry, or None.
        norms: The norms that are allowed.
        infinite: Whether the radius may be infinite.
        outward: Whether radius and box are rounded up to the dtype of `x`, as certificates need it,
            and not down, as attacks do.

    Raises:
        ValueError: If something is amiss; it says what.

    Example:
        >>> as_threat(torch.zeros(2, 3), "linf", 0.5, (0.0, 1.0))
        Threat(norm='linf', radius=tensor([0.5000, 0.5000]), box=(0.0, 1.0))
    """
    x = floats("x", x)
    if x.is_complex() or x.ndim < 2:
        raise ValueError(
            "x must be real with examples along the first of at least two axes, got shape"
            f" {tuple(x.shape)} of {x.dtype}"
        )
    choice("norm", norm, norms)
    r = _radii(x, norm, radius, infinite)
    return Threat(norm, _rounded(r, x.dtype, 1 if outward else -1), _box(x, box, outward))


def per_example(values: Tensor, like: Tensor) -> Tensor:
    """Numbers (n,) as (n, 1, ..., 1), to be combined with inputs."""
    return values.view(-1, *[1] * (like.ndim - 1))


def towards(x0: Tensor, z: Tensor, r: Tensor) -> Tensor:
    """Points z at the rounding error of a distance r from x0, entry by entry, but not beyond it."""
    beyond = (z.double() - x0.double()).abs() > r.double()
    return torch.where(beyond, torch.nextafter(z, x0), z)


def _radii(x: Tensor, norm: str, radius: Any, infinite: bool) -> Tensor:
    if not isinstance(radius, Tensor):
        r = float(number("radius", radius, low=0, infinite=infinite))
        r = torch.full((len(x),), r, dtype=torch.float64)
    else:
        if radius.ndim and radius.shape != (len(x),):
            raise ValueError(
                f"radius must be a number or {len(x)} of them, one for each example, got shape"
                f" {tuple(radius.shape)}"
            )
        r = radius.detach().double().expand(len(x))
        bad = ~(r >= 0) | (r.isinf() & (not infinite))
        if bool(bad.any()):
            raise ValueError(f"radius must be >= 0 and finite, got {r[bad][0].item()}")
    if norm == "l0" and bool((r != r.round()).any()):
        raise ValueError(f"radius must be a whole number of entries for l0, got {r.tolist()[:3]}")
    return r.to(x.device)


def _box(x: Tensor, box: Any, outward: bool) -> tuple[float, float] | None:
    if box is None:
        return None
    if not isinstance(box, tuple | list) or len(box) != 2:
        raise ValueError(f"box must be None or two numbers, low and high, got {box!r}")
    low = float(number("box[0]", box[0], infinite=True))
    high = float(number("box[1]", box[1], above=low, infinite=True))
    least, most = (float(end) for end in torch.aminmax(x.detach().double()))
    if least < low or most > high:
        raise ValueError(
            f"x must lie in box, from {low:g} to {high:g}, got entries from {least:g} to {most:g}:"
            " give its own range, or None, as box"
        )
    way = 1 if outward else -1
    ends = torch.tensor([-low, high], dtype=torch.float64)
    a, b = _rounded(ends, x.dtype, way).tolist()
    return -a, b


def _rounded(r: Tensor, dtype: torch.dtype, way: int) -> Tensor:
    """Numbers in another dtype, rounded up (1) or down (-1)."""
    near = r.to(dtype)
    off = (near.double() < r) if way > 0 else (near.double() > r)
    return torch.where(off, torch.nextafter(near, torch.full_like(near, way * math.inf)), near)
