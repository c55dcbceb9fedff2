r"""Planes of input space, and rectangles on them: where to look for linear regions.

A plane is $x(s, t) = o + s\, u + t\, v$ with $o$, $u$, $v$ in the shape of one example, and its
rectangle $s \in [s_0, s_1]$, $t \in [t_0, t_1]$.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats, number
from vademecum.results import one_line

__all__ = ["Plane", "checked_rectangle", "input_plane", "plane_through"]


class Plane(NamedTuple):
    r"""A rectangle of the plane $o + s\, u + t\, v$ in input space.

    Example:
        >>> Plane(torch.zeros(3), *torch.eye(3)[:2]).at(torch.tensor([0.5, 2.0]))
        tensor([0.5000, 2.0000, 0.0000])
    """

    origin: Float[Tensor, " *shape"]
    """The point $o$, in the shape of one example."""
    u: Float[Tensor, " *shape"]
    """The direction of $s$."""
    v: Float[Tensor, " *shape"]
    """The direction of $t$."""
    low: tuple[float, float] = (-1.0, -1.0)
    """The least $s$ and $t$."""
    high: tuple[float, float] = (1.0, 1.0)
    """The largest $s$ and $t$."""

    __repr__ = one_line

    def at(self, st: Float[Tensor, " *batch 2"]) -> Float[Tensor, " ..."]:
        """The points of input space with coordinates $(s, t)$, in the dtype of `st`."""
        basis = torch.stack([self.u, self.v]).to(st).flatten(1)
        return (self.origin.to(st).flatten() + st @ basis).unflatten(-1, self.origin.shape or (1,))


def input_plane(
    *,
    low: tuple[float, float] = (-1.0, -1.0),
    high: tuple[float, float] = (1.0, 1.0),
    device: str | torch.device = "cpu",
) -> Plane:
    """The plane itself, for networks with two inputs.

    Args:
        low: The least values of the two inputs.
        high: The largest.
        device: Where to compute.

    Example:
        >>> input_plane(high=(2.0, 3.0)).at(torch.tensor([2.0, 3.0]))
        tensor([2., 3.])
    """
    u, v = torch.eye(2, dtype=torch.float64, device=device).unbind()
    return Plane(torch.zeros_like(u), u, v, low, high)


def plane_through(
    a: Float[Tensor, " *shape"],
    b: Float[Tensor, " *shape"],
    c: Float[Tensor, " *shape"],
    *,
    margin: float = 0.25,
) -> Plane:
    """The plane through three points of input space, such as three examples.

    Its axes are orthonormal, so that distances and areas are those of input space. It starts at
    `a`, has `b` on the axis of $s$, and its rectangle holds all three with some space around them.

    Args:
        a: The first point, at (0, 0).
        b: The second, at $(s, 0)$ with $s > 0$.
        c: The third, with $t > 0$.
        margin: The space around the points, as a share of the larger side of their bounding box.

    Example:
        >>> plane = plane_through(*torch.tensor([[0.0, 0, 1], [2, 0, 1], [0, 2, 1]]), margin=0.5)
        >>> plane.low, plane.high
        ((-1.0, -1.0), (3.0, 3.0))

    Raises:
        ValueError: If the points lie on a line.
    """
    number("margin", margin, low=0)
    points = [floats(name, p).double() for name, p in (("a", a), ("b", b), ("c", c))]
    if not points[0].shape == points[1].shape == points[2].shape:
        raise ValueError(f"b and c must have the shape of a, {tuple(a.shape)}")
    along, other = points[1] - points[0], points[2] - points[0]
    s = along.norm()
    u = along / s
    off = other - (other * u).sum() * u
    t = off.norm()
    if not (s > 0 and t > 1e-9 * other.norm()):
        raise ValueError("a, b and c must not lie on a line: they do not span a plane")
    foot = float((other * u).sum())
    low, high = (min(0.0, foot), 0.0), (max(float(s), foot), float(t))
    space = margin * max(high[0] - low[0], high[1])
    return Plane(
        points[0].to(a), u.to(a), (off / t).to(a),
        (low[0] - space, low[1] - space), (high[0] + space, high[1] + space),
    )  # fmt: skip


def checked_rectangle(plane: Plane) -> tuple[list[float], list[float]]:
    """The centre and half-sides of the rectangle of a plane that is one."""
    origin = floats("plane.origin", plane.origin)
    for name, direction in (("plane.u", plane.u), ("plane.v", plane.v)):
        if floats(name, direction).shape != origin.shape:
            raise ValueError(
                f"{name} must have the shape of plane.origin, {tuple(origin.shape)},"
                f" got {tuple(direction.shape)}"
            )
    u, v = plane.u.double().flatten(), plane.v.double().flatten()
    if not u.norm() * v.norm() > 0 or (v - (u @ v) / (u @ u) * u).norm() <= 1e-9 * v.norm():
        raise ValueError("plane.u and plane.v must not be parallel or zero: they span no plane")
    for name, low, high in zip("st", plane.low, plane.high, strict=True):
        number(f"plane.low of {name}", low)
        number(f"plane.high of {name}", high, above=low)
    pairs = list(zip(plane.low, plane.high, strict=True))
    return [(a + b) / 2 for a, b in pairs], [(b - a) / 2 for a, b in pairs]
