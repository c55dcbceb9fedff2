r"""What graph networks tell apart: nothing that colours do not, and with sums all they do."""

from collections.abc import Callable, Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, at_least, at_most, claim, equals, integers
from vademecum.geometry import Adjacency, GINConv, message_passing, wl_ceiling
from vademecum.geometry.claims._all_graphs import (
    all_graphs,
    edges_of,
    named_colours,
    pairs_apart,
)
from vademecum.geometry.claims._small_graphs import cycle, from_pairs, path, random_graph
from vademecum.models import mlp

How = Literal["sum", "mean", "max"]


class Network(nn.Module):
    """Layers that aggregate neighbours in one of three ways, and a read-out that does so, too.

    Sums are those of `GINConv`, the others those of `message_passing`.
    """

    def __init__(self, d: int, width: int, depth: int, how: How, eps: float = 0.1):
        super().__init__()
        sizes = [d, *[width] * depth]
        self.layers = nn.ModuleList(
            GINConv(mlp([a, width, width], nn.Tanh), epsilon=eps) for a in sizes[:-1]
        )
        self.how, self.width = how, width
        for p in self.parameters():
            spread = 1.5 / p.shape[1] ** 0.5 if p.ndim == 2 else 0.5
            nn.init.normal_(p.requires_grad_(False), 0, spread)

    def forward(self, x: Tensor, edges: Tensor | Adjacency) -> Tensor:
        """The features of all nodes after the last layer."""
        for layer in self.layers:
            assert isinstance(layer, GINConv)
            x = layer(x, edges) if self.how == "sum" else self._other(layer, x, edges)
        return x

    def _other(self, layer: GINConv, x: Tensor, edges: Tensor | Adjacency) -> Tensor:
        return message_passing(
            x, edges, message=lambda to, sent: sent, aggregate=self.how,
            update=lambda own, came: layer.nn((1 + layer.eps) * own + came),
        )  # fmt: skip

    def readouts(self, x: Tensor, graph: Adjacency) -> Tensor:
        """The read-out of each graph."""
        assert graph.batch is not None
        h, count = self(x, graph), graph.num_graphs
        total = torch.zeros(count, self.width).index_add(0, graph.batch, h)
        if self.how == "sum":
            return total
        if self.how == "mean":
            return total / torch.bincount(graph.batch)[:, None]
        where = graph.batch[:, None].expand_as(h)
        return torch.full((count, self.width), -9.0).scatter_reduce(0, where, h, "amax")


def side_by_side(graphs: list[Tensor]) -> Adjacency:
    """Graphs as one, with the number of each node's graph."""
    start, edges = 0, []
    for A in graphs:
        edges.append(edges_of(A)[0] + start)
        start += len(A)
    batch = torch.arange(len(graphs)).repeat_interleave(torch.tensor([len(A) for A in graphs]))
    return Adjacency(torch.cat(edges, 1), start, batch=batch)


def distances(y: Tensor) -> Tensor:
    """The largest difference of an entry, for each pair of rows."""
    return (y[:, None] - y).abs().amax(2)


def equal_pairs() -> list[tuple[Tensor, Tensor]]:
    """All pairs of different graphs with up to 6 nodes whose colours are equally frequent."""
    graphs = list(all_graphs())
    same = (~pairs_apart(named_colours(graphs, 6)[-1])).triu(1).nonzero().tolist()
    return [(graphs[i], graphs[j]) for i, j in same]


@claim(
    by="identity", sources=("D-359",), budget=1.0,
    short=r"\text{1-WL cannot tell } G, H \Rightarrow \mathrm{GNN}_\theta(G) ="
    r" \mathrm{GNN}_\theta(H)\ \forall \theta",
)  # fmt: skip
def gnn_wl_bound(
    features: Literal["equal", "node numbers", "random"] = "equal", draws: int = 4
) -> Iterator[Evidence]:
    r"""Message-passing GNNs are bounded by 1-WL.

    With identical initial node features, a message-passing GNN of any depth, width and weights
    gives equal permutation-invariant read-outs on graphs that 1-WL does not separate.

    *Proof.* By induction over layers: nodes of one colour after $t$ rounds have equal features
    after $t$ layers, since a layer sees a node's features and the multiset of its neighbours'.
    Random networks with sums, means and maxima, 1, 3 and 6 layers, two widths, on all four such
    pairs with up to 6 nodes, among them $C_6$ and two triangles. `wl_ceiling` agrees, and finds
    weights where the test does separate: a star and a path.

    Knobs:
        features: The initial features: one random vector for all nodes, its multiples by the nodes'
            numbers, or random ones.
        draws: How often weights are drawn.
    """
    pairs = equal_pairs()
    yield equals("pairs that 1-WL does not separate", len(pairs), 4)
    graph = side_by_side([A for pair in pairs for A in pair])
    numbers = torch.cat([torch.arange(1.0, len(A) + 1) for pair in pairs for A in pair])
    for how in ("sum", "mean", "max"):
        for depth, width in ((1, 8), (3, 5), (6, 8)):
            for _ in range(draws):
                x = torch.randn(3).expand(graph.num_nodes, 3)
                if features == "node numbers":
                    x = x * numbers[:, None] / 3
                elif features == "random":
                    x = torch.randn(graph.num_nodes, 3)
                y = Network(3, width, depth, how).readouts(x, graph)
                yield equals("read-outs of a pair", y[::2], y[1::2], tol=1e-10,
                             aggregate=how, layers=depth)  # fmt: skip
    hexagon, triangles = cycle(6), torch.block_diag(cycle(3), cycle(3))
    star = from_pairs(4, [(0, 1), (0, 2), (0, 3)])
    for A, B, told in ((hexagon, triangles, 0), (star, path(4), 1)):
        given = []
        for C in (A, B):
            x = torch.ones(len(C), 1)
            given.append((x * torch.arange(1, len(C) + 1)[:, None] if features == "node numbers"
                          else x, edges_of(C)[0]))  # fmt: skip
        found = wl_ceiling(Network(1, 6, 2, "sum"), *given)
        yield equals("whether some weights tell a pair apart", int(found.separated), told,
                     nodes=len(A))  # fmt: skip


