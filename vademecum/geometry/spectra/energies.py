r"""The Dirichlet energy: how much a signal on a graph differs from node to node.

$$E(X) = \operatorname{tr} X^\top L X = \tfrac12 \sum_{u, v} a_{uv} \|x_u - x_v\|^2 ,$$

for an undirected graph, where each edge is counted once. With the Laplacian "sym" or "gcn" the rows
are divided by $\sqrt{d_u}$ first, where nodes without edges count as 0.

Added up over edges, in blocks, and not as $X \cdot (L X)$, which cancels where $X$ is smooth: the
energy is exact relative to itself, up to rounding. The claim is `dirichlet_energy`.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from vademecum.arguments import choice, floats
from vademecum.arrays import portions
from vademecum.geometry.graphs import Adjacency, adjacency_of
from vademecum.geometry.spectra._undirected import insist_on_mirror_images
from vademecum.geometry.spectra.laplacians import laplacian_parts

__all__ = ["dirichlet_energy", "edge_energies"]

_ROOM = 2**24  # bytes of differences in a block: half of a core's share of the cache (EPYC)


def dirichlet_energy(
    x: Float[Tensor, " n *d"],
    edges: Any,
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
    graph = adjacency_of(edges, len(x), weight=weight)
    insist_on_mirror_images(graph, "an energy")
    return edge_energies(x, graph, normalization, memory=memory).sum()


def edge_energies(
    x: Tensor, graph: Adjacency, normalization: str | None, *, memory: int | None = None
) -> Tensor:
    """Half of the energy of each edge, as edges come in both directions."""
    if normalization is not None:
        choice("normalization", normalization, ("sym", "gcn"))
    x, scale = x.reshape(len(x), -1), laplacian_parts(graph, normalization, dtype=x.dtype).left
    room = _ROOM if memory is None else memory
    blocks = portions(graph.num_edges, each=3 * x.element_size() * x.shape[1], memory=room)
    weight = None if graph.weight is None else graph.weight.to(x.dtype)

    def energies(some: slice, x: Tensor, scale: Tensor, weight: Tensor | None) -> Tensor:
        u, v = graph.edge_index[:, some].long()
        gaps = (x[u] * scale[u, None] - x[v] * scale[v, None]).square().sum(1) / 2
        return gaps if weight is None else weight[some] * gaps

    given = (x, scale, weight)
    if len(blocks) > 1 and any(t is not None and t.requires_grad for t in given):
        parts = [checkpoint(energies, some, *given, use_reentrant=False) for some in blocks]
    else:
        parts = [energies(some, *given) for some in blocks]
    return torch.cat(parts) if parts else x.new_zeros(0)  # pyright: ignore
