"""What measures symmetry, on models with and without it, and what gives a symmetry to a model."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from vademecum.geometry import (
    GCN,
    Adjacency,
    FeatureAction,
    GraphAction,
    Group,
    ImageAction,
    PointAction,
    draw_orbit,
    equivariance_error,
    invariance_error,
    symmetrize,
)
from vademecum.testing import check_instrument, check_part
from vademecum.testing.laws import changes, snapshot


class Network(nn.Module):
    """Any function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args, **kwargs) -> Any:
        return self.function(*args, **kwargs)


def test_instruments_leave_any_model_as_it_was():
    rows = torch.randn(5, 6)

    def one(model, data):
        return invariance_error(model, data, group=Group.dihedral(6)).errors.T

    check_instrument(one, [], rows, per_example=True)
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 6)).train()
    before = snapshot(model)
    equivariance_error(model, rows, group=Group.cyclic(6))
    assert not list(changes(before, snapshot(model)))


def test_errors_are_those_of_the_definition():
    group, x = Group.dihedral(4), torch.randn(3, 2, 5, 5, dtype=torch.float64)
    net = nn.Conv2d(2, 3, 3).double().requires_grad_(False)
    found = equivariance_error(net, x, group=group)
    act = ImageAction(group)
    for g in group:
        a, b = net(act(g, x)).flatten(1), act(g, net(x)).flatten(1)
        wanted = (a - b).norm(dim=1) / torch.maximum(a.norm(dim=1), b.norm(dim=1))
        torch.testing.assert_close(found.errors[g], wanted)
    each = found.errors.amax(1)
    assert found.error == float(each.max())
    assert found.element == each.argmax()
    assert found.mean == pytest.approx(float(each.mean()))
    assert found.standard_error == 0
    again = equivariance_error(net, found.witness, group=group)
    assert again.error == pytest.approx(found.error)
    assert again.errors[found.element, 0] == again.error


def test_a_sum_is_invariant_and_a_position_is_not():
    x = torch.randn(4, 7, 3, dtype=torch.float64)
    group = Group.symmetric(7)
    assert invariance_error(Network(lambda x: x.sum(1)), x, group=group).error < 1e-14
    assert equivariance_error(Network(lambda x: x - x.mean(1, keepdim=True)), x,
                              group=group).error < 1e-14  # fmt: skip
    found = invariance_error(Network(lambda x: x[:, 0]), x, group=group)
    assert len(found.elements) == 200  # of 5040
    assert found.error > 0.5


def test_the_mean_over_a_large_group_is_estimated_with_its_error():
    """A model that sees whether point 0 stayed: the error is 0 in one of 40 cases, else 1."""
    x = torch.eye(40)[:1]
    net = Network(lambda x: x[:, :1] - 0.5)
    draw = torch.Generator().manual_seed(1)
    found = invariance_error(net, x, group=Group.symmetric(40), samples=600, generator=draw)
    assert set(found.errors.flatten().tolist()) == {0.0, 2.0}
    assert abs(found.mean - 2 * 39 / 40) < 5 * found.standard_error
    spread = 2 * (39 / 40**2) ** 0.5 / 600**0.5
    assert found.standard_error == pytest.approx(spread, rel=0.5)
    few = invariance_error(net, x, group=Group.symmetric(3) * Group.cyclic(37), samples=5)
    assert len(few.elements) == 5


def test_models_that_draw_or_write_are_measured_as_they_are():
    x = torch.randn(3, 8)
    noisy = Network(lambda x: x + torch.randn(8))  # the same numbers at each call
    still = invariance_error(noisy, x, group=Group.cyclic(3), action=lambda g, x: x)
    assert still.error == 0
    writing = nn.Sequential(nn.ReLU(inplace=True), nn.Flatten())
    before = x.clone()
    assert equivariance_error(writing, x, group=Group.cyclic(8)).error == 0
    assert x.equal(before)


