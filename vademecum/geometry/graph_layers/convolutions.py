r"""Graph convolutions: each node gets the weighted sum of its neighbours' features, $\bar A X W$.

With $\bar A$ from `gcn_norm`, row i is $\sum_{j \in \mathcal{N}_i \cup \{i\}} \bar a_{ij}\, x_j W$,
and $W$ mixes features whatever the number of nodes. The product with $\bar A$ comes after that with
$W$, or before it where that is narrower.

Exact up to rounding. Checked by the claims `gcn_layer` and `gcn_normalisation`.
"""

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from vademecum.arguments import whole
from vademecum.geometry.graphs import Adjacency, adjacency_of, gcn_norm

__all__ = ["GCNConv"]


class GCNConv(nn.Module):
    r"""A graph-convolutional layer, $\bar A X W + b$.

    Its parameters have PyG's names and initial law, so that state dicts fit both ways.

    Args:
        in_channels: How wide features are.
        out_channels: How wide outputs are.
        improved: Whether new self-loops weigh 2 instead of 1.
        add_self_loops: Whether nodes without a self-loop get one.
        normalize: Whether to normalise by degrees; without it the product is with $A$ itself, as
            it is given.
        bias: Whether there is a constant.
        directed: Whether graphs may be directed; degrees are then those of incoming edges.

    Raises:
        ValueError: If a size is below 1.

    References:
        Kipf and Welling, Semi-supervised classification with graph convolutional networks, ICLR,
        2017.

    Example:
        >>> layer = GCNConv(2, 1, bias=False)
        >>> _ = nn.init.ones_(layer.lin.weight)
        >>> pair = torch.tensor([[0, 1], [1, 0]])
        >>> layer(torch.tensor([[1.0, 1.0], [3.0, 3.0]]), pair).detach()  # the mean of 2 and 6
        tensor([[4.0000],
                [4.0000]])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        improved: bool = False,
        add_self_loops: bool | None = None,
        normalize: bool = True,
        bias: bool = True,
        directed: bool = False,
    ):
        super().__init__()
        self.in_channels = whole("in_channels", in_channels, low=1)
        self.out_channels = whole("out_channels", out_channels, low=1)
        self.improved, self.normalize, self.directed = improved, normalize, directed
        self.add_self_loops = normalize if add_self_loops is None else add_self_loops
        if self.add_self_loops and not normalize:
            raise ValueError("add_self_loops must be False without normalize")
        self.lin = nn.Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None
        nn.init.xavier_uniform_(self.lin.weight)

    def forward(
        self,
        x: Float[Tensor, " N in"],
        edges: Adjacency | Integer[Tensor, " 2 E"],
        weight: Float[Tensor, " E"] | None = None,
    ) -> Float[Tensor, " N out"]:
        """Average over neighbours.

        Args:
            x: The nodes' features.
            edges: The graph; an `Adjacency` is normalised once.
            weight: The edges' weights, for an `edge_index`.
        """
        graph = adjacency_of(edges, len(x), weight=weight)
        if self.normalize:
            graph = gcn_norm(
                graph, add_self_loops=self.add_self_loops, improved=self.improved,
                directed=self.directed, dtype=x.dtype,
            )  # fmt: skip
        narrow = self.in_channels < self.out_channels
        y = self.lin(graph @ x) if narrow else graph @ self.lin(x)
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        """The sizes, and what is not as usual."""
        usual = {"improved": False, "normalize": True, "directed": False}
        own = [f"{k}={getattr(self, k)}" for k, v in usual.items() if getattr(self, k) != v]
        return ", ".join([f"{self.in_channels}", f"{self.out_channels}", *own])
