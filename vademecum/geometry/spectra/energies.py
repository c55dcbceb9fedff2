r"""The Dirichlet energy: how much a signal on a graph differs from node to node.

$$E(X) = \operatorname{tr} X^\top L X = \tfrac12 \sum_{u, v} a_{uv} \|x_u - x_v\|^2 ,$$

for an undirected graph, where each edge is counted once. With the Laplacian "sym" or "gcn" the rows
are divided by $\sqrt{d_u}$ first, where nodes without edges count as 0.

Added up over edges, in blocks, and not as $X \cdot (L X)$, which cancels where $X$ is smooth: the
energy is exact up to rounding of the differences. Its derivatives are those of the form. The claim
is `dirichlet_energy`.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from vademecum.arguments import floats
from vademecum.arrays import portions
from vademecum.geometry.graphs import Adjacency, adjacency_of
from vademecum.geometry.spectra._undirected import insist_on_mirror_images
from vademecum.geometry.spectra.laplacians import (
    check_normalization,
    laplacian_parts,
    laplacian_product,
)

__all__ = ["dirichlet_energy", "edge_energies", "one_way_edges"]

_ROOM = (
    2**22
)  # bytes in a block: a million edges of 64 features take 0.3 s, 0.7 s with 2**24 (EPYC)


def dirichlet_energy(
    x: Float[Tensor, " n *d"],
    edges: Adjacency | Integer[Tensor, " 2 E"],
    *,
    weight: Float[Tensor, " E"] | None = None,
    normalization: str | None = None,
    memory: int | None = None,
) -> Float[Tensor, ""]:
    r"""The energy $\operatorname{tr} X^\top L X$ of a signal on a graph, differentiable in it.

    Args:
        x: The signal, a number or a row of them for each node.
        edges: The edges (2, E), each in both directions; or an `Adjacency`.
        weight: The weights of the edges, 1 by default.
        normalization: Of the Laplacian: None, "sym" or "gcn".
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest. For the
            differences along edges, which are taken in blocks.

    Raises:
        ValueError: If the graph does not fit the signal or is directed.

    Example:
        >>> edge = torch.tensor([[0, 1], [1, 0]])
        >>> dirichlet_energy(torch.tensor([1.0, 4.0]), edge)
        tensor(9.)
    """
    x = floats("x", x, empty=True)
    if x.ndim == 0:
        raise ValueError("x must have a row for each node, got a single number")
    if x.is_complex():
        raise ValueError(f"x must be real, got {x.dtype}")
    graph = adjacency_of(edges, len(x), weight=weight)
    insist_on_mirror_images(graph, "an energy")
    with torch.no_grad():
        energy = edge_energies(x, graph, normalization, memory=memory).sum()
    parts = laplacian_parts(graph, normalization, dtype=x.dtype)
    if not (torch.is_grad_enabled() and (x.requires_grad or parts.d.requires_grad)):
        return energy
    block = x.flatten(1) if x.ndim > 1 else x[:, None]
    form = (block * laplacian_product(parts, block)).sum()
    return form + (energy - form).detach()  # whose value is the former, and derivatives the latter


class OneWay(NamedTuple):
    """Every edge between two nodes once, with its weight if there are any."""

    u: Tensor
    v: Tensor
    weight: Tensor | None


def one_way_edges(graph: Adjacency) -> OneWay:
    """The edges of an undirected graph that lead to a larger number."""

    def make() -> OneWay:
        up = (graph.edge_index[0] < graph.edge_index[1]).nonzero()[:, 0]
        u, v = graph.edge_index.index_select(1, up)
        return OneWay(u, v, None if graph.weight is None else graph.weight.index_select(0, up))

    return graph.kept("each edge once", make)


def edge_energies(
    x: Tensor, graph: Adjacency, normalization: str | None, *, memory: int | None = None
) -> Tensor:
    """The energy of each edge, in the order of `one_way_edges`; without derivatives."""
    check_normalization(normalization, symmetric=True)
    x, (u, v, weight) = x.flatten(1) if x.ndim > 1 else x[:, None], one_way_edges(graph)
    if normalization is not None:
        x = x * laplacian_parts(graph, normalization, dtype=x.dtype).left[:, None]
    found = torch.empty(len(u), dtype=x.dtype, device=x.device)
    room = _ROOM if memory is None else memory
    for some in portions(len(u), each=2 * x.element_size() * x.shape[1], memory=room):
        gaps = x.index_select(0, u[some]).sub_(x.index_select(0, v[some]))
        found[some] = gaps.square_().sum(1)
    return found if weight is None else found * weight.to(x.dtype)
