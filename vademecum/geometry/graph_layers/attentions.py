r"""Graph attention: averages over neighbours whose weights come from the features.

$$x_i' = \sum_{j \in \mathcal{N}_i} \alpha_{ij} W x_j, \qquad
\alpha_{ij} = \mathrm{softmax}_j\, e_{ij}, \qquad
e_{ij} = \mathrm{LeakyReLU}(a_1^\top W x_i + a_2^\top W x_j)$$

(Veličković et al., 2018), whose ranking of neighbours is the same for every node; with the
nonlinearity before $a$ it is not (Brody et al., 2022):
$e_{ij} = a^\top \mathrm{LeakyReLU}(W_r x_i + W_l x_j)$.

Scores are numbers of edges and heads. What has edges times features, in the second form, exists in
blocks only and is computed again for gradients. Exact up to rounding. Checked by the claims
`gat_coefficients`, `gat_layer` and `gat_static_attention`.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.arguments import number, whole
from vademecum.geometry.graph_layers._block_scores import block_scores
from vademecum.geometry.graphs import (
    Adjacency,
    SortedEdges,
    adjacency_of,
    at_edges,
    edge_maxima,
    edge_softmax,
    edge_totals,
    neighbour_sums,
)
from vademecum.results import one_line

__all__ = ["GATConv", "GATv2Conv", "GraphAttention"]


class GraphAttention(NamedTuple):
    """What a layer of graph attention gives, with its weights.

    Example:
        >>> found = GATConv(2, 3)(torch.randn(2, 2), torch.tensor([[0], [1]]), attention=True)
        >>> found.edge_index.tolist()  # the edge, and a self-loop at each node
        [[0, 0, 1], [0, 1, 1]]
    """

    output: Tensor
    """The new features."""
    edge_index: Tensor
    """The edges, self-loops among them, sorted by target."""
    weights: Tensor
    """How much each edge weighs, (E, heads); those into a node sum to 1."""

    __repr__ = one_line


class _Heads(nn.Module):
    """What the two kinds of graph attention share: heads side by side, and the average."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int,
        *,
        concat: bool,
        negative_slope: float,
        dropout: float,
        add_self_loops: bool,
        bias: bool,
    ):
        super().__init__()
        self.in_channels = whole("in_channels", in_channels, low=1)
        self.out_channels = whole("out_channels", out_channels, low=1)
        self.heads = whole("heads", heads, low=1)
        self.concat, self.add_self_loops = concat, add_self_loops
        self.negative_slope = number("negative_slope", negative_slope)
        self.dropout = number("dropout", dropout, low=0, below=1)
        wide = out_channels * (heads if concat else 1)
        self.bias = nn.Parameter(torch.zeros(wide)) if bias else None

    def _graph(self, x: Tensor, edges: Adjacency | Tensor) -> Adjacency:
        graph = adjacency_of(edges, len(x))
        if graph.is_weighted:
            raise ValueError("edges must have no weights: attention computes its own")
        return graph.with_self_loops() if self.add_self_loops else graph

    def _scores(self, alpha: Tensor) -> Tensor:
        return F.dropout(alpha, self.dropout, self.training) if self.dropout else alpha

    def _average(
        self, graph: Adjacency, alpha: Tensor, h: Tensor, weights: bool
    ) -> Tensor | GraphAttention:
        y = neighbour_sums(graph.edges, self._scores(alpha), h)
        y = y.flatten(1) if self.concat else y.mean(1)
        y = y if self.bias is None else y + self.bias
        if not weights:
            return y
        ends = torch.stack([graph.edges.sources, graph.edges.targets]).long()
        return GraphAttention(y, ends, alpha.t())

    def extra_repr(self) -> str:
        """The sizes, and what is not as usual."""
        usual = {"concat": True, "negative_slope": 0.2, "dropout": 0.0, "add_self_loops": True}
        own = [f"{k}={getattr(self, k)}" for k, v in usual.items() if getattr(self, k) != v]
        sizes = [f"{self.in_channels}", f"{self.out_channels}", f"heads={self.heads}"]
        return ", ".join([*sizes, *own])


