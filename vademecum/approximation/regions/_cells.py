r"""Many convex cells at once, cut by lines: the geometry of linear regions.

A cell is a convex polygon in the plane, or an interval on a line, given by its corners in order. An
affine function $v(s) = a_0 + \langle a, s \rangle$ takes its extremes over a cell at corners, so
their signs decide whether the line $v = 0$ cuts the cell. The cut runs through the points

$$s = p + \frac{v(p)}{v(p) - v(q)} (q - p)$$

on the edges $pq$ at whose ends $v$ has different signs. Cells are kept in one tensor, short ones
padded by their last corner, which changes neither an extreme nor an area.

All of this is exact but for rounding: a cell is not cut where $|v|$ is at most a tolerance
$\tau$ at all corners of one side.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

__all__ = ["Cells", "cut", "extremes", "split_by_lines", "split_by_maxima"]


class Cells(NamedTuple):
    """Corners of convex cells, in order, padded by the last; and how many each cell has."""

    corners: Float[Tensor, " cells corners dim"]
    sizes: Int64[Tensor, " cells"]

    @property
    def centres(self) -> Float[Tensor, " cells dim"]:
        """The mean of each cell's corners."""
        surplus = (self.corners.shape[1] - self.sizes)[:, None] * self.corners[:, -1]
        return (self.corners.sum(1) - surplus) / self.sizes[:, None]

    def take(self, index: Tensor) -> "Cells":
        """Some of the cells."""
        return Cells(self.corners[index], self.sizes[index])

    @staticmethod
    def joined(parts: "list[Cells]") -> "Cells":
        """All cells of all parts."""
        width = max(part.corners.shape[1] for part in parts)
        corners = torch.cat([_widen(part.corners, width) for part in parts])
        return Cells(corners, torch.cat([part.sizes for part in parts]))

    def replaced(self, index: Tensor, others: "Cells") -> "Cells":
        """These cells, those at an index replaced by others."""
        width = max(self.corners.shape[1], others.corners.shape[1])
        corners = _widen(self.corners, width).index_copy(0, index, _widen(others.corners, width))
        return Cells(corners, self.sizes.index_copy(0, index, others.sizes))


def _widen(corners: Tensor, width: int) -> Tensor:
    missing = width - corners.shape[1]
    if missing == 0:
        return corners
    return torch.cat([corners, corners[:, -1:].expand(-1, missing, -1)], 1)


def evaluate(coefficients: Tensor, corners: Tensor) -> Tensor:
    """Affine functions, `(cells, 1 + dim)`, at the corners of their cells."""
    value = coefficients[:, :1]
    for slope, corner in zip(coefficients[:, 1:, None].unbind(1), corners.unbind(2), strict=True):
        value = torch.addcmul(value, slope, corner)
    return value


def extremes(lines: Tensor, corners: Tensor) -> tuple[Tensor, Tensor]:
    """Least and largest values of functions, `(cells, 1 + dim, units)`, over their cells."""
    low = high = torch.empty(0)
    for i in range(corners.shape[1]):
        value = torch.baddbmm(lines[:, :1], corners[:, i : i + 1], lines[:, 1:])[:, 0]
        low, high = (value, value) if i == 0 else (torch.minimum(low, value),
                                                   torch.maximum(high, value))  # fmt: skip
    return low, high


