"""Sharpness in three units, against dense Hessians, and under changes of units."""

from copy import deepcopy

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.generalization.landscape_models import MODELS, Tied, inputs, seeded
from vademecum.generalization import sharpness_measures
from vademecum.regularization import rescale_units
from vademecum.testing import check_instrument


def dense(model, x, y, loss):
    """All parameters, the Hessian, and for each entry the norm of its filter, by hand."""
    model = deepcopy(model).eval()  # torch does not give a module back that has two names
    names = [n for n, _ in model.named_parameters()]
    own = [p.detach() for _, p in model.named_parameters()]
    sizes = [p.numel() for p in own]

    def value(theta):
        parts = [t.view_as(p) for t, p in zip(theta.split(sizes), own, strict=True)]
        return loss(functional_call(model, dict(zip(names, parts, strict=True)), x), y)

    theta = torch.cat([p.flatten() for p in own])
    norms = []
    for p in own:
        rows = p if p.ndim > 1 else p[None]
        for row in rows:
            norms += [float(row.flatten().norm())] * row.numel()
    return theta, torch.func.hessian(value)(theta), torch.tensor(norms, dtype=theta.dtype)


@pytest.mark.parametrize("name", ["mlp", "convolutional", "tied"])
def test_sharpness_measures_are_eigenvalues_of_dense_matrices(name):
    model, x = seeded(MODELS[name][0], 3).double(), inputs(name)
    y = torch.arange(len(x)) % 3
    theta, H, norms = dense(model, x, y, F.cross_entropy)
    found = sharpness_measures(model, x, y, tol=1e-8)
    for value, s in zip(found[:3], (torch.ones_like(theta), norms, theta.abs()), strict=True):
        wanted = torch.linalg.eigvalsh(s[:, None] * H * s)[-1]
        assert value == pytest.approx(float(wanted), rel=1e-6)
    assert found.converged
    assert (found.residuals <= 1e-8 * torch.tensor(found[:3]).abs().max() * 10).all()


def test_units_of_any_scale_leave_the_adaptive_one_alone():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 9), nn.ReLU(), nn.Linear(9, 5), nn.ReLU(), nn.Linear(5, 2))
    model, x = model.double(), torch.randn(30, 3).double()
    y = torch.randn(30, 2).double()
    scales = {"0": 10 ** torch.randn(9).double(), "2": 10 ** torch.randn(5).double()}
    other = rescale_units(model, x[:1], scales=scales).model
    before, after = (sharpness_measures(m, x, y, tol=1e-8) for m in (model, other))
    assert after.adaptive == pytest.approx(before.adaptive, rel=1e-6)
    assert after.plain > 10 * before.plain
    assert abs(after.filter_normalised / before.filter_normalised - 1) > 1e-3
    layers = {"0": torch.full((9,), 7.0).double(), "2": torch.full((5,), 0.2).double()}
    alike = sharpness_measures(rescale_units(model, x[:1], scales=layers).model, x, y, tol=1e-8)
    assert alike.filter_normalised == pytest.approx(before.filter_normalised, rel=1e-6)


def test_frozen_parameters_may_be_left_out():
    model, x = Tied().double(), inputs("tied")
    y = torch.arange(len(x)) % 3
    assert (
        sharpness_measures(model, x, y).plain > sharpness_measures(model, x, y, frozen=False).plain
    )


def test_a_loader_stands_for_its_data():
    model, x = seeded(MODELS["mlp"][0], 3).double(), inputs("mlp")
    y = torch.arange(len(x)) % 3
    loader = DataLoader(TensorDataset(x, y), batch_size=5)
    one = sharpness_measures(model, x, y, tol=1e-8)
    other = sharpness_measures(model, loader, tol=1e-8)
    assert other[:3] == pytest.approx(one[:3], rel=1e-6)


def test_sharpness_measures_keep_the_laws():
    x, y = torch.randn(6, 5, generator=torch.Generator().manual_seed(2)), torch.arange(6) % 3

    def measured(model, data):
        return sharpness_measures(model, *data)[:3]

    without = {"no_parameters": "there is no Hessian"}
    check_instrument(measured, nn.Linear(5, 3), (x, y), skip=without)


BAD = {
    "tol": ({"tol": 0.0}, "tol must be > 0, got 0.0"),
    "loss": ({"loss": lambda z, y: z}, "loss must give one differentiable number, got"),
    "max_iter": ({"max_iter": 0}, "max_iter must be >= 1, got 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(name):
    knobs, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        sharpness_measures(nn.Linear(40, 2), torch.randn(9, 40), torch.randn(9, 2), **knobs)


def test_too_few_iterations_warn():
    model, x = nn.Sequential(nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 2)), torch.randn(30, 20)
    with pytest.warns(ConvergenceWarning):
        found = sharpness_measures(model, x, torch.randn(30, 2), tol=1e-6, max_iter=4)
    assert not found.converged


def test_a_network_that_has_diverged_is_refused():
    model = nn.Linear(40, 1)
    nn.init.constant_(model.weight, float("nan"))
    with pytest.raises(ValueError, match="must be finite, got"):
        sharpness_measures(model, torch.randn(9, 40), torch.randn(9, 1))
