r"""Scores $s_e = b^\top \mathrm{LeakyReLU}(l_j + r_i)$ of edges $e: j \to i$, in blocks of edges.

With $m_e$ the slopes of the LeakyReLU at $l_j + r_i$ (1 or the negative slope, entry by entry) the
score is $S(l, r, b)_e = b^\top (m_e \odot (l_j + r_i))$, bilinear where $m$ is constant. With

$$T(G, b) = \Big(\sum_{e: j \to \cdot} G_e\, m_e \odot b,\
\sum_{e: \cdot \to i} G_e\, m_e \odot b\Big), \qquad
R(G, l, r) = \sum_e G_e\, m_e \odot (l_j + r_i) ,$$

the derivatives of S are T and R, those of T are S and R, and those of R are S and T: the three are
closed under differentiation, and $m$ is computed again, block by block, wherever it is needed.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.geometry.graphs import SortedEdges

__all__ = ["block_scores"]

_BYTES = {"cpu": 2**20, "cuda": 2**28}  # of a block's features; the caches' size, and not tuned


class _Given(NamedTuple):
    """Where slopes come from."""

    edges: SortedEdges
    left: Tensor
    right: Tensor
    slope: float


def block_scores(
    edges: SortedEdges, left: Tensor, right: Tensor, b: Tensor, slope: float
) -> Tensor:
    """The scores, (heads, E), of features (N, heads, d) and a vector (heads, d)."""
    given = _Given(edges, left.detach(), right.detach(), slope)
    return _Scores.apply(left, right, b, given)  # pyright: ignore[reportReturnType]


class _Scores(torch.autograd.Function):
    """The map S."""

    @staticmethod
    def forward(ctx: Any, left, right, b, given):
        ctx.given = given
        ctx.save_for_backward(left, right, b)
        s = left.new_empty(given.edges.num_edges, left.shape[1])
        by_head = torch.block_diag(*b[:, :, None])
        for block in _blocks(given, by_source=False):
            torch.mm(block.bent(left, right).flatten(1), by_head, out=s[block.part])
        return s.t().contiguous()

    @staticmethod
    def backward(ctx: Any, *grad_outputs):
        left, right, b = ctx.saved_tensors
        (G,) = grad_outputs
        by_left, by_right = _Ends.apply(G, b, ctx.given)  # pyright: ignore
        return by_left, by_right, _Vector.apply(G, left, right, ctx.given), None


class _Ends(torch.autograd.Function):
    """The map T."""

    @staticmethod
    def forward(ctx: Any, G, b, given):
        ctx.given = given
        ctx.save_for_backward(G, b)
        sides = []
        for by_source in (True, False):
            order = given.edges.transposed[1] if by_source else None
            H = G if order is None else G.index_select(1, order)
            total = torch.zeros_like(given.left, memory_format=torch.contiguous_format)
            for block in _blocks(given, by_source=by_source):
                pushed = block.bend(b * H[:, block.part].t()[..., None])
                total[block.rows] += block.totals(pushed.flatten(1)).view(-1, *b.shape)
            sides.append(total)
        return tuple(sides)

    @staticmethod
    def backward(ctx: Any, *grad_outputs):
        G, b = ctx.saved_tensors
        by_G = _Scores.apply(*grad_outputs, b, ctx.given)
        return by_G, _Vector.apply(G, *grad_outputs, ctx.given), None


class _Vector(torch.autograd.Function):
    """The map R."""

    @staticmethod
    def forward(ctx: Any, G, left, right, given):
        ctx.given = given
        ctx.save_for_backward(G, left, right)
        heads, d = left.shape[1:]
        total = left.new_zeros(heads, heads * d)
        for block in _blocks(given, by_source=False):
            total.addmm_(G[:, block.part], block.bent(left, right).flatten(1))
        return total.view(heads, heads, d).diagonal().t().contiguous()  # a head's own vectors

    @staticmethod
    def backward(ctx: Any, *grad_outputs):
        G, left, right = ctx.saved_tensors
        by_G = _Scores.apply(left, right, *grad_outputs, ctx.given)
        by_left, by_right = _Ends.apply(G, *grad_outputs, ctx.given)  # pyright: ignore
        return by_G, by_left, by_right, None


class _Block(NamedTuple):
    """Some edges that follow one another."""

    given: _Given
    part: slice
    source: Tensor
    target: Tensor
    rows: slice
    ptr: Tensor

    def sums(self, left: Tensor, right: Tensor) -> Tensor:
        """The features of both ends, added."""
        return left.index_select(0, self.source).add_(right.index_select(0, self.target))

    def bend(self, y: Tensor) -> Tensor:
        """Numbers times the slopes."""
        slope, sums = self.given.slope, self.sums(self.given.left, self.given.right)
        return y * sums.gt_(0).mul_(1 - slope).add_(slope)  # `where` takes ten times as long

    def bent(self, left: Tensor, right: Tensor) -> Tensor:
        """The features of both ends, added, times the slopes."""
        y = self.sums(left, right)
        if left.data_ptr() == self.given.left.data_ptr() and left.shape == self.given.left.shape:
            return F.leaky_relu_(y, self.given.slope)  # whose slopes these are
        return self.bend(y)

    def totals(self, pushed: Tensor) -> Tensor:
        """The sums over each row's edges in this block."""
        places = torch.arange(len(pushed), dtype=self.ptr.dtype, device=pushed.device)
        return F.embedding_bag(places, pushed, self.ptr, mode="sum", include_last_offset=True)


def _blocks(given: _Given, *, by_source: bool) -> Iterator[_Block]:
    """All edges, in the order of targets or in that of sources."""
    edges, left = given.edges, given.left
    if by_source:
        rows, order = edges.transposed
        source, target = edges.sources.index_select(0, order), rows.columns
    else:
        rows, source, target = edges.rows, edges.sources, edges.targets
    row = source if by_source else target
    size = max(1, _BYTES.get(left.device.type, 2**20) // max(1, left[:1].nbytes))
    starts = range(0, edges.num_edges, size)
    stops = [min(start + size, edges.num_edges) for start in starts]
    ends = [[*starts], [stop - 1 for stop in stops]]
    firsts, lasts = row[torch.tensor(ends, dtype=torch.long, device=row.device)].tolist()
    for start, stop, first, last in zip(starts, stops, firsts, lasts, strict=True):
        part = slice(start, stop)
        j, i = source[part], target[part]
        ptr = rows.ptr[first : last + 2].clamp(start, stop) - start
        yield _Block(given, part, j, i, slice(first, last + 1), ptr)
