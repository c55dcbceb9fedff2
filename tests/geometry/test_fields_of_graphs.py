"""Receptive fields of graph layers, by edges and by prepared graphs: as many hops as layers."""

import networkx as nx
import pytest
import torch
from torch import Tensor, nn

from vademecum.convolution import receptive_field
from vademecum.geometry import Adjacency, ChebConv, GATConv, GATv2Conv, GCNConv, GINConv

LAYERS = {
    "GCNConv": (lambda: GCNConv(3, 3), 1),
    "ChebConv": (lambda: ChebConv(3, 3, K=3), 2),
    "GATConv": (lambda: GATConv(3, 3, heads=2, concat=False), 1),
    "GATv2Conv": (lambda: GATv2Conv(3, 3), 1),
    "GINConv": (lambda: GINConv(nn.Linear(3, 3)), 1),
}


class Stack(nn.Module):
    def __init__(self, *layers: nn.Module):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, edges: Tensor | Adjacency) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x, edges))
        return x


def tree() -> tuple[nx.Graph, Tensor]:
    graph = nx.path_graph(9)
    graph.add_edges_from([(0, 9), (9, 10), (4, 11)])
    return graph, torch.tensor([*graph.edges, *((b, a) for a, b in graph.edges)]).T


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_see_as_many_hops_as_they_take(name, dtype):
    make, hops = LAYERS[name]
    graph, edges = tree()
    model, x = Stack(make(), make()).to(dtype), torch.randn(12, 3, dtype=dtype)
    for given in (edges, Adjacency(edges, 12)):
        for node in (0, 4):
            found = receptive_field(model, (x, given), unit=node)
            wanted = nx.single_source_shortest_path_length(graph, node, cutoff=2 * hops)
            assert set(found.mask.nonzero().flatten().tolist()) == set(wanted)
            assert found.left == 0


class Product(nn.Module):
    """Sparse matrices of several kinds, made as the model runs."""

    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        n = len(x)
        weights = x[edges[0], 0] ** 2 + 1  # a message's weight depends on its sender
        A = torch.sparse_coo_tensor(edges.flip(0), weights, (n, n), check_invariants=True)
        if self.kind == "constant":
            ones = torch.ones(edges.shape[1], dtype=x.dtype)
            A = torch.sparse_coo_tensor(edges.flip(0), ones, (n, n), check_invariants=True)
            return A @ x
        return torch.sparse.mm(A, x)


@pytest.mark.filterwarnings("ignore:Sparse invariant")  # torch 2.11 says so whatever is passed
@pytest.mark.parametrize("kind", ["constant", "weighted"])
def test_sparse_products(kind):
    graph, edges = tree()
    edges = edges[:, : edges.shape[1] // 2]  # one direction
    found = receptive_field(Product(kind), (torch.randn(12, 3), edges), unit=4)
    senders = {a for a, b in edges.T.tolist() if b == 4}
    assert set(found.mask.nonzero().flatten().tolist()) == senders
    assert 0 < len(senders) < graph.degree[4]


def test_bags_of_rows():
    class Bags(nn.Module):
        def forward(self, x: Tensor, edges: Tensor) -> Tensor:
            index = torch.tensor([[0, 2], [1, 1], [2, 0]])
            return nn.functional.embedding_bag(index, x, mode="mean")

    edges = torch.tensor([[0], [1]])
    masks = [receptive_field(Bags(), (torch.randn(3, 2), edges), unit=i).mask for i in range(3)]
    assert [m.tolist() for m in masks] == [[True, False, True], [False, True, False],
                                           [True, False, True]]  # fmt: skip
