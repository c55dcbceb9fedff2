"""Influence of far nodes against autograd's Jacobian, and walks against powers of matrices."""

import pytest
import torch
from torch import Tensor, nn

from tests.geometry.small_graphs import both_ways, path_edges
from tests.geometry.test_oversmoothing import EDGES, Data, Net, OfData, X
from vademecum.geometry import (
    Adjacency,
    PolynomialConv,
    draw_leaf_influence,
    gcn_norm,
    leaf_influence,
)
from vademecum.testing.laws import changes, snapshot


def dense(edges: Tensor, n: int) -> Tensor:
    A = torch.eye(n, dtype=torch.float64)
    A[edges[1], edges[0]] = 1
    return A


def test_leaf_influence_is_the_norm_of_the_jacobian():
    net = Net()
    assert net.norm.running_var is not None
    nn.init.uniform_(net.norm.running_var, 0.5, 2)
    before = snapshot(net)
    found = leaf_influence(net, (X, EDGES), node=4, output="logits")
    assert not list(changes(before, snapshot(net)))
    net.eval()
    J = torch.autograd.functional.jacobian(lambda x: net(x, EDGES)["logits"][4], X)
    wanted = torch.linalg.matrix_norm(J.movedim(1, 0), 2)
    torch.testing.assert_close(found.influence, wanted)
    assert found.depth == 3
    assert found.influence.dtype == X.dtype
    walks = torch.linalg.matrix_power(gcn_norm(EDGES, 12, dtype=torch.float64).dense(), 3)[4]
    torch.testing.assert_close(found.walks, walks.float())
    ratio = (wanted.double() / walks).nan_to_num()
    torch.testing.assert_close(found.c, float(ratio.max() ** (1 / 3)), rtol=1e-5, atol=0)
    assert (found.influence <= found.bound * (1 + 1e-5)).all()
    for model, x in ((net, {"x": X, "edge_index": EDGES}), (net, (X, EDGES))):
        same = leaf_influence(model, x, node=4, output=lambda out: out["logits"])
        torch.testing.assert_close(same.influence, wanted)


