r"""Numbers of edges from numbers of nodes, and back: $z_e = v_i$ and $v_i = \sum_e z_e$.

For $e: j \to i$ the node is the target $i$, or the source $j$. Each map is the derivative of the
other. All arrays are (rows, N) and (rows, E), such as one row a head; edges stand in the order of
rows, and each node's sum runs from its first edge to its last.
"""

from typing import Any

import torch
from torch import Tensor

from vademecum.geometry.graphs._sorted_edges import SortedEdges

__all__ = ["at_edges", "edge_maxima", "edge_softmax", "edge_totals"]


def at_edges(edges: SortedEdges, v: Tensor, *, source: bool = False) -> Tensor:
    """What each edge's target, or its source, has."""
    return _AtEdges.apply(v, edges, source)  # pyright: ignore[reportReturnType]


def edge_totals(edges: SortedEdges, z: Tensor, *, source: bool = False) -> Tensor:
    """What the edges into each node, or those out of it, have in sum."""
    return _Totals.apply(z, edges, source)  # pyright: ignore[reportReturnType]


def edge_softmax(edges: SortedEdges, by_source: Tensor, by_target: Tensor, slope: float) -> Tensor:
    r"""The softmax over the edges into a node of $\mathrm{LeakyReLU}(s_j + t_i)$."""
    return _Softmax.apply(by_source, by_target, edges, slope)  # pyright: ignore[reportReturnType]


def edge_maxima(edges: SortedEdges, z: Tensor) -> Tensor:
    """The largest number among the edges into each node; not to be asked for without any."""
    return _reduced(edges, z, "max")


def _reduced(edges: SortedEdges, z: Tensor, how: str, *, source: bool = False) -> Tensor:
    if not z.numel():
        return z.new_zeros(len(z), edges.num_nodes)
    ptr = edges.copies(len(z), transpose=source).ptr
    return torch.segment_reduce(z.flatten(), how, offsets=ptr).view(len(z), -1)


class _AtEdges(torch.autograd.Function):
    @staticmethod
    def forward(v, edges, source):
        return v.index_select(1, edges.sources if source else edges.targets)

    @staticmethod
    def setup_context(ctx: Any, inputs, output):
        _, ctx.edges, ctx.source = inputs

    @staticmethod
    def backward(ctx: Any, *grad_outputs):
        return edge_totals(ctx.edges, *grad_outputs, source=ctx.source), None, None

    @staticmethod
    def jvp(ctx: Any, *grad_inputs):
        return at_edges(ctx.edges, grad_inputs[0], source=ctx.source)

    @staticmethod
    def vmap(info, in_dims, *args):
        v, edges, source = args
        v = v.movedim(in_dims[0], 0)
        return at_edges(edges, v.flatten(0, 1), source=source).unflatten(0, v.shape[:2]), 0


class _Totals(torch.autograd.Function):
    @staticmethod
    def forward(z, edges, source):
        z = z.index_select(1, edges.transposed[1]) if source else z
        return _reduced(edges, z, "sum", source=source)

    @staticmethod
    def setup_context(ctx: Any, inputs, output):
        _, ctx.edges, ctx.source = inputs

    @staticmethod
    def backward(ctx: Any, *grad_outputs):
        return at_edges(ctx.edges, *grad_outputs, source=ctx.source), None, None

    @staticmethod
    def jvp(ctx: Any, *grad_inputs):
        return edge_totals(ctx.edges, grad_inputs[0], source=ctx.source)

    @staticmethod
    def vmap(info, in_dims, *args):
        z, edges, source = args
        z = z.movedim(in_dims[0], 0)
        return edge_totals(edges, z.flatten(0, 1), source=source).unflatten(0, z.shape[:2]), 0


class _Softmax(torch.autograd.Function):
    r"""A cotangent $g$ of $\alpha$ is $\alpha (g - \sum \alpha g)$ before the softmax."""

    @staticmethod
    def forward(s, t, edges, slope):
        z = s.index_select(1, edges.sources).add_(t.index_select(1, edges.targets))
        torch.nn.functional.leaky_relu_(z, slope)
        z.sub_(edge_maxima(edges, z).index_select(1, edges.targets)).exp_()
        totals = _Totals.forward(z, edges, False)
        return z.div_(totals.index_select(1, edges.targets))

    @staticmethod
    def setup_context(ctx: Any, inputs, output):
        s, t, ctx.edges, ctx.slope = inputs
        ctx.save_for_backward(s, t, output)
        ctx.save_for_forward(s, t, output)

    @staticmethod
    def _slopes(ctx: Any, s: Tensor, t: Tensor) -> Tensor:
        s, t, edges = s.detach(), t.detach(), ctx.edges
        z = s.index_select(1, edges.sources).add_(t.index_select(1, edges.targets))
        return z.gt_(0).mul_(1 - ctx.slope).add_(ctx.slope)

    @staticmethod
    def backward(ctx: Any, *grad_outputs):
        s, t, alpha = ctx.saved_tensors
        edges, by_alpha = ctx.edges, alpha * grad_outputs[0]
        mean = at_edges(edges, edge_totals(edges, by_alpha))
        by_z = torch.addcmul(by_alpha, alpha, mean, value=-1) * _Softmax._slopes(ctx, s, t)
        return edge_totals(edges, by_z, source=True), edge_totals(edges, by_z), None, None

    @staticmethod
    def jvp(ctx: Any, *grad_inputs):
        ds, dt, *_ = grad_inputs
        s, t, alpha = ctx.saved_tensors
        ends = [at_edges(ctx.edges, ds, source=True)] if ds is not None else []
        ends += [at_edges(ctx.edges, dt)] if dt is not None else []
        moved = alpha * _Softmax._slopes(ctx, s, t) * torch.stack(ends).sum(0)
        return moved - alpha * at_edges(ctx.edges, edge_totals(ctx.edges, moved))

    @staticmethod
    def vmap(info, in_dims, *args):
        s, t, edges, slope = args
        both = (s, t)
        s, t = (
            v.expand(info.batch_size, *v.shape) if dim is None else v.movedim(dim, 0)
            for v, dim in zip(both, in_dims, strict=False)
        )
        alpha = edge_softmax(edges, s.flatten(0, 1), t.flatten(0, 1), slope)
        return alpha.unflatten(0, s.shape[:2]), 0
