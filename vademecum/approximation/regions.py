r"""The linear regions of a network on a plane through input space, exactly.

On the plane $x(s, t) = o + s\, u + t\, v$ a piecewise-linear network divides the rectangle
$s \in [s_0, s_1]$, $t \in [t_0, t_1]$ into convex polygons, on each of which all its units keep
their pieces and the network is one affine map

$$f(x(s, t)) = a_0 + s\, a_1 + t\, a_2 .$$

A **region** is such a polygon: the intersection of the rectangle with a cell of equal activation
pattern. Two neighbouring regions may happen to have the same affine map. On the boundary between
regions, which has no area, a unit counts as on its lower piece (a ReLU as inactive).

The polygons are found by carrying them through the network (`vademecum.approximation.region_walk`),
not by sampling; their corners are exact to double precision, whatever the dtype of the model.
`certify_regions` checks the answer against the network itself (claim `activation_pattern`).
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from vademecum.approximation.cells import Cells
from vademecum.approximation.piecewise import take_apart
from vademecum.approximation.region_walk import walk
from vademecum.arguments import floats, number, whole

__all__ = ["Plane", "Regions", "input_plane", "linear_regions", "plane_through"]


class Plane(NamedTuple):
    r"""A rectangle of the plane $o + s\, u + t\, v$ in input space.

    Example:
        >>> Plane(torch.zeros(3), *torch.eye(3)[:2]).at(torch.tensor([0.5, 2.0]))
        tensor([0.5000, 2.0000, 0.0000])
    """

    origin: Float[Tensor, " *shape"]
    u: Float[Tensor, " *shape"]
    v: Float[Tensor, " *shape"]
    low: tuple[float, float] = (-1.0, -1.0)
    """The least $s$ and $t$."""
    high: tuple[float, float] = (1.0, 1.0)
    """The largest $s$ and $t$."""

    def at(self, st: Float[Tensor, " *batch 2"]) -> Float[Tensor, " ..."]:
        """The points of input space with coordinates $(s, t)$, in the dtype of `st`."""
        basis = torch.stack([self.u, self.v]).to(st).flatten(1)
        return (self.origin.to(st).flatten() + st @ basis).unflatten(-1, self.origin.shape or (1,))


def input_plane(
    low: tuple[float, float] = (-1.0, -1.0),
    high: tuple[float, float] = (1.0, 1.0),
    *,
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


class Regions(NamedTuple):
    """The linear regions of a network on a plane; all numbers are double.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 1), nn.ReLU()).double()
        >>> with torch.no_grad():
        ...     _ = model[0].weight.copy_(torch.tensor([[1.0, 0.0]])), model[0].bias.fill_(-0.5)
        >>> found = linear_regions(model, input_plane())
        >>> found.areas.tolist(), found.maps[0].tolist()  # relu(x - 1/2) on [-1, 1]^2
        ([1.0, 3.0], [[-0.5, 1.0, 0.0]])
    """

    plane: Plane
    corners: Float[Tensor, " regions corners 2"]
    """The corners $(s, t)$ of each polygon, in order, padded by its last one."""
    sizes: Int64[Tensor, " regions"]
    """The number of corners of each polygon."""
    maps: Float[Tensor, " regions outputs 3"]
    """The map $(a_0, a_1, a_2)$ of each output on each region."""

    @property
    def areas(self) -> Float[Tensor, " regions"]:
        """The area of each polygon in the coordinates $(s, t)$."""
        p = self.corners - self.corners[:, :1]
        q = p.roll(-1, 1)
        return (p[..., 0] * q[..., 1] - p[..., 1] * q[..., 0]).sum(1).abs() / 2

    @property
    def centres(self) -> Float[Tensor, " regions 2"]:
        """A point $(s, t)$ inside each polygon: the mean of its corners."""
        return Cells(self.corners, self.sizes).centres

    @property
    def gradient_norms(self) -> Float[Tensor, " regions"]:
        """The Frobenius norm of the network's derivative along the plane, on each region."""
        basis = torch.stack([self.plane.u, self.plane.v]).to(self.maps).flatten(1)
        factor = torch.linalg.cholesky(basis @ basis.T)
        slopes = torch.linalg.solve_triangular(factor, self.maps[..., 1:].mT, upper=False)
        return slopes.flatten(1).norm(dim=1)


def linear_regions(
    model: nn.Module, plane: Plane, *, memory: int | None = None, limit: int = 10**6
) -> Regions:
    """The linear regions of a piecewise-linear network on a plane: exact polygons with their maps.

    Args:
        model: Any module made of affine layers (dense, convolutional, batch normalisation in
            evaluation, average pooling ...), piecewise-linear activations, max pooling or maxout,
            sums and concatenations of branches; taken in evaluation, left as it is.
        plane: Where to look, in the shape of one example.
        memory: How many bytes to use for intermediate results, beside the regions themselves; by
            default as many as make it faster.
        limit: The most regions to find; a wide rectangle of a wide network has many millions.

    Raises:
        ValueError: If the model has a step that is not piecewise linear, which is named; if the
            plane is degenerate, the memory too small for one region, or if there are more regions
            than the limit.

    References:
        Humayun, Balestriero, Balakrishnan and Baraniuk, SplineCam: exact visualization and
        characterization of deep network geometry and decision boundaries, CVPR, 2023.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        >>> found = linear_regions(model, input_plane((-99.0, -99.0), (99.0, 99.0)))
        >>> len(found.maps)  # three lines in general position
        7
    """
    centre, half = _checked(plane)
    whole("limit", limit, low=1)
    o, u, v = (p.detach().double() for p in (plane.origin, plane.u, plane.v))
    program = take_apart(model, tuple(o.shape), o)
    columns = torch.stack([o + centre[0] * u + centre[1] * v, half[0] * u, half[1] * v])[None]
    square = torch.tensor([[[-1.0, -1], [1, -1], [1, 1], [-1, 1]]]).to(o)
    start = Cells(square, torch.tensor([4], device=o.device))
    blocks, count = [], 0
    with torch.no_grad():
        for block in walk(program, start, columns, memory):
            blocks.append(block)
            count += len(block[0].sizes)
            if count > limit:
                raise ValueError(f"plane must hold at most limit = {limit} regions; it has more")
    cells = Cells.joined([cells for cells, _ in blocks])
    maps = torch.cat([m for _, m in blocks]).mT  # (regions, outputs, 3)
    scale, shift = o.new_tensor(half), o.new_tensor(centre)
    slopes = maps[..., 1:] / scale
    maps = torch.cat([maps[..., :1] - (slopes @ shift)[..., None], slopes], 2)
    return Regions(plane, cells.corners * scale + shift, cells.sizes, maps)


def _checked(plane: Plane) -> tuple[list[float], list[float]]:
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
