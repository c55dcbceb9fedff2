r"""Rows of features at edges, and their sums at nodes: $z_e = x_{i(e)}$ and $x_i = \sum_e z_e$.

Here something as large as edges times features exists, and should only in blocks. Each map is the
derivative of the other; sums run in a fixed order.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.geometry.graphs._sorted_edges import SortedEdges, starts_of_rows

__all__ = [
    "Ends", "row_maxima", "row_totals", "rows_at", "sources_of_part", "targets_of_part",
]  # fmt: skip


class Ends(NamedTuple):
    """The node of each edge, in a part of the edges."""

    node: Tensor
    """The node, (B,)."""
    order: Tensor
    """The edges, sorted by node."""
    ptr: Tensor
    """Where each node's edges begin in that order, and where the last ones end."""


def targets_of_part(edges: SortedEdges, start: int, stop: int, first: int, last: int) -> Ends:
    """The targets, counted from node `first`, of edges `start` to `stop - 1`."""
    node = edges.targets[start:stop] - first
    ptr = edges.rows.ptr[first : last + 1].clamp(start, stop) - start
    return Ends(node, torch.arange(stop - start, dtype=ptr.dtype, device=ptr.device), ptr)


def sources_of_part(edges: SortedEdges, start: int, stop: int) -> Ends:
    """The sources of edges `start` to `stop - 1`."""
    if stop - start == edges.num_edges:
        rows, order = edges.transposed
        return Ends(edges.sources, order.to(rows.ptr.dtype), rows.ptr)
    node = edges.sources[start:stop]
    ordered, order = node.sort(stable=True)
    ptr = starts_of_rows(ordered, edges.num_nodes)
    return Ends(node, order.to(ptr.dtype), ptr)


def rows_at(ends: Ends, x: Tensor) -> Tensor:
    """The rows of x at the edges' nodes."""
    return _Rows.apply(x, ends)  # pyright: ignore[reportReturnType]


def row_totals(ends: Ends, z: Tensor) -> Tensor:
    """The sums of the edges' rows at each node."""
    return _Totals.apply(z, ends)  # pyright: ignore[reportReturnType]


def row_maxima(ends: Ends, z: Tensor) -> Tensor:
    """The maxima of the edges' rows at each node, 0 without edges; ties share the derivative."""
    if not z.numel():
        return z.new_zeros(len(ends.ptr) - 1, *z.shape[1:])
    top = torch.segment_reduce(z.detach().flatten(1), "max", offsets=ends.ptr, axis=0)
    reached = (z.detach().flatten(1) == top.index_select(0, ends.node)).to(z.dtype).view(z.shape)
    return row_totals(ends, z * reached / rows_at(ends, row_totals(ends, reached)))


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(x, ends):
        return x.index_select(0, ends.node)

    @staticmethod
    def setup_context(ctx: Any, inputs, output):
        ctx.ends = inputs[1]

    @staticmethod
    def backward(ctx: Any, *grad_outputs):
        return row_totals(ctx.ends, *grad_outputs), None

    @staticmethod
    def jvp(ctx: Any, *grad_inputs):
        return rows_at(ctx.ends, grad_inputs[0])

    @staticmethod
    def vmap(info, in_dims, *args):
        x, ends = args
        return rows_at(ends, x.movedim(in_dims[0], 1)), 1


class _Totals(torch.autograd.Function):
    @staticmethod
    def forward(z, ends):
        n = len(ends.ptr) - 1
        if not z.numel():
            return z.new_zeros(n, *z.shape[1:])
        flat = z.reshape(len(z), -1)
        total = F.embedding_bag(ends.order, flat, ends.ptr, mode="sum", include_last_offset=True)
        return total.view(n, *z.shape[1:])

    @staticmethod
    def setup_context(ctx: Any, inputs, output):
        ctx.ends = inputs[1]

    @staticmethod
    def backward(ctx: Any, *grad_outputs):
        return rows_at(ctx.ends, *grad_outputs), None

    @staticmethod
    def jvp(ctx: Any, *grad_inputs):
        return row_totals(ctx.ends, grad_inputs[0])

    @staticmethod
    def vmap(info, in_dims, *args):
        z, ends = args
        return row_totals(ends, z.movedim(in_dims[0], 1)), 1
