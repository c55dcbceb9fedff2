"""Laplacians against networkx, dense formulas and autograd; what is refused."""

import networkx as nx
import numpy as np
import pytest
import torch

from tests.geometry.small_graphs import both_ways, of_networkx, path_edges
from vademecum.geometry import Adjacency, gcn_norm, graph_laplacian


def awkward() -> nx.Graph:
    """Weights, two components, a self-loop and an isolated node."""
    graph = nx.gnp_random_graph(9, 0.3, seed=3)
    graph.add_nodes_from((9, 10, 11))
    graph.add_edge(9, 10)
    graph.add_edge(2, 2)
    for i, (u, v) in enumerate(graph.edges):
        graph[u][v]["weight"] = 1.0 + i % 4
    return graph


def test_graph_laplacian_is_that_of_networkx():
    graph = awkward()
    edges, weight = of_networkx(graph)
    for kind, peer in ((None, nx.laplacian_matrix), ("sym", nx.normalized_laplacian_matrix)):
        found = graph_laplacian(edges, 12, weight=weight, normalization=kind)
        wanted = torch.from_numpy(np.asarray(peer(graph, nodelist=range(12)).todense()).copy())
        torch.testing.assert_close(found.matrix.to_dense(), wanted.double())
        torch.testing.assert_close(found.operator.dense(), wanted.double())


def test_nodes_without_edges_have_rows_of_zeros():
    for kind in (None, "sym", "rw"):
        L = graph_laplacian(both_ways((0, 2)), 4, normalization=kind)
        assert not L.matrix.to_dense()[[1, 3]].any()
        assert not L.operator.dense()[:, [1, 3]].any()
        assert L.degrees.tolist() == [1, 0, 1, 0]
    none = graph_laplacian(torch.zeros(2, 0, dtype=torch.long), 3)
    assert not none.matrix.to_dense().any()
    assert not none.operator.dense().any()


def test_random_walks_and_graph_networks():
    graph = awkward()
    edges, weight = of_networkx(graph)
    A = torch.zeros(12, 12, dtype=torch.float64)
    A[edges[1], edges[0]] = weight
    d = A.sum(1)
    rw = graph_laplacian(edges, 12, weight=weight, normalization="rw")
    wanted = (d > 0).double().diag() - A / d.where(d > 0, 1)[:, None]
    torch.testing.assert_close(rw.matrix.to_dense(), wanted)
    torch.testing.assert_close(rw.operator.T.dense(), wanted.T)
    gcn = graph_laplacian(edges, 12, weight=weight, normalization="gcn")
    bar = gcn_norm(edges, 12, weight=weight).dense()
    torch.testing.assert_close(gcn.matrix.to_dense(), torch.eye(12).double() - bar)
    torch.testing.assert_close(gcn.operator.dense(), torch.eye(12).double() - bar)


def test_parallel_edges_add_up_and_small_integers_do():
    twice = both_ways((0, 1), (0, 1), (1, 2)).int()
    L = graph_laplacian(twice, dtype=torch.float64)
    assert L.matrix.to_dense().tolist() == [[2, -2, 0], [-2, 3, -1], [0, -1, 1]]
    assert L.matrix.dtype == L.operator.dtype == torch.float64
    assert graph_laplacian(Adjacency(twice, 3)).matrix.dtype == torch.float32


def test_directed_graphs_have_degrees_of_incoming_edges():
    edges = torch.tensor([[0, 1, 0], [1, 2, 2]])
    L = graph_laplacian(edges, 3, directed=True)
    assert L.matrix.to_dense().tolist() == [[0, 0, 0], [-1, 1, 0], [-1, -1, 2]]
    assert L.operator.T.dense().tolist() == L.matrix.to_dense().T.tolist()
    half = graph_laplacian(edges, 3, directed=True, normalization="sym").matrix.to_dense()
    torch.testing.assert_close(half[2], torch.tensor([0.0, -(2**-0.5), 1.0]))


@pytest.mark.parametrize("kind", [None, "sym", "rw", "gcn"])
def test_gradients_flow_to_weights_and_signals(kind):
    edges = both_ways((0, 1), (1, 2), (0, 3))
    x = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)

    def image(half, x):
        weight = torch.cat([half, half])
        made = graph_laplacian(edges, 4, weight=weight, normalization=kind)
        return made.operator @ x, made.matrix.to_dense()

    half = (0.5 + torch.rand(3, dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(image, (half, x))
    assert torch.autograd.gradgradcheck(lambda h, x: image(h, x)[0], (half, x))


def test_negative_weights_are_signed_differences():
    edges, weight = both_ways((0, 1), (1, 2)), torch.tensor([2.0, -1.0, 2.0, -1.0])
    L = graph_laplacian(edges, weight=weight).matrix.to_dense()
    assert L.tolist() == [[2, -2, 0], [-2, 1, 1], [0, 1, -1]]


BAD = [
    ({"edges": torch.tensor([[0, 1], [1, 3]]), "num_nodes": 3}, "< num_nodes = 3, got 3"),
    ({"edges": torch.tensor([[0, -1], [1, 0]])}, "edge_index must be >= 0, got -1"),
    ({"edges": torch.tensor([[0.0], [1.0]])}, "edge_index must hold integers, got torch.float32"),
    ({"edges": torch.tensor([0, 1])}, r"must have shape \(2, E\)"),
    ({"edges": torch.tensor([[0], [1]])}, "undirected unless directed=True, got 0 -> 1"),
    ({"edges": torch.zeros(2, 0, dtype=torch.long)}, "num_nodes must be >= 1, got 0"),
    ({"edges": path_edges(3), "normalization": "both"}, "one of None, 'sym', 'rw', 'gcn', got 'b"),
    ({"edges": path_edges(2), "weight": torch.ones(3)}, r"weight must have shape \(2,\)"),
    ({"edges": path_edges(2), "weight": torch.tensor([1.0, torch.nan])}, "weight must be finite"),
    (
        {"edges": path_edges(2), "weight": -torch.ones(2), "normalization": "sym"},
        "negative degree, got -1 at node 0",
    ),
    ({"edges": both_ways((0, 1)), "weight": torch.tensor([1.0, 2.0])}, "of the same weight"),
]


@pytest.mark.parametrize(("given", "message"), BAD, ids=lambda v: v if isinstance(v, str) else "")
def test_bad_graphs_are_refused(given, message, unchecked):
    with pytest.raises(ValueError, match=message):
        graph_laplacian(**given)
