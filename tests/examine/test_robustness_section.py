"""Attacks, certificates and Lipschitz constants of networks where all are known."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.examine import examine


def found(model, x, y=None, **options) -> Any:
    draw = torch.Generator().manual_seed(0)
    given = {"sections": ["robustness"], "budget": math.inf, "generator": draw} | options
    dossier = examine(model, x, y, **given)
    assert not dossier["robustness"].traceback, dossier["robustness"].traceback
    return dossier


class Scaled(nn.Module):
    def __init__(self, layer, factor):
        super().__init__()
        self.layer, self.factor = layer, factor

    def forward(self, x):
        return self.factor * self.layer(x)


@pytest.fixture
def linear():
    """Two classes on both sides of a plane, at known distances."""
    layer = nn.Linear(5, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.stack([torch.zeros(5), torch.tensor([1.0, -2, 0.5, 3, 1])]))
        layer.bias.zero_()
    x = torch.randn(60, 5)
    return layer, x, layer(x).argmax(1)


def test_a_linear_classifier_is_known(linear):
    layer, x, y = linear
    w = layer.weight[1].detach().double()
    section = found(layer, x, y)["robustness"]
    assert section.status == "measured"
    radii = (x.double() @ w).abs() / w.abs().sum()  # the dual norm of linf
    radius = section.radius
    assert section.clean_accuracy == 1
    assert section.accuracy == pytest.approx(float((radii > radius).double().mean()), abs=1 / 60)
    assert section.median_radius == pytest.approx(float(radii.median()), rel=0.02)
    assert section.median_radius >= float(radii.median()) * (1 - 1e-6)
    sure = float((radii > radius / 8).double().mean())
    assert section.certified_accuracy == pytest.approx(sure, abs=1 / 60)
    norm = float(torch.linalg.matrix_norm(layer.weight.detach().double(), 2))
    assert section.lipschitz_lower == pytest.approx(norm, rel=1e-3)
    assert section.lipschitz_upper == pytest.approx(norm, rel=1e-6)
    assert section.lipschitz_lower <= section.lipschitz_upper
    assert not section.masked


def test_large_scores_mask_gradients(linear):
    layer, x, y = linear
    honest, hidden = (found(Scaled(layer, factor), x, y) for factor in (1.0, 1e4))
    assert hidden["robustness"].masked
    assert "smaller logits help" in hidden["robustness"].masking_flags
    assert not honest["robustness"].masked
    said = [[f for f in each.findings if "mislead" in f.text] for each in (honest, hidden)]
    assert [len(each) for each in said] == [0, 1]
    radii = [each["robustness"].median_radius for each in (honest, hidden)]
    assert radii[0] == pytest.approx(radii[1], rel=0.02)  # margins see through it


def test_one_score_for_two_classes(linear):
    layer, x, y = linear
    one = nn.Linear(5, 1, bias=False)
    one.weight.data = layer.weight.data[1:]
    section, both = found(one, x, y)["robustness"], found(layer, x, y)["robustness"]
    assert section.accuracy == pytest.approx(both.accuracy, abs=1 / 60)
    assert section.certified_accuracy == both.certified_accuracy


def test_fresh_examples_are_attacked(linear):
    layer, x, y = linear
    section = found(layer, x, y, test=(x[:20], 1 - y[:20]))["robustness"]
    assert section.clean_accuracy == 0
    assert section["clean_accuracy"].n == 20


def test_pixels_stay_pixels():
    x = torch.rand(30, 1, 4, 4)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    section = found(model, x, model(x).argmax(1))["robustness"]
    assert section.radius == pytest.approx(8 / 255)
    assert "from 0 to 1" in section["radius"].method


@pytest.mark.parametrize(
    ("model", "x", "y", "why"),
    [
        (nn.Linear(2, 1), torch.randn(9, 2), torch.randn(9, 1), "regression"),
        (nn.EmbeddingBag(9, 3), torch.randint(9, (9, 4)), torch.arange(9) % 3, "one tensor"),
    ],
)
def test_what_cannot_be_attacked(model, x, y, why):
    section = found(model, x, y)["robustness"]
    assert section.status == "not applicable"
    assert why in section.reason


def test_certificates_without_a_lipschitz_constant_are_told(linear, monkeypatch):
    """What was proven stays proven where the other instrument refuses."""
    from vademecum.examine.sections import robustness

    def refuses(*args, **knobs):
        raise ValueError("model must have a constant")

    layer, x, y = linear
    monkeypatch.setattr(robustness, "lipschitz", refuses)
    words = found(layer, x, y)["robustness"].sentence
    assert "are proven right within" in words
    assert "nothing was proven" not in words
    assert "no Lipschitz constant was proven: model must have a constant" in words
