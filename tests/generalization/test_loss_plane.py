"""Planes of parameters: losses by hand, directions, and the share of curvature that is shown."""

import math
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from copy import deepcopy
from multiprocessing import get_context

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.data import DataLoader, TensorDataset

from tests.generalization.landscape_models import MODELS, inputs, seeded
from tests.generalization.test_sharpness_measures import dense
from vademecum.generalization import draw_loss_plane, loss_plane
from vademecum.generalization.planes import _grid_losses
from vademecum.gradients import functional
from vademecum.models import SlowPathWarning
from vademecum.testing import check_instrument


def by_hand(model, x, y, found):
    """The losses with the parameters written into a copy, one point after the other."""
    other, losses = deepcopy(model).eval(), torch.empty_like(found.losses)
    u, v = (functional(model).unravel(d) for d in found.directions)
    own = dict(model.named_parameters())
    loss = F.mse_loss if y.is_floating_point() else F.cross_entropy
    with torch.no_grad():
        for i, alpha in enumerate(found.steps):
            for j, beta in enumerate(found.steps):
                for name, p in other.named_parameters():
                    p.copy_(own[name] + alpha * u[name] + beta * v[name])
                losses[i, j] = loss(other(x), y)
    return losses


def data(name, n=12):
    x = inputs(name, n)
    return x, torch.arange(n) % 3 if name != "encoder" else torch.randn_like(x)


