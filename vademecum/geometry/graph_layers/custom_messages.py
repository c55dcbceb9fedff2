r"""Message passing with functions of one's own.

$$x_i' = \phi\Big(x_i, \bigoplus_{j \to i} \psi(x_i, x_j)\Big) .$$

Messages are made in blocks of edges, each of which holds all edges into its nodes, so that at no
time there are more of them than the memory allows (but always those of one node). For gradients
they are made again, block by block.

Exact up to rounding; sums run in a fixed order. Checked by the claims `message_passing`,
`gnn_flavours` and `neighbourhood_aggregation`.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from vademecum.arguments import choice, whole
from vademecum.geometry.graphs import (
    Adjacency,
    adjacency_of,
    check_features,
    row_maxima,
    row_totals,
    rows_at,
    sources_of_part,
    targets_of_part,
)

__all__ = ["message_passing"]


def message_passing(
    x: Float[Tensor, " N d"],
    edges: Adjacency | Integer[Tensor, " 2 E"],
    *,
    message: Callable[..., Tensor],
    aggregate: str | Callable[[Tensor, Tensor], Tensor] = "sum",
    update: Callable[[Tensor, Tensor], Tensor] | None = None,
    memory: int | None = None,
) -> Tensor:
    r"""A layer of message passing with functions of one's own.

    Args:
        x: The nodes' features.
        edges: The graph.
        message: The function $\psi$, from the features of targets (B, d) and of sources (B, d),
            and for a graph with weights those (B,) too, to messages (B, m); any B edges.
        aggregate: `"sum"`, `"mean"` or `"max"`, which are 0 for a node without edges; or a function
            of messages, sorted by target, and of where each node's begin and end (nodes + 1,).
        update: The function $\phi$ of features (N, d) and aggregated messages (N, m); by default
            the latter are the result.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest. It
            limits the edges of a block, which has all edges into a node.

    Raises:
        ValueError: If `aggregate` is unknown or something does not fit the graph.

    Example:
        >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> x = torch.tensor([[1.0], [10.0], [100.0]])
        >>> message_passing(x, path, message=lambda x_i, x_j: x_j - x_i, aggregate="max")
        tensor([[  9.],
                [ 90.],
                [-90.]])
    """
    graph = adjacency_of(edges, len(x))
    check_features("x", x, graph.num_nodes, graph.device)
    if isinstance(aggregate, str):
        choice("aggregate", aggregate, ("sum", "mean", "max"))
    if memory is not None:
        whole("memory", memory, low=1)
    blocks = _blocks(graph, x, memory)
    again = len(blocks) > 1 and torch.is_grad_enabled()
    parts = []
    for first, last in blocks:
        given = (x, graph, first, last, message, aggregate)
        if again:
            parts.append(checkpoint(_aggregated, *given, use_reentrant=False))
        else:
            parts.append(_aggregated(*given))
    total = parts[0] if len(parts) == 1 else torch.cat(parts)
    return total if update is None else update(x, total)


def _blocks(graph: Adjacency, x: Tensor, memory: int | None) -> list[tuple[int, int]]:
    """Ranges of nodes whose edges fit, at four rows as wide as x an edge."""
    N = graph.num_nodes
    if memory is None or not N:
        return [(0, N)]
    most = max(1, memory // max(1, 4 * x[:1].nbytes))
    ptr = graph.edges.rows.ptr.tolist()
    blocks, first = [], 0
    for node in range(1, N + 1):
        if ptr[node] - ptr[first] > most and node - 1 > first:
            blocks.append((first, node - 1))
            first = node - 1
    return [*blocks, (first, N)]


def _aggregated(
    x: Tensor,
    graph: Adjacency,
    first: int,
    last: int,
    message: Callable[..., Tensor],
    aggregate: str | Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """The aggregated messages of nodes `first` to `last - 1`."""
    edges, whole_graph = graph.edges, last - first == graph.num_nodes
    bounds = edges.rows.ptr[[first, last]]
    start, stop = (0, edges.num_edges) if whole_graph else bounds.tolist()
    targets = targets_of_part(edges, start, stop, first, last)
    x_i = rows_at(targets, x[first:last])
    x_j = rows_at(sources_of_part(edges, start, stop), x)
    values = () if graph.values is None else (graph.values[start:stop].to(x.dtype),)
    messages = message(x_i, x_j, *values)
    if not isinstance(messages, Tensor) or messages.shape[:1] != (stop - start,):
        given = tuple(messages.shape) if isinstance(messages, Tensor) else type(messages).__name__
        raise ValueError(f"message must give a row for each of {stop - start} edges, got {given}")
    if not isinstance(aggregate, str):
        return aggregate(messages, targets.ptr)
    if aggregate == "max":
        return row_maxima(targets, messages)
    total = row_totals(targets, messages)
    if aggregate == "sum":
        return total
    counts = targets.ptr.diff().clamp(min=1).to(total.dtype)
    return total / counts.view(-1, *[1] * (total.ndim - 1))
