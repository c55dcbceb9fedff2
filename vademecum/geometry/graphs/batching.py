r"""Many graphs as one: their adjacency matrices as blocks on the diagonal.

$$A = \begin{pmatrix} A_1 & & \\ & \ddots & \\ & & A_m \end{pmatrix}, \qquad
X = \begin{pmatrix} X_1 \\ \vdots \\ X_m \end{pmatrix} ,$$

so that layers treat each graph as if it were alone.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.geometry.graphs._checks import check_edges, check_features
from vademecum.geometry.graphs.adjacencies import Adjacency
from vademecum.results import one_line

__all__ = ["GraphBatch", "batch_graphs"]


class GraphBatch(NamedTuple):
    """Several graphs side by side.

    Example:
        >>> batch_graphs([torch.ones(2, 3)], [torch.tensor([[0], [1]])]).edges.num_graphs
        1
    """

    x: Tensor
    """The features of all nodes, one graph after another."""
    edges: Adjacency
    """The graph of all of them, which knows the nodes' graphs as `batch`."""

    __repr__ = one_line


def batch_graphs(
    xs: Sequence[Tensor],
    edges: Sequence[Tensor],
    *,
    weights: Sequence[Tensor] | None = None,
) -> GraphBatch:
    """Put graphs side by side, so that a layer treats all of them at once.

    Args:
        xs: The nodes' features, graph by graph; at least one node each.
        edges: The edges, graph by graph, numbered from 0 in each.
        weights: The edges' weights, graph by graph; 1 by default.

    Raises:
        ValueError: If there is no graph, lists have different lengths, or a graph is none.

    Example:
        >>> pair = torch.tensor([[0, 1], [1, 0]])
        >>> both = batch_graphs([torch.ones(2, 3), torch.ones(4, 3)], [pair, pair])
        >>> both
        GraphBatch(x=float32[6, 3], edges=Adjacency(nodes=6, edges=4, graphs=2))
        >>> both.edges.edge_index.tolist(), both.edges.batch.tolist()
        ([[0, 1, 2, 3], [1, 0, 3, 2]], [0, 0, 1, 1, 1, 1])
    """
    if not len(xs):
        raise ValueError("xs must not be empty")
    for name, others in (("edges", edges), ("weights", weights)):
        if others is not None and len(others) != len(xs):
            wanted = f"{len(xs)} entries, one for each graph"
            raise ValueError(f"{name} must have {wanted}, got {len(others)}")
    sizes = [len(x) if isinstance(x, Tensor) and x.ndim else 0 for x in xs]
    for i, (x, e) in enumerate(zip(xs, edges, strict=True)):
        if not sizes[i]:
            raise ValueError(f"xs[{i}] must have a row for each node, at least one, got {x!r}")
        try:
            check_edges(e, sizes[i])
        except ValueError as error:
            raise ValueError(f"graph {i}: {error}") from None
        check_features(f"xs[{i}]", x, sizes[i], e.device)
    device = edges[0].device
    counts = torch.tensor(sizes, device=device)
    starts = counts.cumsum(0) - counts
    many = torch.tensor([e.shape[1] for e in edges], device=device)
    joined = torch.cat([e.long() for e in edges], 1) + starts.repeat_interleave(many)
    batch = torch.arange(len(xs), device=device).repeat_interleave(counts)
    weight = None if weights is None else torch.cat(list(weights))
    return GraphBatch(
        torch.cat(list(xs)), Adjacency(joined, sum(sizes), weight=weight, batch=batch)
    )