def cut(cells: Cells, v: Float[Tensor, " cells corners"]) -> tuple[Cells, Cells]:
    """The parts of cells where $v > 0$ and where $v < 0$; each cell must have both."""
    width, dim = cells.corners.shape[1:]
    place = torch.arange(width, device=v.device)
    real = place < cells.sizes[:, None]
    following = torch.where(place + 1 < cells.sizes[:, None], place + 1, 0)
    w = v.gather(1, following)
    q = cells.corners.gather(1, following[..., None].expand(-1, -1, dim))
    crossing = real & (v.sign() * w.sign() < 0)
    if dim == 1:  # an interval has one edge, from its first corner to its second
        crossing &= place + 1 < cells.sizes[:, None]
    share = torch.where(crossing, v / (v - w), 0.0)[..., None]
    points = torch.stack([cells.corners, cells.corners + share * (q - cells.corners)], 2).flatten(
        1, 2
    )
    keep = torch.stack([v >= 0, v <= 0]) & real
    keep = torch.stack([keep, crossing.expand(2, -1, -1)], 3).flatten(2)
    sizes = keep.sum(2)
    order = torch.argsort(keep.byte(), dim=2, descending=True, stable=True)
    last = torch.minimum(torch.arange(int(sizes.max()), device=v.device), sizes[..., None] - 1)
    chosen = order.gather(2, last)[..., None].expand(-1, -1, -1, dim)
    above, below = points.expand(2, -1, -1, -1).gather(2, chosen)
    return Cells(above, sizes[0]), Cells(below, sizes[1])


def split_by_lines(
    cells: Cells,
    lines: Float[Tensor, " cells columns groups units"],
    rounding: float,
) -> tuple[Cells, Int64[Tensor, " parts"]]:
    r"""Cut each cell by the zero sets of its affine functions.

    Args:
        cells: The cells.
        lines: Coefficients $(a_0, a)$ of each cell's functions, in groups of like size.
        rounding: The tolerance $\tau$, relative to the largest value of a cell's group.

    Returns:
        The parts, and for each the index of the cell that it is a part of.
    """
    ends = extremes(lines.flatten(2), cells.corners)
    low, high = (end.unflatten(1, lines.shape[2:]) for end in ends)
    tau = rounding * torch.maximum(high, -low).amax(2)
    crossed = (low < -tau[:, :, None]) & (high > tau[:, :, None])
    cell, group, unit = crossed.nonzero(as_tuple=True)
    line, tol = lines[cell, :, group, unit], tau[cell, group]
    root = torch.arange(len(tau), device=tau.device)
    fresh = torch.ones_like(cell, dtype=torch.bool)
    while True:  # cut every cell that lines cross, by one of them
        v = evaluate(line, cells.corners[cell])
        crossing = (fresh & (v.amin(1) < -tol) & (v.amax(1) > tol)).nonzero()[:, 0]
        if len(crossing) == 0:
            return cells, root
        cell, line, tol, v = cell[crossing], line[crossing], tol[crossing], v[crossing]
        first = _middle(cell, v, len(root))
        active = (first < len(cell)).nonzero()[:, 0]
        was, at_corners = root[active], v[first[active]]
        at_corners = torch.where(at_corners.abs() <= tol[first[active], None], 0.0, at_corners)
        above, below = cut(cells.take(active), at_corners)
        cells = Cells.joined([cells.replaced(active, above), below])
        fresh = (first[cell] != torch.arange(len(cell), device=cell.device)).repeat(2)
        first[active] = torch.arange(len(root), len(root) + len(was), device=was.device)
        cell, line, tol = torch.cat([cell, first[cell]]), line.repeat(2, 1), tol.repeat(2)
        root = torch.cat([root, was])


def _middle(cell: Tensor, v: Tensor, n: int) -> Tensor:
    """For each of n cells, the place of that of its lines which halves it best.

    That is the one whose function has the most equal ends; so few rounds are needed. Cells that no
    line crosses have a place beyond all.
    """
    low, high = v.amin(1), v.amax(1)
    uneven = (low + high).abs() / (high - low)
    least = uneven.new_full((n,), torch.inf).scatter_reduce(0, cell, uneven, "amin")
    place = torch.arange(len(cell), device=cell.device)
    place = torch.where(uneven <= least[cell], place, len(cell))
    return cell.new_full((n,), len(cell)).scatter_reduce(0, cell, place, "amin")