def test_an_object_that_holds_the_features_stays_as_it_is():
    class First(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = OfData(PolynomialConv(3, 2, degree=1, normalization="gcn"))

        def forward(self, data):
            return self.inner(data)

    model, data = First(), Data(X, EDGES)
    found = leaf_influence(model, data, node=0)
    assert data.x is X
    assert not X.requires_grad
    plain = leaf_influence(model.inner.net, (X, Adjacency(EDGES, 12)), node=0)
    torch.testing.assert_close(found.influence, plain.influence)
    assert (found.influence[found.hops > 1] == 0).all()
    assert found.depth == plain.depth == 1


@pytest.mark.parametrize("propagation", ["gcn", "mean", "sum"])
def test_walks_are_rows_of_powers(propagation):
    edges, n = both_ways((0, 1), (1, 2), (1, 3), (4, 5)), 7
    layer = PolynomialConv(1, 1, degree=1, normalization="gcn").double()
    model = nn.ModuleList([layer] * 4)

    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = model

        def forward(self, x, edges):
            for each in self.layers:
                x = each(x, edges)
            return x

    found = leaf_influence(
        Deep(), (torch.randn(n, 1).double(), edges), node=2, c=2.0, propagation=propagation
    )
    A = dense(edges, n)
    d = A.sum(1)
    if propagation == "gcn":
        A = A / torch.outer(d, d).sqrt()
    elif propagation == "mean":
        A = A / d[:, None]
    torch.testing.assert_close(found.walks, torch.linalg.matrix_power(A, 4)[2])
    torch.testing.assert_close(found.bound, 16 * found.walks)
    assert found.hops.tolist() == [2, 1, 0, 2, -1, -1, -1]
    means = torch.stack([found.influence[found.hops == r].mean() for r in range(3)])
    torch.testing.assert_close(found.by_hop, means)
    bounds = torch.stack([found.bound[found.hops == r].mean() for r in range(3)])
    torch.testing.assert_close(found.bound_by_hop, bounds)


def test_hops_of_a_directed_graph_lead_to_the_node():
    edges = torch.tensor([[0, 1, 3], [1, 2, 2]])
    layer = PolynomialConv(1, 1, degree=1, normalization="rw", directed=True)
    found = leaf_influence(layer, (torch.randn(4, 1), edges), node=2, propagation="mean")
    assert found.hops.tolist() == [2, 1, 0, 1]
    torch.testing.assert_close(found.walks, torch.tensor([0, 1 / 3, 1 / 3, 1 / 3]))


def test_influence_past_all_walks_makes_the_constant_infinite():
    class Sum(nn.Module):
        def forward(self, x, edges):
            return x + x.sum(0)

    found = leaf_influence(Sum(), (torch.randn(3, 1), both_ways((0, 1))), node=0)
    assert found.c == float("inf")
    assert found.bound[2] == 0
    nothing = leaf_influence(
        PolynomialConv(1, 1, degree=1).requires_grad_(False),
        (torch.zeros(2, 1), path_edges(2)),
        node=0,
    )
    assert nothing.c > 0


def test_influence_in_half_precision():
    layer = PolynomialConv(2, 3, degree=1, normalization="gcn")
    x, edges = torch.randn(4, 2), path_edges(4)
    wanted = leaf_influence(layer, (x, edges), node=1)
    found = leaf_influence(layer.bfloat16(), (x.bfloat16(), edges), node=1)
    assert found.influence.dtype == torch.bfloat16
    torch.testing.assert_close(found.influence.float(), wanted.influence, rtol=0.05, atol=0.01)


def test_bounds_beyond_all_numbers_are_infinite():
    net = nn.ModuleDict({"layers": nn.ModuleList([PolynomialConv(3, 3, degree=1)] * 2)})
    net.forward = lambda x, e: net["layers"][1](net["layers"][0](x, e), e)  # pyright: ignore
    found = leaf_influence(net, (X, EDGES), node=0, c=1e300)
    assert found.bound[0] == float("inf")


def test_hops_of_a_long_path():
    layer = PolynomialConv(1, 1, degree=1)
    found = leaf_influence(layer, (torch.randn(5000, 1), path_edges(5000)), node=10)
    assert torch.equal(found.hops, (torch.arange(5000) - 10).abs())


@pytest.mark.parametrize("propagation", ["gcn", "mean"])
def test_walks_over_negative_degrees_are_refused(propagation):
    graph = Adjacency(path_edges(3), 3, weight=-3 * torch.ones(4))
    given = {"node": 0, "edges": graph, "propagation": propagation}
    with pytest.raises(ValueError, match="no node a negative degree, got -2 at node 0"):
        leaf_influence(PolynomialConv(1, 1, degree=1), (torch.ones(3, 1), path_edges(3)), **given)


def test_draw_leaf_influence_draws_dots_and_two_lines():
    figure = draw_leaf_influence(leaf_influence(Net(), (X, EDGES), node=0, output="logits"))
    assert [line.get_label() for line in figure.axes[0].lines][1] == "influence, mean"
    assert len(figure.axes[0].lines) == 3


class Pools(nn.Module):
    def forward(self, x, edges):
        return x.sum(0, keepdim=True)


BAD = [
    (Net(), {"node": 12, "output": "logits"}, "node must be <= 11, got 12"),
    (Net(), {"node": -1, "output": "logits"}, "node must be >= 0, got -1"),
    (Net(), {"node": 0}, "say which entry counts with output="),
    (Net(), {"node": 0, "output": "logits", "c": -1.0}, "c must be >= 0, got -1.0"),
    (Pools(), {"node": 0}, "row for each of 12 nodes, got shape"),
    (
        PolynomialConv(3, 1, degree=1),
        {"node": 0, "propagation": "max"},
        "propagation must be one of 'gcn', 'mean', 'sum', got 'max'",
    ),
]


@pytest.mark.parametrize(("model", "given", "message"), BAD, ids=[m for *_, m in BAD])
def test_what_has_no_influence_is_refused(model, given, message, unchecked):
    with pytest.raises(ValueError, match=message):
        leaf_influence(model, (X, EDGES), **given)