gnn_wl_bound.foil("nodes that know their numbers", features="node numbers")
gnn_wl_bound.foil("random features", features="random")


def shares_of_isolated(graphs: list[Tensor], how: How) -> list:
    """All that means and maxima see of equal features: whether nodes without edges are there."""
    alone = [int((A.sum(1) == 0).sum()) for A in graphs]
    if how == "mean":
        return [(a * 60) // len(A) for a, A in zip(alone, graphs, strict=True)]
    return [(a > 0, a < len(A)) for a, A in zip(alone, graphs, strict=True)]


@claim(
    by="identity", sources=("D-360",), budget=1.0,
    short=r"h_v' = \mathrm{MLP}\big((1+\epsilon) h_v + \sum_{u \in \mathcal N_v} h_u\big)",
)  # fmt: skip
def gin(
    aggregate: How = "sum", own: Callable[[float], float] = lambda eps: 1 + eps, nets: int = 3
) -> Iterator[Evidence]:
    r"""Graph isomorphism network.

    $h_v' = \mathrm{MLP}\big((1 + \epsilon) h_v + \sum_{u \in \mathcal N_v} h_u\big)$ with sum
    read-out: the sum can be injective on multisets, so for suitable (generic) parameters GIN
    separates exactly the pairs that 1-WL separates; mean or max aggregation separates fewer.

    All 208 graphs with 1 to 6 nodes, constant features, read-outs of three random networks with six
    layers joined: the pairs at distance above $10^{-9}$ are the 21,524 that colours tell apart, by
    names for nested tuples. From equal features means see no more than which share of the nodes
    has no edges, maxima whether there are such nodes and others: 9,271 and 8,497 pairs. The layer
    in whole numbers against a dense product, for two $\epsilon$ and maps to another width.

    Knobs:
        aggregate: How neighbours and, in the read-out, nodes are aggregated.
        own: The weight of a node's own features, of $\epsilon$.
        nets: How many networks are joined.
    """
    for eps, (n, d, k) in ((0.5, (7, 3, 2)), (-2.0, (5, 2, 4))):
        A, x, W = random_graph(n, 0.4, most=1), integers(n, d), integers(k, d)
        linear = nn.Linear(d, k, bias=False).requires_grad_(False)
        linear.weight.copy_(W)
        found = GINConv(linear, epsilon=eps)(x, edges_of(A)[0])
        stated = torch.stack([W @ (own(eps) * x[v] + A[v] @ x) for v in range(n)])
        yield equals("a layer", found, stated, tol=0.0, eps=eps)
    graphs = list(all_graphs())
    apart, graph = pairs_apart(named_colours(graphs, 6)[-1]), side_by_side(graphs)
    ones = torch.ones(graph.num_nodes, 1)
    made: dict[How, Tensor] = {}
    counts: list[tuple[How, int]] = [(aggregate, nets), ("mean", 1), ("max", 1)]
    for how, count in counts:
        if how not in made:
            drawn = [Network(1, 16, 6, how).readouts(ones, graph) for _ in range(count)]
            made[how] = distances(torch.cat(drawn, 1))
    gap = made[aggregate]
    yield equals("whether a pair is told apart", gap > 1e-9, apart)
    yield equals("pairs told apart", int((gap > 1e-9).triu(1).sum()), 21524)
    yield at_least("distance of pairs that colours tell apart", gap[apart], 1e-9, tol=0.0)
    yield at_most("distance of the other pairs", gap[~apart], 1e-11, tol=0.0)
    fewer: list[tuple[How, int]] = [("mean", 9271), ("max", 8497)]
    for how, count in fewer:
        stated = pairs_apart(shares_of_isolated(graphs, how))
        yield equals(f"whether a {how} tells a pair apart", made[how] > 1e-9, stated)
        yield equals(f"pairs that a {how} tells apart", int(stated.triu(1).sum()), count)


gin.foil("means of neighbours and nodes", aggregate="mean")
gin.foil("maxima", aggregate="max")
gin.foil("epsilon alone", own=lambda eps: eps)
