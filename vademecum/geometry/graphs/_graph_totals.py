"""Sums and maxima over the nodes of each graph in a batch."""

import torch
from torch import Tensor

from vademecum.geometry.graphs.adjacencies import Adjacency

__all__ = ["node_numbers", "over_graphs"]


def over_graphs(graph: Adjacency, v: Tensor, reduce: str) -> Tensor:
    """The `"sum"` or `"max"` of a number of each node, over each graph; from (N,) to (graphs,)."""
    if graph.batch is None:
        if not len(v):
            return v.new_zeros(1)
        return (v.sum() if reduce == "sum" else v.amax())[None]
    return torch.segment_reduce(v, reduce, offsets=_starts(graph))


def node_numbers(graph: Adjacency) -> Tensor:
    """The nodes' numbers 0, 1, ... within their own graph."""
    numbers = torch.arange(graph.num_nodes, device=graph.device)
    return numbers if graph.batch is None else numbers - _starts(graph)[graph.batch]


def _starts(graph: Adjacency) -> Tensor:
    assert graph.batch is not None
    sizes = torch.bincount(graph.batch, minlength=graph.num_graphs)
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
