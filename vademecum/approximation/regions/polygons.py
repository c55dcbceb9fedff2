r"""The linear regions of a network on a plane through input space, exactly.

On the plane $x(s, t) = o + s\, u + t\, v$ a piecewise-linear network divides the rectangle
$s \in [s_0, s_1]$, $t \in [t_0, t_1]$ into convex polygons, on each of which all its units keep
their pieces and the network is one affine map

$$f(x(s, t)) = a_0 + s\, a_1 + t\, a_2 .$$

A **region** is such a polygon: the intersection of the rectangle with a cell of equal activation
pattern. Two neighbouring regions may happen to have the same affine map. On the boundary between
regions, which has no area, a unit counts as on its lower piece (a ReLU as inactive).

The polygons are found by carrying them through the network, not by sampling; their corners are
exact to double precision, whatever the dtype of the model. `certify_regions` checks the answer
against the network itself (claim `activation_pattern`).
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from vademecum.approximation.piecewise import read_program
from vademecum.approximation.regions._cells import Cells
from vademecum.approximation.regions._walk import TooManyCells, walk
from vademecum.approximation.regions.planes import Plane, checked_rectangle
from vademecum.arguments import whole
from vademecum.models import Output
from vademecum.progress import ticking
from vademecum.results import one_line

__all__ = ["Regions", "linear_regions"]


class Regions(NamedTuple):
    """The linear regions of a network on a plane; all numbers are double.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 1), nn.ReLU()).double()
        >>> with torch.no_grad():
        ...     _ = model[0].weight.copy_(torch.tensor([[1.0, 0.0]])), model[0].bias.fill_(-0.5)
        >>> from vademecum.approximation.regions.planes import input_plane
        >>> found = linear_regions(model, input_plane())
        >>> found.areas.tolist(), found.maps[0].tolist()  # relu(x - 1/2) on [-1, 1]^2
        ([1.0, 3.0], [[-0.5, 1.0, 0.0]])
    """

    plane: Plane
    """Where they were looked for."""
    corners: Float[Tensor, " regions corners 2"]
    """The corners $(s, t)$ of each polygon, in order, padded by its last one."""
    sizes: Int64[Tensor, " regions"]
    """The number of corners of each polygon."""
    maps: Float[Tensor, " regions outputs 3"]
    """The map $(a_0, a_1, a_2)$ of each output on each region."""

    __repr__ = one_line

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
    model: nn.Module,
    plane: Plane,
    *,
    max_regions: int = 10**6,
    output: Output = None,
    memory: int | None = None,
    progress: bool = False,
) -> Regions:
    """The linear regions of a piecewise-linear network on a plane: exact polygons with their maps.

    Args:
        model: Any module made of affine layers (dense, convolutional, batch normalisation in
            evaluation, average pooling ...), piecewise-linear activations, max pooling or maxout,
            sums and concatenations of branches; taken in evaluation, left as it is.
        plane: Where to look, in the shape of one example.
        max_regions: The most regions to find, beyond which it is an error; a wide rectangle of a
            wide network has many millions.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        progress: Whether to show a progress bar on standard error.

    Raises:
        ValueError: If the model has a step that is not piecewise linear, which is named; if the
            plane is degenerate, the memory too small for one region, or if there are more regions
            than `max_regions`.

    References:
        Humayun, Balestriero, Balakrishnan and Baraniuk, SplineCam: exact visualization and
        characterization of deep network geometry and decision boundaries, CVPR, 2023.

    Example:
        >>> from vademecum.approximation.regions.planes import input_plane
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        >>> found = linear_regions(model, input_plane(low=(-99.0, -99.0), high=(99.0, 99.0)))
        >>> len(found.maps)  # three lines in general position
        7
    """
    centre, half = checked_rectangle(plane)
    o, u, v = (p.detach().double() for p in (plane.origin, plane.u, plane.v))
    program = read_program(model, tuple(o.shape), o, name="plane", output=output)
    columns = torch.stack([o + centre[0] * u + centre[1] * v, half[0] * u, half[1] * v])[None]
    square = torch.tensor([[[-1.0, -1], [1, -1], [1, 1], [-1, 1]]]).to(o)
    start = Cells(square, torch.tensor([4], device=o.device))
    most = whole("max_regions", max_regions, low=1)

    def collect() -> list[tuple[Cells, Tensor]]:
        found = []
        with ticking("regions", None, progress=progress) as tick:
            for block in walk(program, start, columns, memory, most):
                found.append(block)
                tick(len(block[0].sizes))
        return found

    try:
        with torch.no_grad():
            blocks = collect()
    except TooManyCells:
        raise ValueError(f"plane must hold at most max_regions = {most}; it has more") from None
    cells = Cells.joined([cells for cells, _ in blocks])
    maps = torch.cat([m for _, m in blocks]).mT  # (regions, outputs, 3)
    scale, shift = o.new_tensor(half), o.new_tensor(centre)
    slopes = maps[..., 1:] / scale
    maps = torch.cat([maps[..., :1] - (slopes @ shift)[..., None], slopes], 2)
    return Regions(plane, cells.corners * scale + shift, cells.sizes, maps)
