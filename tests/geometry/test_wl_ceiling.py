"""What networks can tell apart: as strong as the test, weaker, and beyond it; left untouched."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from vademecum.geometry import wl_ceiling
from vademecum.models import mlp
from vademecum.testing import check_instrument


class Net(nn.Module):
    """Layers that add, average or maximise over neighbours, and a sum over nodes."""

    def __init__(self, d: int = 1, layers: int = 3, how: Literal["sum", "mean", "amax"] = "sum"):
        super().__init__()
        widths = [d, *[8] * layers]
        self.layers = nn.ModuleList(mlp([a, 8, b], nn.Tanh) for a, b in pairwise(widths))
        self.how, self.out = how, nn.Linear(8, 3)

    def forward(self, x, edge_index, edge_weight=None):
        for layer in self.layers:
            sent = x[edge_index[0]]
            if edge_weight is not None:
                sent = sent * edge_weight[:, None]
            index = edge_index[1][:, None].expand_as(sent)
            zero = torch.zeros_like(x)
            x = layer(x + zero.scatter_reduce(0, index, sent, self.how, include_self=False))
        return self.out(x.sum(0) if self.how == "sum" else x.mean(0))


class OfNodes(Net):
    def forward(self, x, edge_index, edge_weight=None):
        for layer in self.layers:
            x = layer(x + torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]]))
        return self.out(x)


class Numbered(Net):
    """Adds a node's number to its features."""

    def forward(self, x, edge_index, edge_weight=None):
        return super().forward(x + torch.linspace(0, 1, len(x)).to(x)[:, None], edge_index)


class Triangles(nn.Module):
    def forward(self, x, edge_index):
        A = x.new_zeros(len(x), len(x))
        A[edge_index[1], edge_index[0]] = 1
        return (A @ A @ A).trace()[None] + x.sum()


def ring(*nexts: int) -> tuple[Tensor, Tensor]:
    one = torch.tensor([range(len(nexts)), nexts])
    return torch.ones(len(nexts), 1), torch.cat([one, one.flip(0)], 1)


HEXAGON, TRIANGLES = ring(1, 2, 3, 4, 5, 0), ring(1, 2, 0, 4, 5, 3)
PATH = torch.ones(6, 1), HEXAGON[1][:, [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]]
STAR = torch.ones(4, 1), torch.tensor([[0, 0, 0, 1, 2, 3], [1, 2, 3, 0, 0, 0]])
PATH_4 = torch.ones(4, 1), torch.tensor([[0, 1, 2, 1, 2, 3], [1, 2, 3, 0, 1, 2]])


@pytest.mark.parametrize("how", ["sum", "mean", "amax"])
def test_no_weights_tell_a_hexagon_from_triangles(how):
    found = wl_ceiling(Net(how=how), HEXAGON, TRIANGLES)
    assert found.verdict == "cannot tell them apart, nor can 1-WL"
    assert (found.separated, found.weights, found.order) == (False, None, None)
    assert found.gaps.shape == (9,)
    assert found.gaps.max() < 1e-12


@pytest.mark.parametrize("model", [Net(), OfNodes()])
def test_sums_tell_what_the_test_tells(model):
    found = wl_ceiling(model, HEXAGON, PATH)
    assert found.verdict == "tells them apart"
    assert found.weights is not None
    copied = type(model)().double()
    copied.load_state_dict(found.weights)
    one, two = (copied(x.double(), e) for x, e in (HEXAGON, PATH))
    assert (one.sum(-2) - two.sum(-2) if one.ndim > 1 else one - two).abs().max() > 1e-6


def test_averages_do_not():
    found = wl_ceiling(Net(how="mean"), STAR, PATH_4)
    assert found.verdict == (
        "did not tell them apart for any weights, although 1-WL does in round 1"
    )


def test_beyond_the_test():
    found = wl_ceiling(Numbered(), HEXAGON, TRIANGLES)
    assert found.verdict == "depends on how nodes are numbered, and so is beyond 1-WL"
    assert found.separated
    assert found.order is not None
    assert found.order.sort().values.tolist() == list(range(6))
    found = wl_ceiling(Triangles(), HEXAGON, TRIANGLES)
    assert found.verdict == "tells apart what 1-WL cannot, without looking at node numbers"
    assert found.weights == {}
    assert found.gaps.tolist() == [12 / 18] * 9  # 0 + 6 beside 12 + 6


def test_features_and_weights_are_colours():
    x = torch.ones(6, 1)
    x[0] = 2.0
    found = wl_ceiling(Net(), (x, HEXAGON[1]), (x, TRIANGLES[1]))
    assert found.test.different_at == 2  # the neighbours of those that see the marked one
    assert found.separated
    w = torch.ones(12)
    w[0] = w[6] = 3.0  # of one edge, both ways
    pair = [{"x": g[0], "edge_index": g[1], "edge_weight": w} for g in (HEXAGON, TRIANGLES)]
    found = wl_ceiling(Net(), *pair)
    assert found.test.different_at is not None
    assert found.separated
    plain = [{**each, "edge_weight": torch.ones(12)} for each in pair]
    assert not wl_ceiling(Net(), *plain).separated


class OfData(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, data):
        return self.net(data.x, data.edge_index)


def test_objects_with_edges():
    one, two, other = (
        SimpleNamespace(x=g[0], edge_index=g[1], num_nodes=6) for g in (HEXAGON, TRIANGLES, PATH)
    )
    assert not wl_ceiling(OfData(), one, two).separated
    found = wl_ceiling(OfData(), one, other)
    assert found.verdict == "tells them apart"
    assert found.renumbered.max() < 1e-12


def test_graphs_of_different_size():
    found = wl_ceiling(OfNodes(), STAR, HEXAGON)
    assert (found.verdict, found.test.different_at) == ("tells them apart", 0)


def test_laws():
    class Normed(Net):
        def __init__(self):
            super().__init__()
            self.norm, self.drop = nn.BatchNorm1d(3), nn.Dropout()

        def forward(self, x, edge_index, edge_weight=None):
            return self.drop(self.norm(super().forward(x, edge_index)[None]))

    def gaps(model, x):
        found = wl_ceiling(model, x, PATH)
        return found.gaps, found.renumbered

    net = Net()
    net.out.weight.requires_grad_(False)
    check_instrument(gaps, {"Net": net, "Normed": Normed().train()}, HEXAGON, outputs=None)


def test_parameters_without_numbers_are_drawn_like_others():
    net = Net()
    net.register_parameter("none", nn.Parameter(torch.empty(0, 3)))
    path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    graph = torch.ones(3, 1), path
    assert not wl_ceiling(net, graph, graph).separated
