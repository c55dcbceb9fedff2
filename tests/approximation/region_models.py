"""Piecewise-linear models of many kinds, for the tests of linear regions."""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from vademecum.approximation.units import AbsUnit, Maxout
from vademecum.models import mlp


class Branches(nn.Module):
    """Functional calls, a residual sum, sizes, constants, in-place operations, two maxima."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, padding=1)
        self.norm = nn.BatchNorm2d(2)
        self.slopes = nn.PReLU(2)
        self.head = nn.Linear(2 * 2 * 2, 3)
        self.mix = nn.Parameter(torch.randn(3, 3))

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.conv(x))
        h = F.relu(h) + 0.5 * h
        h += 0.25
        h = F.max_pool2d(self.slopes(h - 0.5), 2)
        h = torch.cat([h, h.abs()], 1).mean(1, keepdim=True) - h / 2
        y = self.head(h.view(h.size(0), -1)) @ self.mix
        return torch.maximum(y, -y.clamp(min=-1)) + torch.minimum(y, 2 * y).amax(1).unsqueeze(1)


class Shared(nn.Module):
    """A layer used twice, and tied weights."""

    def __init__(self):
        super().__init__()
        self.layer, self.other = nn.Linear(4, 4), nn.Linear(4, 4)
        self.other.weight = self.layer.weight

    def forward(self, x: Tensor) -> Tensor:
        h = F.leaky_relu(self.layer(x), 0.1)
        return F.hardtanh(self.layer(h) + h) + self.other(x)


class Sizes(nn.Module):
    """Sizes of another tensor than the one shaped, a scalar a row, infinite ends, functions."""

    shift: Tensor

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 2, 2), nn.Linear(8, 3)
        self.register_buffer("shift", torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv(x).clamp(0.0, float("inf")).view(x.size(0), -1)
        h = 1 - F.linear(h, self.head.weight, self.head.bias)
        h = F.prelu(h / x.shape[2] - self.shift, self.shift)
        return F.relu(h[:, 0] - h[:, 1]) - F.hardtanh(h.sum(1), -float("inf"), 0.2)


def with_statistics(model: nn.Module) -> nn.Module:
    """The model with random statistics in its normalisations."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return model


def baked(model: nn.Module) -> nn.Module:
    """A copy in evaluation and double precision, its parametrized weights made plain ones.

    On CUDA torch computes a normalised weight with the precision of float32, whatever the dtype.
    """
    twin = copy.deepcopy(model).double().eval()
    for module in filter(parametrize.is_parametrized, [*twin.modules()]):
        normed = module.get_submodule("parametrizations").named_children()
        plain = {name: getattr(module, name).detach() for name, _ in normed}
        before = parametrize.type_before_parametrizations(module)
        del module.parametrizations  # remove_parametrizations would spoil the model: with copies
        module.__class__ = before  # it shares the class, from which that takes the weight
        for name, value in plain.items():
            module.register_parameter(name, nn.Parameter(value))
    return twin


def models() -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Models by name, with the shapes of their inputs; the same ones every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        zoo = {
            "mlp": (mlp([2, 12, 8, 3]), (2,)),
            "norm, dropout": (nn.Sequential(nn.Linear(5, 9), nn.BatchNorm1d(9), nn.LeakyReLU(0.2),
                                            nn.Dropout(0.5), nn.Linear(9, 2)), (5,)),
            "maxout, abs": (nn.Sequential(Maxout(3, 6, 3), nn.Linear(6, 5), AbsUnit(),
                                          nn.Linear(5, 2)), (3,)),
            "clipped": (nn.Sequential(nn.Linear(3, 8), nn.ReLU6(), nn.Linear(8, 6), nn.Hardtanh(),
                                      nn.Linear(6, 4), nn.Softshrink(), nn.Hardsigmoid()), (3,)),
            "cnn": (nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(),
                                  nn.MaxPool2d(2, 1, padding=1), nn.AvgPool2d(2), nn.Flatten(),
                                  nn.Linear(12, 2)), (1, 6, 6)),
            "sequence": (nn.Sequential(nn.Conv1d(2, 3, 2), nn.RReLU(), nn.AdaptiveMaxPool1d(2),
                                       nn.Sequential(nn.Flatten(), nn.Identity()),
                                       nn.Linear(6, 1)), (2, 5)),
            "branches": (Branches(), (1, 4, 4)),
            "shared": (Shared(), (4,)),
            "sizes": (Sizes(), (1, 3, 3)),
            "normed weights": (nn.Sequential(
                parametrizations.weight_norm(nn.ConvTranspose1d(2, 3, 2)), nn.PReLU(3),
                nn.Flatten(), parametrizations.spectral_norm(nn.Linear(12, 4, bias=False)),
                nn.ReLU(inplace=True), nn.Linear(4, 2)), (2, 3)),
            "affine": (nn.Sequential(nn.ConstantPad1d(1, 0.5), nn.Linear(4, 3)), (2,)),
        }  # fmt: skip
        for model, _ in zoo.values():
            with_statistics(model)
    return zoo


MODELS = models()
