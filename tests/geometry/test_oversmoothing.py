"""Oversmoothing of networks that know nothing of this library, in every spelling of a graph."""

import networkx as nx
import pytest
import torch
from torch import Tensor, nn

from tests.geometry.small_graphs import both_ways, of_networkx, path_edges
from vademecum.geometry import (
    Adjacency,
    PolynomialConv,
    dirichlet_energy,
    draw_oversmoothing,
    gcn_norm,
    oversmoothing,
)
from vademecum.testing.laws import changes, snapshot

EDGES, _ = of_networkx(nx.connected_watts_strogatz_graph(12, 4, 0.3, seed=1))
X = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))


class Mean(nn.Module):
    """A layer of a stranger's: means over neighbours, by `index_add`."""

    def __init__(self, a: int, b: int):
        super().__init__()
        self.lin = nn.Linear(a, b)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        u, v = edge_index
        w = torch.ones(len(u)) if edge_weight is None else edge_weight
        total = torch.zeros_like(x).index_add(0, v, x[u] * w[:, None])
        return self.lin((x + total) / (1 + torch.zeros(len(x)).index_add(0, v, w))[:, None])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([Mean(3, 4), Mean(4, 4), Mean(4, 2)])
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.seen = list[Tensor]()

    def forward(self, x, edge_index, edge_weight=None):
        for i, conv in enumerate(self.convs):
            x = conv(x, edge_index, edge_weight)
            self.seen.append(x)
            if i < 2:
                x = self.drop(self.norm(x.relu_()))
        return {"logits": x}


def by_hand(net: "Net", x: Tensor, edges: Tensor, *rest: Tensor) -> Tensor:
    """The energies of the input and of what each layer gives, one component."""
    seen = [x]
    hooks = [c.register_forward_hook(lambda m, i, o: seen.append(o.clone())) for c in net.convs]
    net.eval()
    with torch.no_grad():
        net(x, edges, *rest)
    net.train()
    for hook in hooks:
        hook.remove()
    weight = rest[0].double() if rest else None
    kind = {"weight": weight, "normalization": "gcn"}
    return torch.stack([dirichlet_energy(t.double(), edges, **kind) for t in seen])


def test_oversmoothing_of_a_stranger_and_what_it_leaves():
    net = Net()
    before = snapshot(net)
    found = oversmoothing(net, (X, EDGES))
    assert not list(changes(before, snapshot(net)))
    assert found.names == ("input", "convs.0", "convs.1", "convs.2")
    wanted = by_hand(net, X, EDGES)
    torch.testing.assert_close(found.energy[:, 0], wanted)
    torch.testing.assert_close(found.share[0, 0], wanted[0] / X.double().square().sum())
    A = gcn_norm(EDGES, 12, dtype=torch.float64).dense()
    rate = torch.linalg.eigvalsh(A)[:-1].abs().max()
    torch.testing.assert_close(found.rate[0], rate)
    torch.testing.assert_close(found.bound[:, 0], wanted[0] * rate ** (2 * torch.arange(4)))
    assert found.component.tolist() == [0] * 12


class Data:
    def __init__(self, x: Tensor, edge_index: Tensor):
        self.x, self.edge_index = x, edge_index


class OfData(nn.Module):
    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def forward(self, data):
        return self.net(data.x, data.edge_index)


