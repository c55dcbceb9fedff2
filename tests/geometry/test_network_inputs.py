"""What belongs to nodes and what to edges, in every spelling of a graph network's input."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from vademecum.geometry import Adjacency, GraphAction, Group, wl_ceiling
from vademecum.geometry.graphs import map_graph, read_graph

CYCLE = torch.tensor([[0, 1, 2], [1, 2, 0]])  # as many edges as nodes
X, POS, W, KIND = torch.randn(3, 4), torch.randn(3, 2), torch.rand(3), torch.tensor([0, 0, 1])

INPUTS: dict[str, tuple[Any, list[Any], list[Any]]] = {  # with what is the nodes', the edges'
    "a tuple": ((X, CYCLE, W), [X], [W]),
    "more before the edges": ({"x": X, "h": POS, "edge_index": CYCLE, "w": W}, [X, POS], [W]),
    "names before places": (
        {"edge_attr": W, "edge_index": CYCLE, "pos": POS, "x": X, "batch": KIND},
        [POS, X, KIND],
        [W],
    ),
    "integers by their name": (
        {"z": KIND, "edge_index": CYCLE, "edge_type": KIND + 1},
        [KIND],
        [1],
    ),
    "an object": (SimpleNamespace(edge_index=CYCLE, x=X, edge_weight=W), [X], [W]),
    "an object among others": ((POS, SimpleNamespace(edge_index=CYCLE, x=X)), [POS, X], []),
    "a graph": ((X, Adjacency(CYCLE, 3, weight=W, batch=KIND * 0)), [X, KIND * 0], [W]),
    "two integer features": ((CYCLE[:, :2], torch.tensor([[0], [1]])), [CYCLE[:, :2]], []),
}


@pytest.mark.parametrize("name", INPUTS)
def test_what_belongs_where(name):
    x, nodes, edges = INPUTS[name]
    found = read_graph("x", x)
    assert found.n == (2 if name.startswith("two") else 3)
    assert all(a.equal(b) for a, b in zip(found.nodes, nodes, strict=True))
    assert len(found.of_edges) == len(edges)
    order = torch.arange(found.n).roll(1)
    again = read_graph("x", found.renumbered(order))
    assert all(a.equal(b[order]) for a, b in zip(again.nodes, found.nodes, strict=True))
    assert all(a is b for a, b in zip(again.of_edges, found.of_edges, strict=True))
    assert order[again.edge_index].equal(found.edge_index)  # the same ends, by their old numbers
    assert again.edge_index.dtype == found.edge_index.dtype


def test_weights_come_with_the_graph():
    for x in ((X, CYCLE, W), {"x": X, "edge_weight": W[:, None], "edge_index": CYCLE}):
        weight = read_graph("x", x, any_form=True).graph().weight
        assert weight is not None
        assert weight.equal(W)
    graph = Adjacency(CYCLE, 3, weight=W)
    assert read_graph("x", (X, graph), any_form=True).graph() is graph
    matrix = graph.dense().to_sparse()
    assert read_graph("x", (X, matrix), any_form=True).graph().dense().equal(graph.dense())
    assert read_graph("x", X, edges=graph, any_form=True).graph() is graph


def test_other_features_leave_the_rest_as_it_is():
    graph = Adjacency(CYCLE, 3, weight=W)
    new, same = read_graph("x", (X, graph), any_form=True).with_features(X + 1)
    assert new.equal(X + 1)
    assert same is graph  # with what it has sorted
    data = SimpleNamespace(edge_index=CYCLE, x=X, edge_weight=W)
    moved = read_graph("x", data, any_form=True).with_features(X + 1)
    assert moved.x.equal(X + 1)
    assert moved.edge_weight is W
    assert data.x is X
    assert map_graph(data, lambda t: t) is data


@pytest.mark.parametrize("order", [("x", "pos", "edge_index"), ("edge_index", "pos", "x")])
def test_positions_move_with_the_nodes_of_a_cycle(order):
    parts = {"x": X, "pos": POS, "edge_index": CYCLE}
    moved = GraphAction(Group.cyclic(3))(1, {k: parts[k] for k in order})
    assert list(moved) == list(order)
    assert moved["pos"].equal(POS.roll(1, 0))
    assert moved["x"].equal(X.roll(1, 0))


BAD = [
    ((X, CYCLE, KIND), r"x\[2\] must not be 3 integers where there are as many nodes as edges"),
    ((X, Adjacency(CYCLE, 4)), "x must have 4 rows of features, one for each node, got 3"),
    ((X, CYCLE + 1), r"edge_index must be < num_nodes = 3, got 3 at \(1, 1\)"),
    ((CYCLE,), "x must hold features of the nodes beside the edges"),
    (
        (X, CYCLE.float()),
        r"x must hold the graph, integers of shape \(2, E\) or an Adj.*, got x\[0",
    ),
    (None, "got no tensor"),
]


@pytest.mark.parametrize(("x", "message"), BAD)
def test_what_cannot_be_told_is_refused(x, message):
    with pytest.raises(ValueError, match=message):
        read_graph("x", x)


def test_features_of_an_object_are_colours_of_nodes():
    class Sums(torch.nn.Module):
        def forward(self, data: Any) -> torch.Tensor:
            return data.x.index_add(0, data.edge_index[1], data.x[data.edge_index[0]] ** 2).sum(0)

    one = SimpleNamespace(edge_index=CYCLE, x=torch.tensor([[1.0], [1.0], [2.0]]))
    two = SimpleNamespace(edge_index=CYCLE, x=torch.tensor([[1.0], [2.0], [2.0]]))
    found = wl_ceiling(Sums(), one, two)
    assert found.verdict == "tells them apart"
    assert found.test.different_at == 0
