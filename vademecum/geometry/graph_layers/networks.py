r"""Networks of graph layers: $\sigma$ between layers, dropout after it, none after the last.

$$H_0 = X, \qquad H_{l+1} = \sigma(\mathrm{layer}_l(H_l, A)) .$$

The last layer's outputs are what the network says of each node: logits, in a classifier. With one
`Adjacency` for all layers the graph is sorted and normalised once. Checked by the claims
`gcn_classifier`, `chebnet` and `gnn_wl_bound`.
"""

from itertools import pairwise
from typing import Any

from jaxtyping import Float, Integer
from torch import Tensor, nn

from vademecum.arguments import number, whole
from vademecum.geometry.graph_layers.attentions import GATConv, GATv2Conv
from vademecum.geometry.graph_layers.chebyshev import ChebConv
from vademecum.geometry.graph_layers.convolutions import GCNConv
from vademecum.geometry.graph_layers.isomorphism import GINConv
from vademecum.geometry.graphs import Adjacency, adjacency_of

__all__ = ["GAT", "GCN", "GIN", "ChebNet"]


class _Network(nn.Module):
    """Layers one after another; PyG's names of parameters."""

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int | None,
        dropout: float,
        activation: nn.Module | None,
    ):
        super().__init__()
        self.in_channels = whole("in_channels", in_channels, low=1)
        self.hidden_channels = whole("hidden_channels", hidden_channels, low=1)
        self.num_layers = whole("num_layers", num_layers, low=1)
        out = hidden_channels if out_channels is None else out_channels
        self.out_channels = whole("out_channels", out, low=1)
        self.dropout = nn.Dropout(number("dropout", dropout, low=0, below=1))
        self.act = nn.ReLU() if activation is None else activation
        self.convs = nn.ModuleList()

    def _sizes(self) -> list[tuple[int, int]]:
        hidden = [self.hidden_channels] * (self.num_layers - 1)
        return list(pairwise([self.in_channels, *hidden, self.out_channels]))

    def forward(
        self,
        x: Float[Tensor, " N in"],
        edges: Adjacency | Integer[Tensor, " 2 E"],
        weight: Float[Tensor, " E"] | None = None,
    ) -> Float[Tensor, " N out"]:
        """What the last layer says of each node.

        Args:
            x: The nodes' features.
            edges: The graph.
            weight: The edges' weights, for an `edge_index`.
        """
        graph = adjacency_of(edges, len(x), weight=weight)
        for conv in self.convs[:-1]:
            x = self.dropout(self.act(conv(x, graph)))
        return self.convs[-1](x, graph)


class GCN(_Network):
    """A graph convolutional network.

    Args:
        in_channels: How wide features are.
        hidden_channels: How wide the layers between are.
        num_layers: How many layers there are.
        out_channels: How wide outputs are; `hidden_channels` by default.
        dropout: How many hidden numbers are dropped while training.
        activation: The nonlinearity between layers; a ReLU by default.
        **options: Of the layers: see `GCNConv`.

    Raises:
        ValueError: If a size is below 1.

    References:
        Kipf and Welling, Semi-supervised classification with graph convolutional networks, ICLR,
        2017.

    Example:
        >>> triangle = torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]])
        >>> GCN(5, 16, 2, 3)(torch.randn(3, 5), triangle).shape
        torch.Size([3, 3])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int | None = None,
        *,
        dropout: float = 0.0,
        activation: nn.Module | None = None,
        **options: Any,
    ):
        super().__init__(
            in_channels, hidden_channels, num_layers, out_channels, dropout, activation
        )
        self.convs.extend(GCNConv(*sizes, **options) for sizes in self._sizes())


class ChebNet(_Network):
    """A network of Chebyshev filters.

    Args:
        in_channels: How wide features are.
        hidden_channels: How wide the layers between are.
        num_layers: How many layers there are.
        out_channels: How wide outputs are; `hidden_channels` by default.
        K: How many terms each filter has.
        dropout: How many hidden numbers are dropped while training.
        activation: The nonlinearity between layers; a ReLU by default.
        **options: Of the layers: see `ChebConv`.

    Raises:
        ValueError: If a size is below 1.

    References:
        Defferrard, Bresson and Vandergheynst, Convolutional neural networks on graphs with fast
        localized spectral filtering, NeurIPS, 2016.

    Example:
        >>> triangle = torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]])
        >>> ChebNet(5, 16, 2, 3, K=4)(torch.randn(3, 5), triangle).shape
        torch.Size([3, 3])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int | None = None,
        *,
        K: int = 3,
        dropout: float = 0.0,
        activation: nn.Module | None = None,
        **options: Any,
    ):
        super().__init__(
            in_channels, hidden_channels, num_layers, out_channels, dropout, activation
        )
        self.convs.extend(ChebConv(*sizes, K, **options) for sizes in self._sizes())