def test_inputs_of_any_structure():
    x = {"x": torch.randn(2, 5, 3), "mask": torch.rand(2, 5) > 0.3}

    def mean(x, mask):
        return {"pooled": (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)}

    found = invariance_error(Network(mean), x, group=Group.symmetric(5), output="pooled")
    assert found.error < 1e-6
    assert found.errors.shape == (120, 2)
    assert set(found.witness) == {"x", "mask"}
    loader = DataLoader(TensorDataset(torch.randn(7, 1, 5)), batch_size=3)
    streamed = invariance_error(nn.Flatten(), loader, group=Group.cyclic(5),
                                action=PointAction(Group.cyclic(5), axis=2))  # fmt: skip
    assert streamed.errors.shape == (5, 7)
    assert streamed.error == streamed.errors.max()


def test_graph_action_renames_the_nodes():
    group, edges = Group.symmetric(4), torch.tensor([[0, 1, 2, 2], [1, 2, 3, 0]])
    x = torch.randn(4, 3, dtype=torch.float64)

    def summed(x, edge_index, weight=None):
        ones = torch.ones(edge_index.shape[1], 1).to(x) if weight is None else weight
        return torch.zeros_like(x).index_add(0, edge_index[1], ones * x[edge_index[0]])

    for rest in ((), (torch.rand(4, 1, dtype=torch.float64),)):
        found = equivariance_error(Network(summed), (x, edges, *rest), group=group)
        assert found.error < 1e-15
        assert found.errors.shape == (24, 1)
        assert isinstance(found.action, GraphAction)
    numbered = Network(lambda x, edge_index: x * torch.arange(1, 5)[:, None])
    assert equivariance_error(numbered, (x, edges), group=group).error > 0.1
    pooled = Network(lambda x, edge_index: summed(x, edge_index).tanh().sum(0))
    assert invariance_error(pooled, (x, edges), group=group).error < 1e-15
    dense = torch.zeros(4, 4)
    dense[edges[1], edges[0]] = 1
    for g in group:
        P = group.natural().matrix(g).float()
        _, new = GraphAction(group)(g, (x, edges))
        moved = torch.zeros(4, 4)
        moved[new[1], new[0]] = 1
        assert moved.equal(P @ dense @ P.T)


def test_graph_action_takes_an_adjacency_and_any_network():
    x, edges = torch.randn(5, 3), torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])
    for graph in (
        edges,
        Adjacency(edges, 5),
        Adjacency(edges, 5, weight=torch.rand(3).repeat_interleave(2)),
    ):
        net = GCN(3, 4, 2).eval()
        found = equivariance_error(net, (x, graph), group=Group.symmetric(5))
        assert found.error < 1e-5
        assert isinstance(found.action, GraphAction)
    batch = torch.tensor([0, 0, 0, 1, 1])
    swap = Group.from_permutations([torch.tensor([1, 0, 2, 4, 3])])
    _, moved = GraphAction(swap)(1, (x, Adjacency(edges, 5, batch=batch)))
    assert moved.batch.equal(batch)
    assert moved.edge_index.tolist() == [[1, 0, 0, 2, 4, 3], [0, 1, 2, 0, 3, 4]]


def test_image_action_by_index_and_by_interpolation():
    across, down = torch.meshgrid(torch.linspace(-1, 1, 65), torch.linspace(-1, 1, 65),
                                  indexing="xy")  # fmt: skip

    def blob(x: float, y: float) -> Tensor:
        return torch.exp(-60 * ((across - x) ** 2 + (down + y) ** 2))[None, None]  # y upwards

    eighth = ImageAction(Group.dihedral(8))
    assert not eighth.exact
    half = 0.5**0.5
    assert (eighth(1, blob(0.5, 0.0)) - blob(0.5 * half, 0.5 * half)).abs().max() < 0.03
    assert eighth(2, blob(0.5, 0.1)).equal(blob(0.5, 0.1).rot90(1, (-2, -1)))
    assert (eighth(9, blob(0.5, 0.0)) - blob(0.5 * half, 0.5 * half)).abs().max() < 0.03
    assert (eighth(11, blob(0.3, 0.4)) - eighth(3, blob(0.3, -0.4))).abs().max() < 1e-5
    wide = torch.randn(1, 1, 9, 17).tanh()
    turned = eighth(1, eighth(7, nn.functional.pad(wide, (20, 20, 20, 20))))[..., 20:-20, 20:-20]
    assert torch.corrcoef(torch.stack([turned.flatten(), wide.flatten()]))[0, 1] > 0.6
    found = invariance_error(nn.Flatten(), blob(0, 0), group=Group.cyclic(8))
    assert not found.exact
    assert 0 < found.error < 0.05  # of the interpolation alone


