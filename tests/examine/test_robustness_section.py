"""Attacks, certificates and Lipschitz constants of networks where all are known."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.examine import _study, examine
from vademecum.examine._clock import Clock
from vademecum.examine.sections import robustness
from vademecum.robustness import certified_accuracy


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

    def refuses(*args, **knobs):
        raise ValueError("model must have a constant")

    layer, x, y = linear
    monkeypatch.setattr(robustness, "lipschitz", refuses)
    words = found(layer, x, y)["robustness"].sentence
    assert "are proven right within" in words
    assert "nothing was proven" not in words
    assert "no Lipschitz constant was proven: model must have a constant" in words


@pytest.fixture
def two_layers():
    """A network that linear bounds prove more of than intervals do."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 3))
        x = torch.randn(60, 6)
    return model, x, model(x).argmax(1)


def test_certificates_by_as_many_linear_bounds_as_there_is_work_for(two_layers, monkeypatch):
    model, x, y = two_layers
    work = (24 + 24 + 3) * (6 * 24 + 24 * 3)  # activations times multiply-adds
    shares, words = [], []
    monkeypatch.setattr(robustness, "_SURE", 32)  # where much is left to prove
    for certificates in (0, 10, 60):
        monkeypatch.setattr(robustness, "_LINEAR", (certificates + 0.5) * work)
        section = found(model, x, y)["robustness"]
        assert section.status == "measured"
        assert section["certified_accuracy"].n == 60
        shares.append(section.certified_accuracy)
        words.append(section["certified_accuracy"].method)
    assert shares[0] < shares[1] < shares[2]
    radius = 32 * 4 * float(x.double().std()) / 255
    knobs = {"norm": "linf", "radius": radius, "box": None, "attack": robustness._no_attack}
    direct = certified_accuracy(model, x, y, **knobs)
    assert shares[2] == direct.certified
    assert "by interval bounds alone;" in words[0]
    assert "by interval bounds, of 10 by linear ones too;" in words[1]
    assert "by interval and linear bounds;" in words[2]


def test_what_intervals_prove_needs_no_time(two_layers, monkeypatch):
    monkeypatch.setattr(Clock, "pass_seconds", lambda *_: 1e9)
    section = found(*two_layers, budget=60.0)["robustness"]
    assert section.status == "partly"
    passes = (24 + 24 + 3) / 16  # for each activation one, of which 16 took so long
    words = f"no certificates by linear bounds, of which one takes about {1e9 * passes:.0f} s"
    assert words in section.reason
    assert section["certified_accuracy"].n == 60


def test_intervals_prove_all_of_a_linear_classifier(linear, monkeypatch):
    """They are exact there, the margin over the class itself aside."""
    layer, x, y = linear
    w = layer.weight[1].detach().double()
    monkeypatch.setattr(robustness, "_LINEAR", 0)
    section = found(layer, x, y)["robustness"]
    radii = (x.double() @ w).abs() / w.abs().sum()
    sure = float((radii > section.radius / 8).double().mean())
    assert section.certified_accuracy == pytest.approx(sure, abs=1 / 60)


def test_intervals_know_the_range_of_inputs(monkeypatch):
    """The margin of the second example falls by three entries: its second is at 0 and stays."""
    layer, step = nn.Linear(4, 2, bias=False), 1 / 255
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0] * 4, [3.0, 3.0, -3.0, -3.0]]))
    x = torch.tensor([[1.0, 1, 0, 0], [3.5 * step, 0, 0, 0], [2.5 * step, 0, 0, 0]]).repeat(10, 1)
    monkeypatch.setattr(robustness, "_LINEAR", 0)
    section = found(layer, x, torch.ones(30).long())["robustness"]
    assert section.clean_accuracy == 1
    assert section.certified_accuracy == pytest.approx(2 / 3)


def test_a_large_network_is_attacked_with_fewer_examples(two_layers, monkeypatch):
    monkeypatch.setattr(_study, "_PASS", 20 * (6 * 24 + 24 * 3))
    monkeypatch.setattr(_study, "_LEAST", 10)
    section = found(*two_layers)["robustness"]
    assert section.status == "measured"
    assert [section[name].n for name in ("accuracy", "median_radius", "masked")] == [20, 20, 60]