class GAT(_Network):
    """A graph attention network: heads side by side, and their mean in the last layer.

    Args:
        in_channels: How wide features are.
        hidden_channels: How wide the layers between are, all heads together.
        num_layers: How many layers there are.
        out_channels: How wide outputs are; `hidden_channels` by default, with heads side by side
            in the last layer, too.
        heads: How many attentions there are side by side.
        v2: Whether layers are `GATv2Conv` instead of `GATConv`.
        dropout: How many hidden numbers, and weights, are dropped while training.
        activation: The nonlinearity between layers; a ReLU by default.
        **options: Of the layers: see `GATConv`.

    Raises:
        ValueError: If a size is below 1, or `hidden_channels` is no multiple of `heads`.

    References:
        Veličković, Cucurull, Casanova, Romero, Liò and Bengio, Graph attention networks, ICLR,
        2018.

    Example:
        >>> triangle = torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]])
        >>> GAT(5, 16, 2, 3, heads=4)(torch.randn(3, 5), triangle).shape
        torch.Size([3, 3])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int | None = None,
        *,
        heads: int = 1,
        v2: bool = False,
        dropout: float = 0.0,
        activation: nn.Module | None = None,
        **options: Any,
    ):
        super().__init__(
            in_channels, hidden_channels, num_layers, out_channels, dropout, activation
        )
        if hidden_channels % whole("heads", heads, low=1):
            wanted = f"a multiple of heads = {heads}"
            raise ValueError(f"hidden_channels must be {wanted}, got {hidden_channels}")
        kind = GATv2Conv if v2 else GATConv
        for i, (wide, out) in enumerate(self._sizes()):
            concat = i < num_layers - 1 or out_channels is None
            width = out // heads if concat else out
            self.convs.append(kind(wide, width, heads, concat=concat, dropout=dropout, **options))


class GIN(_Network):
    """A graph isomorphism network, whose layers hold networks of two linear maps.

    Args:
        in_channels: How wide features are.
        hidden_channels: How wide the layers between are.
        num_layers: How many layers there are.
        out_channels: How wide outputs are; `hidden_channels` by default.
        dropout: How many hidden numbers are dropped while training.
        activation: The nonlinearity in and between layers; a ReLU by default.
        **options: Of the layers: see `GINConv`.

    Raises:
        ValueError: If a size is below 1.

    References:
        Xu, Hu, Leskovec and Jegelka, How powerful are graph neural networks?, ICLR, 2019.

    Example:
        >>> triangle = torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]])
        >>> GIN(5, 16, 2, 3)(torch.randn(3, 5), triangle).shape
        torch.Size([3, 3])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int | None = None,
        *,
        dropout: float = 0.0,
        activation: nn.Module | None = None,
        **options: Any,
    ):
        super().__init__(
            in_channels, hidden_channels, num_layers, out_channels, dropout, activation
        )
        networks = (_TwoMaps(*sizes, self.act) for sizes in self._sizes())
        self.convs.extend(GINConv(network, **options) for network in networks)


class _TwoMaps(nn.Module):
    """Two linear maps with a nonlinearity between; PyG's names of parameters."""

    def __init__(self, wide: int, out: int, act: nn.Module):
        super().__init__()
        self.lins = nn.ModuleList([nn.Linear(wide, out), nn.Linear(out, out)])
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.lins
        return second(self.act(first(x)))