def test_every_spelling_of_a_graph_gives_the_same():
    net = Net()
    wanted = oversmoothing(net, (X, EDGES)).energy
    for model, x in [
        (net, {"x": X, "edge_index": EDGES}),
        (net, {"edge_index": EDGES, "x": X, "edge_weight": torch.ones(EDGES.shape[1])}),
        (net, (X, EDGES, torch.ones(EDGES.shape[1]))),
        (OfData(net), Data(X, EDGES)),
    ]:
        torch.testing.assert_close(oversmoothing(model, x).energy, wanted)
    weight = 1 + torch.rand(EDGES.shape[1] // 2).repeat(2)
    found = oversmoothing(net, (X, EDGES, weight))
    torch.testing.assert_close(found.energy[:, 0], by_hand(net, X, EDGES, weight))


class Dense(nn.Module):
    """A network whose own code multiplies by the matrix of the graph."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x, A):
        return A @ self.two((A @ self.one(x)).relu())


def test_code_that_multiplies_by_a_matrix_is_seen_by_its_modules():
    A = torch.zeros(12, 12)
    A[EDGES[1], EDGES[0]] = 1
    net = Dense()
    found = oversmoothing(net, (X, A.to_sparse()))
    assert found.names == ("input", "one", "two", "model")
    last = dirichlet_energy(net(X, A).double().detach(), EDGES, normalization="gcn")
    torch.testing.assert_close(found.energy[-1, 0], last)
    same = oversmoothing(net, (X, A), edges=EDGES)
    torch.testing.assert_close(same.energy, found.energy)
    chosen = oversmoothing(net, (X, A), edges=EDGES, layers=["two"])
    assert chosen.names == ("input", "two")
    torch.testing.assert_close(chosen.energy[1], found.energy[2])


def test_components_have_rates_of_their_own():
    edges = both_ways((0, 3), (3, 5), (1, 2), (2, 4), (4, 1))  # a path, a triangle, and node 6
    layer = PolynomialConv(2, 2, degree=1, normalization="gcn")
    found = oversmoothing(layer, (torch.randn(7, 2), Adjacency(edges, 7)))
    assert found.names == ("input", "model")
    assert found.component.tolist() == [0, 1, 1, 0, 1, 0, 2]
    torch.testing.assert_close(found.rate, torch.tensor([0.5, 0.0, 0.0]).double())
    assert found.energy[:, 2].tolist() == [0, 0]
    x = torch.randn(7, 2)
    whole = oversmoothing(layer, (x, edges))
    alone = oversmoothing(layer, (x[[0, 3, 5]], path_edges(3)))
    torch.testing.assert_close(whole.energy[:, :1], alone.energy, rtol=1e-5, atol=0)
    plain = oversmoothing(layer, (x, edges), normalization=None)
    torch.testing.assert_close(plain.energy[0].sum(), dirichlet_energy(x.double(), edges))
    torch.testing.assert_close(plain.rate, whole.rate)
    half = oversmoothing(layer, (x, edges), normalization="sym")
    torch.testing.assert_close(half.rate, torch.tensor([1.0, 0.5, 0.0]).double())


def test_rates_of_large_components_are_found_by_iteration():
    edges = torch.cat([path_edges(1500), torch.tensor([[0, 1499], [1499, 0]])], 1)  # a cycle
    layer = PolynomialConv(1, 1, degree=1)
    x, state = torch.randn(1500, 1), torch.get_rng_state()
    found = oversmoothing(layer, (x, edges))
    assert torch.equal(torch.get_rng_state(), state)
    angle = torch.tensor(2 * torch.pi / 1500).double()
    torch.testing.assert_close(found.rate[0], (1 + 2 * angle.cos()) / 3, rtol=0, atol=1e-10)


def test_outputs_of_zero_have_no_share():
    layer = PolynomialConv(2, 2, degree=1, bias=False)
    nn.init.zeros_(layer.weight)
    found = oversmoothing(layer, (torch.randn(3, 2), path_edges(3)))
    assert found.share[1].tolist() == [0]
    assert found.energy[1].tolist() == [0]


def test_edges_that_weigh_nothing_join_nothing():
    edges, weight = both_ways((0, 1), (1, 2), (2, 3)), torch.tensor([1.0, 0, 2]).repeat(2)
    layer, x = PolynomialConv(2, 2, degree=1).double(), torch.randn(4, 2).double()
    for kind in (torch.float64, torch.bfloat16):
        found = oversmoothing(layer, (x, edges), edges=Adjacency(edges, 4, weight=weight.to(kind)))
        assert found.component.tolist() == [0, 0, 1, 1]
        wanted = torch.tensor([0.0, 1 / 3]).double()  # of [[1, 2], [2, 1]] / 3
        torch.testing.assert_close(found.rate, wanted)


def test_layers_that_give_nan_have_no_share_of_zero():
    layer = PolynomialConv(2, 2, degree=1)
    nn.init.constant_(layer.weight, torch.nan)
    found = oversmoothing(layer, (torch.randn(3, 2), path_edges(3)))
    assert found.share[1].isnan().all()
    assert found.energy[1].isnan().all()


def test_graphs_without_edges_have_energies_of_zero():
    for n in (0, 3):
        x, edges = torch.randn(n, 2), torch.empty(2, 0, dtype=torch.long)
        found = oversmoothing(PolynomialConv(2, 2, degree=1), (x, edges))
        assert found.energy.dtype == found.share.dtype == torch.float64
        assert found.energy.tolist() == [[0.0] * n] * 2


def test_draw_oversmoothing_draws_the_largest_components():
    edges = both_ways(*((7 * i + j, 7 * i + j + 1) for i in range(7) for j in range(i)))
    layer = PolynomialConv(2, 2, degree=1)
    figure = draw_oversmoothing(oversmoothing(layer, (torch.randn(50, 2), edges)))
    legend = figure.axes[0].get_legend()
    assert legend is not None
    labels = [text.get_text() for text in legend.get_texts()]
    assert len(labels) == 5
    assert labels[0].startswith("7 nodes, rate 0.")


class Pools(nn.Module):
    def forward(self, x, edges):
        return x.sum(0)


BAD = [
    (Net(), (X,), "x must hold the graph"),
    (Net(), (EDGES,), "floating-point row of features for each node, got none"),
    (Net(), (X, torch.tensor([[0], [1]])), "undirected for a spectral rate, got 0 -> 1"),
    (Net(), (X[:5], EDGES), "edge_index must be < num_nodes = 5"),
    (Pools(), (X, EDGES), "layers that give a row for each of 12 nodes, got none"),
    (Net(), (X * torch.nan, EDGES), "must not hold NaN"),
]


@pytest.mark.parametrize(("model", "x", "message"), BAD, ids=[m for *_, m in BAD])
def test_what_cannot_be_measured_is_refused(model, x, message, unchecked):
    with pytest.raises(ValueError, match=message):
        oversmoothing(model, x)
    with pytest.raises(ValueError, match="names of modules that give 12 rows, got 'none'"):
        oversmoothing(Net(), (X, EDGES), layers=["none"])
    with pytest.raises(ValueError, match="normalization must be one of"):
        oversmoothing(Net(), (X, EDGES), normalization="rw")
