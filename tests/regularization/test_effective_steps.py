"""Scale invariance against scaled networks, in double precision, and the laws of instruments."""

from copy import deepcopy
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.data import DataLoader, TensorDataset

from vademecum.convolution import ResNet
from vademecum.regularization import scale_invariance
from vademecum.testing import check_instrument

X, Y = torch.randn(12, 5, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3


def network(*layers: nn.Module, bias: bool = True) -> Any:
    """With parameters of which none is zero."""
    whole = nn.Linear(5, 6, bias=bias), *layers, nn.Tanh(), nn.Linear(6, 3)
    model, dice = nn.Sequential(*whole), torch.Generator().manual_seed(1)
    for p in model.parameters():
        p.data = torch.randn(p.shape, generator=dice)
    return model


def kinds(found):
    return {row.name: row.invariant for row in found.tensors}


CASES = {
    "batch": (network(nn.BatchNorm1d(6)), {"0.weight": "units", "0.bias": "no gradient"}),
    "layer": (network(nn.LayerNorm(6)), {"0.weight": "layer", "0.bias": "layer"}),
    "layer, no bias": (
        network(nn.LayerNorm(6), bias=False),
        {"0.weight": "tensor"},
    ),
    "group": (network(nn.GroupNorm(2, 6)), {"0.weight": "layer"}),
    "weight": (
        nn.Sequential(weight_norm(nn.Linear(5, 4)), nn.Tanh(), nn.Linear(4, 3)),
        {
            "0.parametrizations.weight.original0": "none",
            "0.parametrizations.weight.original1": "units",
        },
    ),
    "nothing": (network(nn.ReLU()), {"0.weight": "none", "0.bias": "none"}),
}


@pytest.mark.parametrize("name", CASES)
def test_kinds(name):
    model, wanted = CASES[name]
    found = kinds(scale_invariance(model, X, Y))
    assert wanted.items() <= found.items()
    assert list(found.values())[-2:] == ["none", "none"]  # the last layer


def loss_in_training(model: Any, scales: Any) -> float:
    """The loss of a copy with scaled tensors, by batch statistics and with a delta of next to 0."""
    model = deepcopy(model).double().train()
    for module in model.modules():
        if hasattr(module, "eps"):
            module.eps = 1e-30
    with torch.no_grad():
        for place, c in scales.items():
            model.get_parameter(place).mul_(c)
        return float(F.cross_entropy(model(X.double()), Y))


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("weight", "nothing")])
def test_scaling_is_what_it_says(name):
    model, _ = CASES[name]
    before = loss_in_training(model, {})
    rows = torch.rand(6, 1).double() + 0.5
    for row in scale_invariance(model, X, Y).tensors:
        one = abs(loss_in_training(model, {row.name: 3.0}) - before)
        assert (one < 1e-12) == (row.invariant in ("units", "tensor", "no gradient")), row
        if row.name == "0.weight":
            many = abs(loss_in_training(model, {row.name: rows}) - before)
            assert (many < 1e-12) == (row.invariant == "units")
            both = {place: 3.0 for place in ("0.weight", "0.bias") if place in kinds(
                scale_invariance(model, X, Y))}  # fmt: skip
            joint = abs(loss_in_training(model, both) - before)
            assert (joint < 1e-12) == (row.invariant != "none")


def test_steps_norms_and_cosines():
    model = network(nn.BatchNorm1d(6))
    row, *others = scale_invariance(model, X, Y, eta=0.3).tensors
    weight = model[0].weight.detach()
    assert torch.allclose(row.norm, weight.norm(dim=1))
    assert row.effective_step is not None
    assert torch.allclose(row.effective_step, 0.3 / weight.norm(dim=1).square())
    assert abs(row.cosine) <= row.tolerance < 1e-9
    last = next(other for other in others if other.name == "3.weight")
    copy = deepcopy(model).double().train()
    copy[1].eps = 1e-17
    F.cross_entropy(copy(X.double()), Y).backward()
    w, g = copy[3].weight.detach(), copy[3].weight.grad
    assert last.cosine == pytest.approx(float((w * g).sum() / w.norm() / g.norm()), rel=1e-9)
    assert last.effective_step is None
    copy[1].eps = 1.0
    copy.zero_grad()
    F.cross_entropy(copy(X.double()), Y).backward()
    w, g = copy[0].weight.detach(), copy[0].weight.grad
    (spoiled, *_) = scale_invariance(copy, X.double(), Y).tensors
    assert spoiled.invariant == "units"
    assert abs(spoiled.with_delta) > 1e-3
    assert spoiled.with_delta == pytest.approx(float((w * g).sum() / w.norm() / g.norm()), rel=1e-2)
    w = copy[3].weight.detach()
    assert last.norm == pytest.approx(float(w.norm()), rel=1e-6)


