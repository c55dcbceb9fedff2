r"""Hops: how far the layers of a graph network see."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from vademecum import convolution
from vademecum.claims import Evidence, at_least, claim, equals
from vademecum.geometry import Adjacency, GATConv, GCNConv
from vademecum.geometry.claims._small_graphs import edges_of, random_graph

Kind = type[GCNConv] | type[GATConv]


class Stack(nn.Module):
    """Layers of one kind with positive weights, and tanh after each, which loses nothing."""

    def __init__(self, kind: Kind, depth: int, d: int = 3):
        super().__init__()
        self.layers = nn.ModuleList(kind(d, d) for _ in range(depth))
        for p in self.parameters():
            nn.init.uniform_(p.requires_grad_(False), 0.1, 0.5)

    def forward(self, x: Tensor, edges: Tensor | Adjacency) -> Tensor:
        """The features after the last layer."""
        for layer in self.layers:
            x = torch.tanh(layer(x, edges))
        return x


def hops_to(A: Tensor, node: int) -> Tensor:
    """How many edges lie between each node and this one, along their direction; -1 for no way."""
    hops, front = [-1] * len(A), [node]
    hops[node] = 0
    for v in front:  # which grows meanwhile
        for u in range(len(A)):
            if A[v, u] and hops[u] < 0:
                hops[u] = hops[v] + 1
                front.append(u)
    return torch.tensor(hops)


@claim(
    by="identity", sources=("B-426", "B-429"), budget=1.0,
    short=r"\partial h_v^{(L)} / \partial x_u = 0 \quad\text{if } \mathrm{dist}(u, v) > L",
)  # fmt: skip
def receptive_field(beyond: int = 0) -> Iterator[Evidence]:
    r"""Stacked layers see one hop more each.

    To predict for a node, information is gathered from its context in the graph (data are not
    independent samples); after $L$ message-passing layers a node's output depends only on nodes at
    distance at most $L$, along the edges' direction. With generic weights it depends on all of
    them.

    Random sparse graphs, $L = 1, 3$, and a directed one, $L = 2$, for other layers: the field found
    from the layers' code and by gradients; the features of all nodes farther away replaced, which
    changes no bit; those of a node at distance $L$ moved, which does (weights are positive and the
    activation is strictly increasing).

    Knobs:
        beyond: How many hops farther than the number of layers a node is claimed to see.
    """
    kinds: dict[Kind, tuple[int, ...]] = {GCNConv: (1, 3), GATConv: (2,)}
    for kind, depths in kinds.items():
        A = random_graph(12, 0.14, linked=True)
        if kind is GATConv:
            A = A * (torch.rand(12, 12) < 0.8)
        edges = edges_of(A)[0]
        for depth in depths:
            net, node, x = Stack(kind, depth), int(torch.randint(12, ())), torch.randn(12, 3)
            hops, at = hops_to(A, node), {"kind": kind.__name__, "layers": depth}
            near = (hops >= 0) & (hops <= depth + beyond)
            given = Adjacency(edges, 12) if depth == 2 else edges
            found = convolution.receptive_field(net, (x, given), unit=node)
            yield equals("nodes that are seen, by the layers", found.mask, near, **at)
            yield equals("nodes that are seen, by gradients", found.measured, near, **at)
            other = torch.where(near[:, None], x, torch.randn(12, 3))
            y = net(x, edges)[node]
            yield equals("output, with other features farther away", net(other, edges)[node], y,
                         tol=0.0, **at)  # fmt: skip
            for u in (hops == depth).nonzero()[:, 0].tolist():
                moved = x.clone()
                moved[u] += 1
                change = (net(moved, edges)[node] - y).abs().max()
                yield at_least("change by a node as far as there are layers", change, 1e-12,
                               tol=0.0, **at)  # fmt: skip


receptive_field.foil("one hop fewer", beyond=-1)
receptive_field.foil("one hop more", beyond=1)
