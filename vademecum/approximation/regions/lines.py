r"""The breakpoints of a network on a segment of input space, exactly.

On the segment $x(r) = a + r (b - a)$, $0 \le r \le 1$, a piecewise-linear network is affine between
finitely many breakpoints $0 < r_1 < \dots < r_k < 1$, where some unit changes its piece:

$$f(x(r)) = c_i + r\, g_i \qquad \text{for } r_i \le r \le r_{i+1}.$$

They are found by carrying the intervals through the network, in double precision, whatever the
dtype of the model. At a breakpoint the activation changes, and almost always the slope; where it
does not, the two neighbouring maps are equal.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.approximation.piecewise import read_program
from vademecum.approximation.regions._cells import Cells
from vademecum.approximation.regions._walk import TooManyCells, walk
from vademecum.arguments import floats, whole
from vademecum.models import Output
from vademecum.results import one_line

__all__ = ["Segments", "regions_along"]


class Segments(NamedTuple):
    """The pieces of a network on a segment from a to b, in order; all numbers are double.

    Example:
        >>> absolute = nn.LeakyReLU(-1.0)
        >>> regions_along(absolute, torch.tensor([-1.0]), torch.tensor([3.0])).breaks
        tensor([0.2500], dtype=torch.float64)
    """

    breaks: Float[Tensor, " breaks"]
    """The breakpoints $r$, increasing, strictly between 0 and 1."""
    maps: Float[Tensor, " pieces outputs 2"]
    """The value at $r = 0$ that each piece extends to, and its slope: $(c, g)$."""

    __repr__ = one_line


def regions_along(
    model: nn.Module,
    a: Float[Tensor, " *shape"],
    b: Float[Tensor, " *shape"],
    *,
    max_regions: int | None = None,
    output: Output = None,
    memory: int | None = None,
) -> Segments:
    """The linear regions that a segment of input space crosses: breakpoints and affine maps.

    Args:
        model: Any piecewise-linear module (see `linear_regions`), taken in evaluation.
        a: Where the segment starts, in the shape of one example.
        b: Where it ends.
        max_regions: The most regions to find, beyond which it is an error; all by default.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.

    Raises:
        ValueError: If the model has a step that is not piecewise linear, which is named; if the
            ends are equal, the memory too small for one piece, or if there are more pieces than
            `max_regions`.

    Example:
        >>> tent = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1))
        >>> with torch.no_grad():  # 2 relu(x) - 4 relu(x - 1/2)
        ...     for p, v in zip(tent.parameters(), ([[1.0], [1]], [0.0, -0.5], [[2.0, -4]], [0.0])):
        ...         _ = p.copy_(torch.tensor(v))
        >>> found = regions_along(nn.Sequential(tent, tent), torch.zeros(1), torch.ones(1))
        >>> found.breaks.tolist(), found.maps[:, 0, 1].tolist()
        ([0.25, 0.5, 0.75], [4.0, -4.0, 4.0, -4.0])
    """
    start, end = (floats(name, p).detach().double() for name, p in (("a", a), ("b", b)))
    if start.shape != end.shape or start.device != end.device:
        raise ValueError(f"b must have the shape of a, {tuple(a.shape)}, got {tuple(b.shape)}")
    if torch.equal(start, end):
        raise ValueError("a and b must differ: they are the ends of a segment")
    columns = torch.stack([(start + end) / 2, (end - start) / 2])[None]
    segment = Cells(
        torch.tensor([[[-1.0], [1.0]]]).to(start), torch.tensor([2], device=start.device)
    )
    most = None if max_regions is None else whole("max_regions", max_regions, low=1)
    with torch.no_grad():
        program = read_program(model, tuple(start.shape), start, name="a", output=output)
        try:
            blocks = list(walk(program, segment, columns, memory, most))
        except TooManyCells:
            words = f"the segment must hold at most max_regions = {most}; it has more"
            raise ValueError(words) from None
    left = torch.cat([cells.corners[:, :, 0].amin(1) for cells, _ in blocks])
    maps = torch.cat([m for _, m in blocks]).mT
    order = left.argsort()
    slope = 2 * maps[order, :, 1:]
    return Segments(
        (left[order][1:] + 1) / 2, torch.cat([maps[order, :, :1] - slope / 2, slope], 2)
    )