def test_a_step_turns_weights_by_the_effective_step():
    """To second order, the angle is the effective step times the slope on the unit sphere."""
    layers = nn.Linear(5, 1, bias=False), nn.BatchNorm1d(1), nn.Linear(1, 3)
    model: Any = nn.Sequential(*layers).double()
    model[1].eps = 1e-17
    x, eta = X.double(), 1e-4
    angles, steps = [], []
    for c in (1.0, 5.0):
        copy = deepcopy(model).train()
        with torch.no_grad():
            copy[0].weight.mul_(c)
        (row, *_) = scale_invariance(copy, x, Y, eta=eta).tensors
        F.cross_entropy(copy(x), Y).backward()
        w, g = copy[0].weight.detach()[0], copy[0].weight.grad[0]
        angles.append(float((eta * g).norm() / w.norm()))  # orthogonal: the tangent of the angle
        assert row.effective_step is not None
        steps.append(float(row.effective_step))
    assert angles[0] / angles[1] == pytest.approx(steps[0] / steps[1], rel=1e-6)
    assert steps[0] / steps[1] == pytest.approx(25.0, rel=1e-5)


def test_residual_network_by_batch_statistics():
    model = ResNet(18, 4, width=4).eval()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    found = scale_invariance(model, torch.randn(4, 3, 32, 32), torch.arange(4))
    assert found.batch_norms == 20
    convolutions = [row for row in found.tensors if row.norm.ndim or row.name.endswith("0.weight")]
    assert len([row for row in convolutions if row.invariant == "units"]) == 20
    assert kinds(found)["fc.weight"] == "none"
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert not model.training


def test_loaders_and_other_dtypes():
    model = network(nn.BatchNorm1d(6))
    loader = DataLoader(TensorDataset(X, Y), batch_size=6)
    assert kinds(scale_invariance(model, loader)) == kinds(scale_invariance(model, X, Y))
    half = deepcopy(model).bfloat16()
    assert kinds(scale_invariance(half, X.bfloat16(), Y))["0.weight"] == "units"


def test_laws_of_instruments():
    skip = {"no_parameters": "has nothing to scale"}
    models = [network(nn.BatchNorm1d(6)), network(nn.LayerNorm(6)).eval()]

    def rows(model, data):
        return [row[2:] for row in scale_invariance(model, *data).tensors]

    check_instrument(rows, models, (X, Y), skip=skip)


def test_inputs_are_left_alone_by_layers_that_work_in_place():
    model, x = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(5, 3)).double(), X.double()
    scale_invariance(model, x, Y)
    assert torch.equal(x, X.double())


def test_dead_units_do_no_harm():
    model = network(nn.BatchNorm1d(6))
    with torch.no_grad():
        model[0].weight[1] = 0
    row = scale_invariance(model, X, Y).tensors[0]
    assert row.invariant == "units"
    assert row.effective_step is not None
    assert row.effective_step[1] == torch.inf
    with torch.no_grad():
        model[1].weight[:] = 0  # as residual networks begin: nothing comes through
    assert scale_invariance(model, X, Y).tensors[0].invariant == "no gradient"


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (partial(scale_invariance, network(nn.BatchNorm1d(6)), X[:1], Y[:1]),
         "x must hold at least 2 examples for the batch statistics of BatchNorm1d '1', got 1"),
        (partial(scale_invariance, nn.ReLU(), X, X), "model must have parameters to scale"),
        (partial(scale_invariance, network(), X, Y, eta=0.0), "eta must be > 0, got 0.0"),
        (partial(scale_invariance, network(), X, None), "y must be a tensor unless a loss is"),
        (partial(scale_invariance, network(), X, Y, loss=lambda z, y: z), "loss must give one"),
        (partial(scale_invariance, network(), torch.nan * X, Y), "x must be finite"),
        (partial(scale_invariance, network(), X, Y, loss=lambda z, y: z.sum() * torch.inf),
         "gradients of model must be finite"),
    ],
)  # fmt: skip
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
