r"""Graph isomorphism layers: a network of each node's features and the sum of its neighbours'.

$$x_i' = f\Big((1 + \epsilon)\, x_i + \sum_{j \in \mathcal{N}_i} x_j\Big) .$$

Sums tell multisets apart where means and maxima do not, so that with an injective $f$ such layers
distinguish as much as the Weisfeiler-Leman test. Exact up to rounding. Checked by the claim `gin`.
"""

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from vademecum.arguments import number
from vademecum.geometry.graphs import Adjacency, adjacency_of

__all__ = ["GINConv"]


class GINConv(nn.Module):
    r"""A graph isomorphism layer around a network of one's own.

    Its parameters have PyG's names, so that state dicts fit both ways.

    Args:
        nn: The network $f$, from features to outputs.
        epsilon: The number $\epsilon$, which weighs a node's own features.
        train_eps: Whether $\epsilon$ is learned.

    References:
        Xu, Hu, Leskovec and Jegelka, How powerful are graph neural networks?, ICLR, 2019.

    Example:
        >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> layer = GINConv(torch.nn.Identity(), epsilon=1.0)
        >>> layer(torch.tensor([[1.0], [10.0], [100.0]]), path)
        tensor([[ 12.],
                [121.],
                [210.]])
    """

    eps: Tensor

    def __init__(self, nn: nn.Module, *, epsilon: float = 0.0, train_eps: bool = False):
        super().__init__()
        self.nn = nn
        start = torch.full((1,), float(number("epsilon", epsilon)))
        if train_eps:
            self.eps = torch.nn.Parameter(start)
        else:
            self.register_buffer("eps", start)

    def forward(
        self,
        x: Float[Tensor, " N in"],
        edges: Adjacency | Integer[Tensor, " 2 E"],
        weight: Float[Tensor, " E"] | None = None,
    ) -> Float[Tensor, " N out"]:
        """Add up neighbours, then apply the network.

        Args:
            x: The nodes' features.
            edges: The graph.
            weight: The edges' weights, for an `edge_index`.
        """
        graph = adjacency_of(edges, len(x), weight=weight)
        return self.nn(graph @ x + (1 + self.eps) * x)