def split_by_maxima(
    cells: Cells,
    candidates: Float[Tensor, " cells columns units pieces"],
    rounding: float,
) -> tuple[Cells, Int64[Tensor, " parts"]]:
    """Divide each cell into the parts on which each unit's largest candidate is the same one.

    Args:
        cells: The cells.
        candidates: Coefficients of the functions that each unit takes the largest of.
        rounding: The tolerance, relative to the largest value among a cell's candidates.

    Returns:
        The parts, and for each the index of the cell that it is a part of.
    """
    open_, tau = _undecided(cells, candidates, rounding)
    owner, unit = open_.nonzero(as_tuple=True)
    coefficients, counts = candidates[owner, :, unit], owner.bincount(minlength=len(tau))
    start = counts.cumsum(0) - counts
    root = torch.arange(len(tau), device=tau.device)
    for turn in range(int(counts.max())):
        waiting = counts[root] > turn
        active = waiting.nonzero()[:, 0]
        c, part = coefficients[start[root[active]] + turn], cells.take(active)
        parts, roots = [cells.take(~waiting)], [root[~waiting]]
        first = _first_of_equals(part, c, tau[root[active]])
        for i in range(c.shape[2]):
            piece, kept = _where_largest(part, c, i, tau[root[active]], first)
            parts.append(piece)
            roots.append(root[active[kept]])
        cells, root = Cells.joined(parts), torch.cat(roots)
    return cells, root


def _undecided(cells: Cells, candidates: Tensor, rounding: float) -> tuple[Tensor, Tensor]:
    """The units of each cell with no candidate that is largest at all corners; the tolerance."""
    size = torch.zeros(len(cells.sizes), dtype=candidates.dtype, device=candidates.device)
    behind = torch.zeros_like(candidates[:, 0])
    for i in range(cells.corners.shape[1]):
        slope = torch.einsum("cd,cdup->cup", cells.corners[:, i], candidates[:, 1:])
        value = candidates[:, 0] + slope
        behind = torch.maximum(behind, value.amax(-1, keepdim=True) - value)
        size = torch.maximum(size, value.abs().amax((1, 2)))
    tau = rounding * size
    return behind.amin(-1) > tau[:, None], tau


def _first_of_equals(cells: Cells, c: Tensor, tau: Tensor) -> Tensor:
    """Whether each candidate of each cell is the first of those that are equal to it.

    Equal are candidates that no corner tells apart, and those that others connect: otherwise of
    three, each equal to the next, the last could lose to the second and that to the first, which is
    below the last.
    """
    pieces, value = c.shape[2], torch.baddbmm(c[:, :1], cells.corners, c[:, 1:])
    apart = ((value - value[..., i : i + 1]).abs().amax(1) for i in range(pieces))
    equal = torch.stack([each <= tau[:, None] for each in apart], 1)  # (cells, pieces, pieces)
    for _ in range((pieces - 1).bit_length()):
        equal = equal.float() @ equal.float() > 0
    return ~equal.tril(-1).any(-1)


def _where_largest(
    cells: Cells, c: Tensor, i: int, tau: Tensor, first: Tensor
) -> tuple[Cells, Tensor]:
    """The parts of cells where candidate `i` is the first of the largest, and whose they are."""
    kept = first[:, i].nonzero()[:, 0]
    cells = cells.take(kept)
    for j in range(c.shape[2]):
        if j == i or len(kept) == 0:
            continue
        v = evaluate((c[..., i] - c[..., j])[kept], cells.corners)
        v = torch.where(v.abs() <= tau[kept, None], 0.0, v)
        v = torch.where(first[kept, j, None], v, 1.0)  # the first speaks for those equal to it
        stay = v.amax(1) > 0
        kept, cells, v = kept[stay], cells.take(stay), v[stay]
        both = (v.amin(1) < 0).nonzero()[:, 0]
        if len(both):
            above, _ = cut(cells.take(both), v[both])
            cells = cells.replaced(both, above)
    return cells, kept