@pytest.mark.parametrize(("of_a_pass", "sizes"), [(1e-4, [60]), (1.0, [16, 60])])
def test_all_examples_are_attacked_at_once_where_there_is_time(
    two_layers, monkeypatch, of_a_pass, sizes
):
    """A few of them take a large network hardly less."""
    real, seen = robustness.minimal_radius, []

    def noted(model, x, *rest, **knobs):
        seen.append(len(x))
        return real(model, x, *rest, **knobs)

    monkeypatch.setattr(robustness, "minimal_radius", noted)
    monkeypatch.setattr(Clock, "pass_seconds", lambda *_: of_a_pass)
    section = found(*two_layers, budget=600.0)["robustness"]
    assert section.measurements[-1].name == "median_radius"  # the dearest part is the last
    assert seen[: len(sizes)] == sizes  # without time for all parts, it runs once more


class Told(dict):
    """What a network gives that tells of its features first."""

    @property
    def logits(self):
        return self["logits"]


class Telling(nn.Module):
    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, x):
        return Told(features=x.relu(), logits=self.model(x))


def test_scores_are_certified_whatever_else_the_network_gives(two_layers):
    model, x, y = two_layers
    alone = found(model, x, y)["robustness"]
    assert alone.certified_accuracy > 0.5
    assert found(Telling(model), x, y)["robustness"].certified_accuracy == alone.certified_accuracy


def test_what_intervals_prove_is_not_denied_where_linear_bounds_refuse(two_layers, monkeypatch):
    def refuses(*args, **knobs):
        raise ValueError("memory must be >= 9 bytes")

    monkeypatch.setattr(robustness, "certified_accuracy", refuses)
    words = found(*two_layers)["robustness"].sentence
    assert "are proven right within" in words
    assert "linear bounds prove no more: memory must be >= 9 bytes" in words
    assert "nothing was proven" not in words


def test_margins_over_many_classes_are_bounded_as_there_is_room(two_layers, monkeypatch):
    """All of them at once would be (n, k, k), or terabytes for 2^18 words."""
    model, x, y = two_layers
    seen, real = [], robustness.interval_bounds

    def noted(model, x, *, spec, **knobs):
        seen.append(tuple(spec.shape))
        return real(model, x, spec=spec, **knobs)

    monkeypatch.setattr(robustness, "interval_bounds", noted)
    monkeypatch.setattr(robustness, "_LINEAR", 0)
    whole = found(model, x, y)["robustness"]["certified_accuracy"].each
    monkeypatch.setattr(_study.Study, "room", 25 * 8 * 3 * 3 * 4)
    assert found(model, x, y)["robustness"]["certified_accuracy"].each == whole
    assert seen == [(60, 3, 3), (25, 3, 3), (25, 3, 3), (10, 3, 3)]


def test_what_is_wrong_and_what_is_never_fooled():
    layer = nn.Linear(5, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(2, 5) * 1e-9)
        layer.bias.copy_(torch.tensor([1.0, 0.0]))
    x, y = torch.randn(40, 5), (torch.arange(40) < 10).long()
    section = found(layer, x, y)["robustness"]
    for name in ("clean_accuracy", "accuracy", "certified_accuracy"):
        assert section[name].value == pytest.approx(0.75)
        assert sum(section[name].each) == 30
    assert section.median_radius == pytest.approx(255 / 8 * section.radius)  # as far as it looked


@pytest.mark.parametrize(("n", "known"), [(5, False), (6, True)])
def test_five_examples_say_nothing_of_a_median_in_95_percent(n, known):
    """Both ends of five enclose it in 1 - 2 / 2^5, of six in 1 - 2 / 2^6."""
    layer, x = nn.Linear(5, 2), torch.randn(n, 5)
    y = layer(x).argmax(1)
    dossier = found(layer, x, y, sections=["robustness", "generalisation"])
    low, high = dossier["robustness"]["median_radius"].error
    largest = 255 / 8 * dossier["robustness"].radius
    assert (low > 0) is known
    assert (high < largest) is known
    assert known or (low, high) == pytest.approx((0.0, largest))  # as far as it looked
    low, high = dossier["generalisation"]["median_margin"].error
    assert (math.isfinite(low), math.isfinite(high)) == (known, known)