def test_feature_action_is_an_action():
    group = Group.dihedral(4)
    act, x = FeatureAction(group), torch.randn(2, 3, 8, 4, 5)
    for g in group:
        for h in group:
            assert act(g, act(h, x)).equal(act(group.multiply(g, h), x))
    assert not act(1, x).equal(act(3, x))


def test_symmetrize_keeps_the_laws_of_parts():
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(27, 4))
    part = symmetrize(net, Group.dihedral(4))
    check_part(part, torch.randn(3, 2, 5, 5), devices=("cpu", "meta"))
    assert next(name for name, _ in part.named_parameters()) == "model.0.weight"


@pytest.mark.parametrize("memory", [None, 1, 2000])
def test_symmetrize_is_the_mean_over_the_orbit(memory):
    group, net = Group.dihedral(4), nn.Conv2d(1, 2, (3, 2)).double()
    act = ImageAction(group)
    x = torch.randn(3, 1, 6, 6, dtype=torch.float64)
    equivariant = symmetrize(net, group, out_action=act, memory=memory)
    answers = [act(group.inverse(g), net(act(g, x))) for g in group if g in (0, 2, 4, 6)]
    with pytest.raises(ValueError, match="one shape for all"):  # 3 x 2 gives others when turned
        equivariant(x)
    half = symmetrize(net, Group.dihedral(2), out_action=ImageAction(Group.dihedral(2)),
                      memory=memory)  # fmt: skip
    torch.testing.assert_close(half(x), torch.stack(answers).mean(0))
    assert equivariance_error(half, x, group=Group.dihedral(2)).error < 1e-15


def test_symmetrize_takes_graphs_and_several_inputs():
    x, edges = torch.randn(3, 2), torch.tensor([[0, 1], [1, 2]])
    net = Network(lambda x, edge_index: (x * torch.arange(3)[:, None])[edge_index[0]].sum(0))
    mean = symmetrize(net, Group.symmetric(3))
    assert invariance_error(mean, (x, edges), group=Group.symmetric(3)).error < 1e-6
    named = symmetrize(Network(lambda a, b: a[:, 0] * b[:, 1]), Group.cyclic(2))
    a, b = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 5.0]])
    assert float(named(a=a, b=b)) == (1 * 5 + 2 * 3) / 2
    assert float(named(a, b)) == 5.5


def test_draw_orbit_shows_every_element():
    x = torch.rand(2, 3, 6, 6)
    found = invariance_error(nn.Flatten(), x, group=Group.dihedral(4))
    (axes,) = draw_orbit(found).axes
    assert len(axes.images) == 8
    column = int(found.errors.argmax()) % 2
    texts = [text.get_text() for text in axes.texts]
    assert texts[1] == f"r\n{float(found.errors[1, column]):.2g}"
    signal = invariance_error(nn.Flatten(), torch.rand(1, 40), group=Group.cyclic(40))
    (axes,) = draw_orbit(signal).axes
    assert len(axes.texts) == 16
    assert signal.name in [text.get_text().split("\n")[0] for text in axes.texts]
    graph = (torch.rand(3, 2), torch.tensor([[0], [1]]))
    bars = equivariance_error(Network(lambda x, _: x), graph, group=Group.symmetric(3))
    assert len(draw_orbit(bars).axes[0].patches) == 6
