"""Residual layers and delta-orthogonal kernels against their definitions."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.convolution import conv_singular_values
from vademecum.regularization import Residual, delta_orthogonal_
from vademecum.testing import check_part

ANY: Any = torch.tanh
BRANCHES = {
    "linear": lambda: nn.Linear(4, 4),
    "one layer": lambda: nn.Sequential(nn.Linear(4, 4), nn.Sigmoid()),
    "two, nested": lambda: nn.Sequential(
        nn.Sequential(nn.Linear(4, 6), nn.Softplus()),
        nn.Sequential(nn.Linear(6, 4), nn.Softplus(), nn.Tanh()),
    ),
    "normalised": lambda: nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Sigmoid()),
    "parametric": lambda: nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), nn.PReLU()),
}


@pytest.mark.parametrize("name", BRANCHES)
@pytest.mark.parametrize("centred", [True, False])
def test_residual_by_its_definition(name, centred):
    branch, x = BRANCHES[name]().double(), torch.randn(5, 4, dtype=torch.float64)
    layer = Residual(branch, centred=centred)
    at_zero = BRANCHES[name]().double()
    for p in at_zero.parameters():
        nn.init.zeros_(p)
    stated = x + branch(x) - (at_zero(x) if centred else 0.0)
    assert torch.allclose(layer(x), stated, atol=1e-14)
    for p in layer.parameters():
        nn.init.zeros_(p)
    assert layer(x).equal(x) == (centred or name == "linear")


def test_residual_with_a_projection():
    branch, projection = nn.Sequential(nn.Linear(3, 5), nn.Tanh()), nn.Linear(3, 5, bias=False)
    x = torch.randn(7, 3)
    assert torch.allclose(Residual(branch, projection)(x), projection(x) + branch(x), atol=1e-6)


def test_residual_drops_the_same_entries_at_zero_parameters():
    layer = Residual(nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), nn.Dropout(0.5)))
    x, numbers = torch.randn(6, 4), []
    for part in (layer, layer.module):
        torch.manual_seed(0)
        part(x)
        numbers.append(torch.rand(1))
    assert numbers[0] == numbers[1]
    for p in layer.parameters():
        nn.init.zeros_(p)
    assert layer(x).equal(x)


def test_residual_does_not_count_batches_twice():
    layer = Residual(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Sigmoid()))
    layer(torch.randn(8, 3))
    norm = layer.get_submodule("module.1")
    assert int(norm.get_buffer("num_batches_tracked")) == 1


PARTS = {
    "one layer": lambda: (Residual(BRANCHES["one layer"]()), torch.randn(3, 4)),
    "normalised": lambda: (Residual(BRANCHES["normalised"]()), torch.randn(3, 4)),
    "projection": lambda: (Residual(nn.Linear(4, 5), nn.Linear(4, 5)), torch.randn(3, 4)),
    "convolution": lambda: (Residual(nn.Conv2d(2, 2, 3, padding=1)), torch.randn(3, 2, 5, 4)),
}


@pytest.mark.parametrize("name", PARTS)
def test_laws(name):
    check_part(*PARTS[name](), devices=("cpu", "meta"))


def test_residual_prints_what_it_is():
    assert "centred=False" in repr(Residual(nn.Linear(2, 2), centred=False))


@pytest.mark.parametrize("layer", [nn.Conv1d, nn.Conv2d, nn.Conv3d])
@pytest.mark.parametrize("kernel", [1, 3, 4])
def test_delta_orthogonal_kernels_are_isometries(layer, kernel):
    sizes = {nn.Conv1d: (7,), nn.Conv2d: (5, 4), nn.Conv3d: (3, 4, 5)}[layer]
    conv = layer(3, 5, kernel, padding="same", padding_mode="circular", bias=False).double()
    assert delta_orthogonal_(conv.weight, 0.7) is conv.weight
    values = conv_singular_values(conv, (3, *sizes)).values
    assert torch.allclose(values, torch.full_like(values, 0.7), atol=1e-12)
    assert int((conv.weight != 0).sum()) == 15


def test_delta_orthogonal_with_fewer_outputs_and_groups():
    weight = delta_orthogonal_(torch.empty(2, 5, 3, dtype=torch.float64))[..., 1]
    assert torch.allclose(weight @ weight.T, torch.eye(2).double(), atol=1e-14)
    conv = nn.Conv2d(6, 9, 3, padding=1, groups=3, bias=False).double()
    delta_orthogonal_(conv.weight, groups=3)
    x = torch.randn(2, 6, 4, 5, dtype=torch.float64)
    norms = conv(x).flatten(1).norm(dim=1) / x.flatten(1).norm(dim=1)
    assert torch.allclose(norms, torch.ones(2).double(), atol=1e-12)


def test_delta_orthogonal_draws_both_determinants():
    signs = [torch.linalg.det(delta_orthogonal_(torch.empty(3, 3, 1))[..., 0]) for _ in range(60)]
    positive = sum(float(s) > 0 for s in signs)
    assert 8 < positive < 52  # five standard deviations and more


def test_delta_orthogonal_in_half_precision():
    weight = delta_orthogonal_(torch.empty(4, 4, 3, dtype=torch.bfloat16))
    assert torch.allclose((weight[..., 1].T @ weight[..., 1]).float(), torch.eye(4), atol=0.03)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: delta_orthogonal_(torch.empty(3, 3)), r"over 1, 2 or 3 axes, got shape \(3, 3\)"),
        (lambda: delta_orthogonal_(torch.ones(3, 3, 1).long()), "must be a tensor of floating"),
        (lambda: delta_orthogonal_(torch.empty(3, 3, 1), math.nan), "gain must be .*, got nan"),
        (lambda: delta_orthogonal_(torch.empty(4, 3, 1), groups=3), "groups must divide the 4"),
        (lambda: delta_orthogonal_(torch.empty(4, 3, 1), groups=0), "groups must be >= 1, got 0"),
        (lambda: Residual(ANY), "module must be an nn.Module"),
        (lambda: Residual(nn.Tanh(), ANY), "projection must be an nn.Module"),
        (
            lambda: Residual(nn.Linear(3, 4))(torch.ones(2, 3)),
            r"module must give the shape \(2, 3\) of the shortcut, got \(2, 4\)",
        ),
    ],
)
def test_bad_input(call, message, unchecked):
    with pytest.raises(ValueError, match=message):
        call()
