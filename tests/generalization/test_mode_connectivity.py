"""Paths between networks: losses by hand, barriers, statistics renewed, a trained curve."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.generalization.landscape_models import (
    MODELS,
    Tied,
    convolutional,
    digits,
    inputs,
    same_state,
    seeded,
    state,
    trained,
)
from vademecum.generalization import draw_mode_connectivity, mode_connectivity
from vademecum.generalization.connections._bezier import bezier
from vademecum.gradients import functional
from vademecum.models import mlp
from vademecum.regularization import permute_units


def mixed(a, b, t):
    """The network between two, parameter by parameter."""
    other = deepcopy(a)
    with torch.no_grad():
        for p, u, v in zip(other.parameters(), a.parameters(), b.parameters(), strict=True):
            p.copy_((1 - t) * u + t * v)
    return other


@pytest.mark.parametrize("name", ["mlp", "tied", "encoder"])
def test_mode_connectivity_by_hand(name):
    a, b = (seeded(MODELS[name][0], seed).double() for seed in (1, 2))
    x = inputs(name)
    y = torch.arange(len(x)) % 3 if name != "encoder" else torch.randn_like(x)
    kept = [state(m) for m in (a, b)]
    found = mode_connectivity(a, b, x, y, points=5)
    loss = F.cross_entropy if name != "encoder" else F.mse_loss
    for i, t in enumerate((0, 0.25, 0.5, 0.75, 1)):
        with torch.no_grad():
            z = mixed(a, b, t).eval()(x)
        assert float(found.losses[i]) == pytest.approx(float(loss(z, y)), rel=1e-10)
        if name == "encoder":
            assert found.errors[i].isnan()
        else:
            assert float(found.errors[i]) == float((z.argmax(1) != y).double().mean())
    line = (1 - found.t) * found.losses[0] + found.t * found.losses[-1]
    assert found.barrier == pytest.approx(float((found.losses - line).max()), abs=1e-12)
    assert all(same_state(m, before) for m, before in zip((a, b), kept, strict=True))
    with torch.no_grad():
        assert torch.allclose(found.middle.eval()(x), mixed(a, b, 0.5).eval()(x))
    assert found.bend is None
    assert found.alignment is None


def test_flags_and_modes_of_the_copy_are_those_of_the_first():
    a, b, x = Tied().double(), Tied().double(), inputs("tied")
    a.train()
    a.two.eval()
    middle = mode_connectivity(a, b, x, torch.arange(len(x)) % 3, points=2).middle
    assert [p.requires_grad for p in middle.parameters()] == [
        p.requires_grad for p in a.parameters()
    ]
    assert [m.training for m in middle.modules()] == [m.training for m in a.modules()]
    assert middle.two is middle.again


def test_statistics_of_batches_are_renewed():
    """They are those of the data at each point: one pass in training mode sets them by hand."""
    a, b = (seeded(convolutional, seed).double() for seed in (1, 2))
    x = inputs("convolutional", n=20)
    y = torch.arange(20) % 3
    found = mode_connectivity(a, b, x, y, points=3)
    for i, t in enumerate((0, 0.5, 1)):
        other: Any = mixed(a, b, t).eval()
        z = other[0](x)
        other[1].running_mean.copy_(z.mean((0, 2, 3)))
        other[1].running_var.copy_(z.var((0, 2, 3)))
        with torch.no_grad():
            wanted = float(F.cross_entropy(other(x), y))
        assert float(found.losses[i]) == pytest.approx(wanted, rel=1e-9)
    middle: Any = found.middle
    assert middle[1].momentum == a[1].momentum


def test_other_buffers_go_along_the_line():
    class Shifted(nn.Module):
        def __init__(self, shift):
            super().__init__()
            self.layer = nn.Linear(1, 1, bias=False)
            self.register_buffer("shift", torch.tensor([shift]))
            nn.init.ones_(self.layer.weight)

        def forward(self, x):
            return self.layer(x) + self.shift

    found = mode_connectivity(
        Shifted(0.0), Shifted(2.0), torch.zeros(3, 1), torch.zeros(3, 1), points=3
    )
    assert found.losses.tolist() == [0, 1, 4]


def test_a_permuted_copy_has_a_barrier_on_the_line_and_none_when_aligned():
    a = seeded(convolutional, 1).double()
    x = inputs("convolutional", n=30)
    with torch.no_grad():
        y = a.eval()(x).argmax(1)
    b = permute_units(a, x[:1], generator=torch.Generator().manual_seed(0)).model
    aligned = mode_connectivity(a, b, x, y, path="aligned", points=5)
    assert aligned.barrier == pytest.approx(0, abs=1e-12)
    assert aligned.alignment is not None
    assert aligned.alignment.distance == 0
    assert aligned.losses.std() < 1e-12


@pytest.fixture(scope="module")
def pair():
    x, y = digits()
    return x, y, trained(0, 32, 2, x, y), trained(1, 32, 2, x, y)


def test_a_curve_avoids_the_barrier(pair):
    x, y, a, b = pair
    source = torch.Generator().manual_seed(0)
    line = mode_connectivity(a, b, x, y, points=11)
    curve = mode_connectivity(a, b, x, y, path="curve", points=11, updates=300, generator=source)
    assert line.barrier > 0.5
    assert curve.barrier < line.barrier / 5
    assert torch.allclose(curve.losses[[0, -1]], line.losses[[0, -1]])
    f = functional(a)
    assert curve.bend is not None
    theta = f.theta / 4 + curve.bend / 2 + functional(b).theta / 4
    with torch.no_grad():
        assert float(curve.losses[5]) == pytest.approx(float(F.cross_entropy(f(theta, x), y)))


def test_the_bend_follows_the_gradient_at_the_point():
    """One step of Adam with all data: the sign of the gradient at the point, times eta."""
    a, b = (seeded(lambda: mlp([3, 4, 2]), seed).double() for seed in (1, 2))
    x, y = torch.randn(9, 3).double(), torch.arange(9) % 2
    knobs = {"path": "curve", "updates": 1, "eta": 0.1, "batch": None, "points": 3}
    found = mode_connectivity(a, b, x, y, generator=torch.Generator().manual_seed(3), **knobs)
    t = float(torch.rand((), generator=torch.Generator().manual_seed(3)))
    f, ends = functional(a), (functional(a).theta, functional(b).theta)
    middle = (ends[0] + ends[1]) / 2

    def loss(bend):
        return F.cross_entropy(f(bezier(ends[0], bend, ends[1], t), x), y)

    grad = torch.func.grad(loss)(middle)
    assert found.bend is not None
    torch.testing.assert_close(found.bend, middle - 0.1 * grad / (grad.abs() + 1e-8))


def test_a_loader_stands_for_its_data():
    a, b = (seeded(MODELS["mlp"][0], seed).double() for seed in (1, 2))
    x = inputs("mlp")
    y = torch.arange(len(x)) % 3
    loader = DataLoader(TensorDataset(x, y), batch_size=5)
    one, other = mode_connectivity(a, b, x, y, points=3), mode_connectivity(a, b, loader, points=3)
    torch.testing.assert_close(one.losses, other.losses)
    assert torch.equal(one.errors, other.errors)
    curve = mode_connectivity(a, b, loader, path="curve", points=3, updates=4)
    assert curve.losses.isfinite().all()
    assert mode_connectivity(a, b, loader, path="aligned", points=3).alignment is not None


def test_draw_mode_connectivity_draws_several_paths_on_one_figure():
    a, b = (seeded(MODELS["mlp"][0], seed).double() for seed in (1, 2))
    x = inputs("mlp")
    y = torch.arange(len(x)) % 3
    found = [mode_connectivity(a, b, x, y, path=p, points=3) for p in ("line", "aligned")]
    figure = draw_mode_connectivity(found[0])
    draw_mode_connectivity(found[1], figure.axes[0])
    lines = figure.axes[0].get_lines()
    assert lines[0].get_ydata() == pytest.approx(found[0].losses.tolist())
    assert lines[2].get_ydata() == pytest.approx(found[1].losses.tolist())
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert legend.get_texts()[1].get_text().startswith("aligned line")


X, Y = torch.ones(2, 3), torch.zeros(2, 1)
BAD = {
    "path": ({"path": "tunnel"}, "path must be one of 'line', 'aligned', 'curve', got 'tunnel'"),
    "points": ({"points": 1}, "points must be >= 2, got 1"),
    "updates": ({"updates": 0}, "updates must be >= 1, got 0"),
    "eta": ({"eta": 0.0}, "eta must be > 0, got 0.0"),
    "batch": ({"batch": 0}, "batch must be >= 1, got 0"),
    "loss": ({"loss": lambda z, y: z}, r"loss must give one number, got torch\.float32 of shape"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_knobs(name):
    knobs, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        mode_connectivity(nn.Linear(3, 1), nn.Linear(3, 1), X, Y, **knobs)


def test_networks_that_differ_are_refused():
    with pytest.raises(ValueError, match=r"b must have the parameters of a, not so: \['weight'\]"):
        mode_connectivity(nn.Linear(3, 1), nn.Linear(4, 1), X, Y)
    with pytest.raises(ValueError, match=r"b must be on cpu in torch\.float32 as a is"):
        mode_connectivity(nn.Linear(3, 1), nn.Linear(3, 1).double(), X, Y)
    with pytest.raises(ValueError, match="x must be finite, got nan"):
        mode_connectivity(nn.Linear(3, 1), nn.Linear(3, 1), X * float("nan"), Y)


def test_targets_that_are_left_out_are_no_errors():
    a, b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    a.weight.data, b.weight.data = torch.eye(2), -torch.eye(2)
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    found = mode_connectivity(a, b, x, torch.tensor([0, 0, -100]), points=2)
    assert found.errors.tolist() == [0.5, 0.5]
