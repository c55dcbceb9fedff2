r"""Adjacency matrices, normalised: $\bar A = \tilde D^{-1/2} \tilde A \tilde D^{-1/2}$.

With $\tilde A = A + I$ and its row sums $\tilde d$ on the diagonal of $\tilde D$, entries are
$\bar a_{ij} = \tilde a_{ij} / \sqrt{\tilde d_i \tilde d_j}$, and 0 where a degree is 0. A self-loop
that is there is not added again.

Exact up to rounding. Checked by the claim `gcn_normalisation`.
"""

from functools import partial

import torch
from jaxtyping import Integer
from torch import Tensor

from vademecum.geometry.graphs.adjacencies import Adjacency, adjacency_of

__all__ = ["gcn_norm", "insist_on_symmetry", "inverse_roots"]


def gcn_norm(
    edges: Adjacency | Integer[Tensor, " 2 E"],
    num_nodes: int | None = None,
    *,
    weight: Tensor | None = None,
    add_self_loops: bool = True,
    improved: bool = False,
    directed: bool = False,
    dtype: torch.dtype | None = None,
) -> Adjacency:
    r"""The symmetrically normalised adjacency matrix of a graph, with self-loops.

    For a prepared `Adjacency` it is computed once.

    Args:
        edges: The graph.
        num_nodes: How many nodes there are; by default those that occur.
        weight: The edges' weights, for an `edge_index`.
        add_self_loops: Whether nodes without a self-loop get one.
        improved: Whether new self-loops weigh 2 instead of 1.
        directed: Whether the graph may be directed; degrees are then those of incoming edges.
        dtype: Of the result; by default that of the weights.

    Raises:
        ValueError: If the matrix is not symmetric without `directed`, or a degree is negative.

    References:
        Kipf and Welling, Semi-supervised classification with graph convolutional networks, ICLR,
        2017.

    Example:
        >>> pair = gcn_norm(torch.tensor([[0, 1], [1, 0]]), 3)
        >>> pair.dense()
        tensor([[0.5000, 0.5000, 0.0000],
                [0.5000, 0.5000, 0.0000],
                [0.0000, 0.0000, 1.0000]])
    """
    graph = adjacency_of(edges, num_nodes, weight=weight)
    dtype = graph.dtype if dtype is None else dtype
    make = partial(_normalised, graph, add_self_loops, improved, directed, dtype)
    return graph.kept(("gcn_norm", add_self_loops, improved, directed, dtype), make)


def _normalised(
    graph: Adjacency, add_self_loops: bool, improved: bool, directed: bool, dtype: torch.dtype
) -> Adjacency:
    if add_self_loops:
        graph = graph.with_self_loops(2.0 if improved else 1.0)
    if not directed:
        insist_on_symmetry(graph)
    fine = torch.promote_types(dtype, torch.float32)  # float16 holds no degree above 65504
    scale = inverse_roots(graph.in_degrees(fine))
    edges = graph.edges
    values = scale.index_select(0, edges.targets) * scale.index_select(0, edges.sources)
    if graph.values is not None:
        values = values * graph.values.to(fine)
    return graph.reweighted(values.to(dtype))


def insist_on_symmetry(graph: Adjacency) -> None:
    """Refuse a directed graph, and name an edge without its mirror image."""
    if graph.one_way_edge is None:
        return
    source, target = graph.one_way_edge
    raise ValueError(
        "edges must be undirected unless directed=True,"
        f" got {source} -> {target} without its mirror image of the same weight"
    )


def inverse_roots(degrees: Tensor) -> Tensor:
    """The numbers $d^{-1/2}$, and 0 for nodes without edges."""
    if bool((degrees < 0).any()):
        node = int((degrees < 0).nonzero()[0])
        given = f"{degrees[node].item():g} at node {node}"
        raise ValueError(f"weight must give no node a negative degree, got {given}")
    some = degrees > 0
    return degrees.where(some, 1).rsqrt() * some
