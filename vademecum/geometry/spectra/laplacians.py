r"""The Laplacian of a graph, plain and normalised, as an operator and as a sparse matrix.

With $a_{vu}$ the weight of the edges from $u$ to $v$ (parallel ones add up) and the degrees
$d_v = \sum_u a_{vu}$,

$$L = D - A, \qquad (L x)_v = \sum_u a_{vu} (x_v - x_u),$$

| normalization | Laplacian |
|---|---|
| None | $D - A$ |
| "sym" | $D^{-1/2} (D - A) D^{-1/2}$ |
| "rw" | $D^{-1} (D - A)$ |
| "gcn" | $I - \bar A$, $\bar A = \tilde D^{-1/2} \tilde A \tilde D^{-1/2}$, $\tilde A = A + I$ |

where $1 / d_v$ is 0 for a node without edges, whose row is 0 then (and not 1). In $\tilde A$ a node
that has a self-loop keeps it as it is.

Exact up to rounding. The claims are `graph_laplacian`, `normalised_laplacian`, `incidence_matrix`
and `discrete_laplace_operator`.
"""

from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from vademecum.foundations import LinearOperator
from vademecum.geometry.graphs import (
    Adjacency,
    adjacency_of,
    insist_on_symmetry,
    inverse_roots,
    quiet_sparse,
)
from vademecum.results import one_line

__all__ = [
    "GraphLaplacian", "check_normalization", "graph_laplacian", "laplacian_parts",
    "laplacian_product",
]  # fmt: skip


class GraphLaplacian(NamedTuple):
    """A Laplacian in two forms, and the degrees that it was made of.

    Example:
        >>> L = graph_laplacian(torch.tensor([[0, 1], [1, 0]]))
        >>> L.operator @ torch.tensor([3.0, 1.0])
        tensor([ 2., -2.])
    """

    operator: LinearOperator
    """The map from blocks of signals, (n, k), to their images; gradients flow through it."""
    matrix: Tensor
    """The same as a sparse tensor (CSR)."""
    degrees: Float[Tensor, " n"]
    """The weights of the edges that lead to each node, added up; for "gcn" with the self-loop."""

    __repr__ = one_line


def graph_laplacian(
    edges: Adjacency | Integer[Tensor, " 2 E"],
    num_nodes: int | None = None,
    *,
    weight: Float[Tensor, " E"] | None = None,
    normalization: str | None = None,
    directed: bool = False,
    dtype: torch.dtype | None = None,
) -> GraphLaplacian:
    r"""The Laplacian of a graph.

    Args:
        edges: The edges (2, E), source and target, each in both directions; or an `Adjacency`.
        num_nodes: How many nodes there are; by default one more than the largest index.
        weight: The weights of the edges, 1 by default.
        normalization: None for $D - A$, "sym", "rw", or "gcn" for $I - \bar A$ with self-loops.
        directed: Whether edges may lack their mirror images. The degrees are in-degrees then, the
            matrix is not symmetric, and rows of $D - A$ still sum to 0.
        dtype: Of the matrix; that of the weights by default.

    Returns:
        A `GraphLaplacian`, with an operator and a sparse matrix.

    Raises:
        ValueError: If an index is out of range, an edge has no mirror image (unless `directed`), or
            the weights make a degree negative which the normalisation divides by.

    Example:
        >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> graph_laplacian(path).matrix.to_dense()
        tensor([[ 1., -1.,  0.],
                [-1.,  2., -1.],
                [ 0., -1.,  1.]])
        >>> graph_laplacian(path, 4, normalization="rw").matrix.to_dense()
        tensor([[ 1.0000, -1.0000,  0.0000,  0.0000],
                [-0.5000,  1.0000, -0.5000,  0.0000],
                [ 0.0000, -1.0000,  1.0000,  0.0000],
                [ 0.0000,  0.0000,  0.0000,  0.0000]])
    """
    graph = adjacency_of(edges, num_nodes, weight=weight)
    if not graph.num_nodes:
        raise ValueError("num_nodes must be >= 1, got 0")
    parts = laplacian_parts(graph, normalization, directed=directed, dtype=dtype)
    product = partial(laplacian_product, parts)
    kind = {"dtype": parts.d.dtype, "device": graph.device}
    n = graph.num_nodes
    op = LinearOperator((n, n), product, partial(product, adjoint=True), **kind)
    return GraphLaplacian(op, _sparse(parts), parts.d)


class Parts(NamedTuple):
    """What D - A is made of: edges and degrees, and what rows and columns are multiplied by."""

    graph: Adjacency
    d: Tensor
    left: Tensor
    right: Tensor


def check_normalization(normalization: Any, *, symmetric: bool = False) -> str | None:
    """One of the ways to normalise a Laplacian, or of those that leave it symmetric."""
    known = (None, "sym", "gcn") if symmetric else (None, "sym", "rw", "gcn")
    if normalization not in known:
        options = ", ".join(map(repr, known))
        raise ValueError(f"normalization must be one of {options}, got {normalization!r}")
    return normalization


def laplacian_parts(
    graph: Adjacency, normalization: Any, *, directed: bool = False, dtype: Any = None
) -> Parts:
    """What the Laplacian of a graph is made of."""
    if not directed:
        insist_on_symmetry(graph)
    check_normalization(normalization)

    def make() -> Parts:
        looped = graph.with_self_loops() if normalization == "gcn" else graph
        d = looped.in_degrees(dtype)
        return Parts(looped, d, *_scales(d, normalization))

    return graph.kept(("laplacian", normalization, dtype), make)


def _scales(d: Tensor, normalization: Any) -> tuple[Tensor, Tensor]:
    """What rows and columns of D - A are multiplied by."""
    one = torch.ones_like(d)
    if normalization is None:
        return one, one
    root = inverse_roots(d)
    return (root * root, one) if normalization == "rw" else (root, root)


def laplacian_product(parts: Parts, x: Tensor, *, adjoint: bool = False) -> Tensor:
    """The product of the Laplacian, or its transpose, with a block of signals."""
    graph, d, left, right = parts
    left, right = (right, left) if adjoint else (left, right)
    return (left * d * right)[:, None] * x - left[:, None] * graph.product(
        right[:, None] * x, transpose=adjoint
    )


def _sparse(parts: Parts) -> Tensor:
    graph, d, left, right = parts
    n, (source, target) = graph.num_nodes, graph.edge_index.long()
    a = torch.ones_like(d[:1]) if graph.weight is None else graph.weight.to(d.dtype)
    nodes = torch.arange(n, device=d.device)
    places = torch.stack([torch.cat([target, nodes]), torch.cat([source, nodes])])
    values = torch.cat([-left[target] * a * right[source], left * d * right])
    with quiet_sparse():
        matrix = torch.sparse_coo_tensor(places, values, (n, n), check_invariants=False)
        return matrix.coalesce().to_sparse_csr()