@pytest.mark.parametrize("side_by_side", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_losses_are_those_by_hand(name, side_by_side, monkeypatch):
    room = 2**40 if side_by_side else 1
    monkeypatch.setitem(_grid_losses._TOGETHER, "cpu", room)
    model = seeded(MODELS[name][0], 1).double()
    x, y = data(name)
    found = loss_plane(model, x, y, points=4, extent=0.7, curvature=False)
    assert found.steps.tolist() == pytest.approx([-0.7, -0.7 / 3, 0.7 / 3, 0.7])
    torch.testing.assert_close(found.losses, by_hand(model, x, y, found), rtol=1e-10, atol=1e-12)
    assert math.isnan(found.sharpness)
    assert found.curvature.isnan().all()


def test_wide_first_layers_are_done_once(monkeypatch):
    """And give what they gave: linear, with and without bias, behind views of the data."""
    monkeypatch.setitem(_grid_losses._TOGETHER, "cpu", 1)

    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(40, 6), nn.Linear(20, 6, bias=False)
            self.side, self.end = nn.Conv1d(2, 6, 20), nn.Linear(6, 3)

        def forward(self, x):
            h = self.one(x.flatten(1)).tanh() + self.two(x[:, 1]) * self.two(x[:, 0])
            return self.end(h + self.side(x)[:, :, 0] + self.one(x.flatten(1).square()))

    model, x, y = Wide().double(), torch.randn(7, 2, 20).double(), torch.arange(7) % 3
    found = loss_plane(model, x, y, points=3, curvature=False)
    torch.testing.assert_close(found.losses, by_hand(model, x, y, found), rtol=1e-10, atol=1e-12)


class InPlace(nn.Module):
    """It writes into its input."""

    def __init__(self):
        super().__init__()
        self.one = nn.Linear(40, 3)

    def forward(self, x):
        return self.one(x) + self.one(x.mul_(2))


def test_networks_that_write_into_their_input(monkeypatch):
    monkeypatch.setitem(_grid_losses._TOGETHER, "cpu", 1)
    model, x, y = InPlace().double(), torch.randn(7, 40).double(), torch.arange(7) % 3
    kept = x.clone()
    found = loss_plane(model, x, y, points=3, curvature=False)
    assert torch.equal(x, kept)
    f = functional(model)
    for i, alpha in enumerate(found.steps):
        for j, beta in enumerate(found.steps):
            theta = f.theta + alpha * found.directions[0] + beta * found.directions[1]
            wanted = F.cross_entropy(f(theta, x), y)
            torch.testing.assert_close(found.losses[i, j], wanted, rtol=1e-10, atol=0)


class Choosing(nn.Module):
    """It asks for a value."""

    def __init__(self):
        super().__init__()
        self.one = nn.Linear(5, 3)

    def forward(self, x):
        z = self.one(x)
        return z if float(z.sum().detach()) > 0 else 2 * z


def test_what_cannot_run_side_by_side_says_so():
    model = Choosing().double()
    x, y = data("tied")
    with pytest.warns(SlowPathWarning, match="each point of the plane runs alone, which is slower"):
        found = loss_plane(model, x, y, points=3, curvature=False)
    torch.testing.assert_close(found.losses, by_hand(model, x, y, found))


@pytest.mark.parametrize("name", ["mlp", "convolutional"])
def test_random_directions_have_the_norms_of_filters(name):
    model = seeded(MODELS[name][0], 1).double()
    x, y = data(name)
    found = loss_plane(model, x, y, points=2, curvature=False)
    for d in found.directions:
        for key, part in functional(model).unravel(d).items():
            own = model.get_parameter(key).detach()
            rows = (part, own) if own.ndim > 1 else (part[None], own[None])
            norms = [r.flatten(1).norm(dim=1) for r in rows]
            torch.testing.assert_close(*norms)
    cosine = F.cosine_similarity(*found.directions, dim=0)
    assert abs(cosine) < 0.9


@pytest.mark.parametrize("name", ["mlp", "convolutional", "tied"])
@pytest.mark.parametrize("kind", ["random", "hessian", "given"])
def test_shares_of_curvature_against_the_dense_hessian(name, kind):
    model = seeded(MODELS[name][0], 3).double()
    x, y = data(name)
    _, H, _ = dense(model, x, y, F.cross_entropy)
    given = kind if kind != "given" else torch.randn(2, len(H)).double() + torch.randn(len(H))
    found = loss_plane(model, x, y, directions=given, points=2, tol=1e-8, applications=400)
    lam, vectors = torch.linalg.eigh(H)
    Q = torch.linalg.qr(found.directions.T)[0]
    C = Q.T @ H @ Q
    torch.testing.assert_close(
        torch.linalg.eigvalsh(found.curvature), torch.linalg.eigvalsh(C), rtol=1e-6, atol=1e-9
    )
    u = found.directions[0] / found.directions[0].norm()
    assert float(found.curvature[0, 0]) == pytest.approx(float(u @ H @ u), rel=1e-6)
    assert found.sharpness == pytest.approx(float(lam[-1]), rel=1e-6)
    assert found.trace == pytest.approx(float(lam.sum()), rel=1e-6)
    top = float(torch.linalg.eigvalsh(C)[-1])
    assert found.sharpness_share == pytest.approx(top / float(lam[-1]), rel=1e-5)
    assert found.trace_share == pytest.approx(float(C.trace() / lam.sum()), rel=1e-5)
    if kind == "hessian":
        assert found.sharpness_share == pytest.approx(1, abs=1e-6)
        assert found.trace_share == pytest.approx(float(lam[-2:].sum() / lam.sum()), rel=1e-5)
        overlap = (found.directions @ vectors[:, -2:].flip(1)).abs()
        torch.testing.assert_close(overlap, torch.eye(2).double(), rtol=0, atol=1e-4)
    if kind == "given":
        assert torch.equal(found.directions, given)


def test_memory_and_loaders_change_nothing():
    model = seeded(MODELS["mlp"][0], 1).double()
    x, y = data("mlp")
    found = loss_plane(model, x, y, points=4, curvature=False)
    loader = DataLoader(TensorDataset(x, y), batch_size=5)
    knobs = {"points": 4, "curvature": False, "directions": found.directions}
    for other in (
        loss_plane(model, loader, **knobs),
        loss_plane(model, x, y, memory=1000, **knobs),
        loss_plane(model, loader, memory=1000, **knobs),
    ):
        torch.testing.assert_close(other.losses, found.losses)


def test_points_through_an_executor():
    model = seeded(MODELS["convolutional"][0], 1).double()
    x, y = data("convolutional")
    found = loss_plane(model, x, y, points=5, curvature=False)
    knobs = {"points": 5, "curvature": False, "directions": found.directions}
    with ThreadPoolExecutor(3) as pool:
        many = loss_plane(model, x, y, executor=pool, **knobs)
    torch.testing.assert_close(many.losses, found.losses)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        many = loss_plane(model, x, y, executor=pool, **knobs)
    torch.testing.assert_close(many.losses, found.losses)


def test_weight_normalisation_and_parameters_that_differ_in_dtype():
    model = nn.Sequential(weight_norm(nn.Linear(5, 6)), nn.ReLU(), nn.Linear(6, 3)).double()
    x, y = data("tied")
    found = loss_plane(model, x, y, points=3, curvature=False)
    f = functional(model)
    corner = f.theta + found.steps[0] * found.directions[0] + found.steps[2] * found.directions[1]
    wanted = F.cross_entropy(f(corner, x), y)
    torch.testing.assert_close(found.losses[0, 2], wanted, rtol=1e-10, atol=0)


def test_loss_plane_keeps_the_laws():
    x, y = torch.randn(6, 5, generator=torch.Generator().manual_seed(2)), torch.arange(6) % 3

    def measured(model, data):
        found = loss_plane(model, *data, points=3)
        return found.losses, found.curvature, found.sharpness_share

    without = {"no_parameters": "there is no plane"}
    check_instrument(measured, nn.Linear(5, 3), (x, y), skip=without)


def test_draw_loss_plane_marks_the_network_and_says_what_is_shown():
    model = seeded(MODELS["mlp"][0], 1).double()
    found = loss_plane(model, *data("mlp"), points=5)
    axes = draw_loss_plane(found).axes[0]
    assert axes.get_title().startswith(f"shows {found.sharpness_share:.1%} of the sharpness")
    assert axes.get_lines()[0].get_xdata() == [0]
    flat = found._replace(losses=torch.zeros(5, 5), sharpness_share=math.nan)
    assert not draw_loss_plane(flat).axes[0].get_title()


X, Y = torch.randn(4, 3), torch.randn(4, 2)
SAME = torch.ones(2, 8)
BAD = {
    "extent": ({"extent": 0.0}, "extent must be > 0, got 0.0"),
    "points": ({"points": 1}, "points must be >= 2, got 1"),
    "applications": ({"applications": 3}, "applications must be >= 4, got 3"),
    "word": ({"directions": "steep"}, "directions must be one of 'random', 'hessian', got 'steep'"),
    "width": ({"directions": torch.ones(2, 7)}, r"directions must be 8 wide, got shape \(2, 7\)"),
    "parallel": ({"directions": SAME}, "directions must be independent, got two that span no"),
    "loss": ({"loss": lambda z, y: z}, "loss must give one number, got"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_knobs(name):
    knobs, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        loss_plane(nn.Linear(3, 2), X, Y, curvature=False, **knobs)


def test_bad_models_and_data():
    with pytest.raises(ValueError, match="model must have two parameters or more, got 1"):
        loss_plane(nn.Linear(1, 1, bias=False), X[:, :1], Y[:, :1])
    with pytest.raises(ValueError, match="x must be finite, got nan"):
        loss_plane(nn.Linear(3, 2), X * float("nan"), Y, curvature=False)