class GATConv(_Heads):
    r"""A graph attention layer.

    Its parameters have PyG's names and initial law, so that state dicts fit both ways.

    Args:
        in_channels: How wide features are.
        out_channels: How wide each head's outputs are.
        heads: How many attentions there are side by side.
        concat: Whether heads' outputs stand side by side; otherwise their mean is taken.
        negative_slope: The slope of the LeakyReLU below 0.
        dropout: How many of the weights are dropped while training.
        add_self_loops: Whether nodes without a self-loop get one.
        bias: Whether there is a constant.

    Raises:
        ValueError: If a size is below 1.

    References:
        Veličković, Cucurull, Casanova, Romero, Liò and Bengio, Graph attention networks, ICLR,
        2018.

    Example:
        >>> layer = GATConv(2, 3, heads=4)
        >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> found = layer(torch.randn(3, 2), path, attention=True)
        >>> found.output.shape, found.weights.shape
        (torch.Size([3, 12]), torch.Size([7, 4]))
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int = 1,
        *,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        bias: bool = True,
    ):
        super().__init__(
            in_channels, out_channels, heads, concat=concat, negative_slope=negative_slope,
            dropout=dropout, add_self_loops=add_self_loops, bias=bias,
        )  # fmt: skip
        self.lin = nn.Linear(in_channels, heads * out_channels, bias=False)
        self.att_src = nn.Parameter(torch.empty(1, heads, out_channels))
        self.att_dst = nn.Parameter(torch.empty(1, heads, out_channels))
        for weight in (self.lin.weight, self.att_src[0], self.att_dst[0]):
            nn.init.xavier_uniform_(weight)

    def forward(
        self,
        x: Float[Tensor, " N in"],
        edges: Adjacency | Integer[Tensor, " 2 E"],
        *,
        attention: bool = False,
    ) -> Float[Tensor, " N out"] | GraphAttention:
        """Average over neighbours.

        Args:
            x: The nodes' features.
            edges: The graph, without weights.
            attention: Whether to return the edges' weights, too.
        """
        graph = self._graph(x, edges)
        h = self.lin(x).unflatten(1, (self.heads, self.out_channels))
        # a^T (W x) = (W^T a)^T x, which costs edges nothing and nodes little
        W = self.lin.weight.unflatten(0, (self.heads, self.out_channels))
        ends = torch.einsum("hci,khc->khi", W, torch.cat([self.att_src, self.att_dst]))
        s, t = (ends.flatten(0, 1) @ x.t()).chunk(2)
        alpha = edge_softmax(graph.edges, s, t, self.negative_slope)
        return self._average(graph, alpha, h, attention)


class GATv2Conv(_Heads):
    r"""A graph attention layer whose ranking of neighbours depends on the node that looks.

    Its parameters have PyG's names and initial law, so that state dicts fit both ways.

    Args:
        in_channels: How wide features are.
        out_channels: How wide each head's outputs are.
        heads: How many attentions there are side by side.
        concat: Whether heads' outputs stand side by side; otherwise their mean is taken.
        negative_slope: The slope of the LeakyReLU below 0.
        dropout: How many of the weights are dropped while training.
        add_self_loops: Whether nodes without a self-loop get one.
        bias: Whether there are constants, also in the maps $W_l$ and $W_r$.
        share_weights: Whether $W_l$ and $W_r$ are the same map.

    Raises:
        ValueError: If a size is below 1.

    References:
        Brody, Alon and Yahav, How attentive are graph attention networks?, ICLR, 2022.

    Example:
        >>> layer = GATv2Conv(2, 3, heads=4, concat=False)
        >>> layer(torch.randn(3, 2), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])).shape
        torch.Size([3, 3])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int = 1,
        *,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        bias: bool = True,
        share_weights: bool = False,
    ):
        super().__init__(
            in_channels, out_channels, heads, concat=concat, negative_slope=negative_slope,
            dropout=dropout, add_self_loops=add_self_loops, bias=bias,
        )  # fmt: skip
        self.share_weights = share_weights
        self.lin_l = nn.Linear(in_channels, heads * out_channels, bias=bias)
        self.lin_r = self.lin_l
        if not share_weights:
            self.lin_r = nn.Linear(in_channels, heads * out_channels, bias=bias)
        self.att = nn.Parameter(torch.empty(1, heads, out_channels))
        for weight in (self.lin_l.weight, self.lin_r.weight, self.att[0]):
            nn.init.xavier_uniform_(weight)

    def forward(
        self,
        x: Float[Tensor, " N in"],
        edges: Adjacency | Integer[Tensor, " 2 E"],
        *,
        attention: bool = False,
    ) -> Float[Tensor, " N out"] | GraphAttention:
        """Average over neighbours.

        Args:
            x: The nodes' features.
            edges: The graph, without weights.
            attention: Whether to return the edges' weights, too.
        """
        graph = self._graph(x, edges)
        sizes = (self.heads, self.out_channels)
        left = self.lin_l(x).unflatten(1, sizes)
        right = left if self.share_weights else self.lin_r(x).unflatten(1, sizes)
        scores = block_scores(graph.edges, left, right, self.att[0], self.negative_slope)
        alpha = _softmax(graph.edges, scores)
        return self._average(graph, alpha, left, attention)


def _softmax(edges: SortedEdges, scores: Tensor) -> Tensor:
    """The softmax of numbers of edges, (heads, E), over the edges into each node."""
    top = at_edges(edges, edge_maxima(edges, scores.detach()))
    powers = (scores - top).exp()
    return powers / at_edges(edges, edge_totals(edges, powers))
