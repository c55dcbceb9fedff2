"""Fresh examples as files have them: one class after the other, or without classes."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.examine import examine
from vademecum.examine._clock import Clock
from vademecum.examine._study import Study
from vademecum.examine.sections import generalisation


def found(name: str, model: nn.Module, x: Any, y: Any, test: Any) -> Any:
    draw = torch.Generator().manual_seed(0)
    section = examine(model, x, y, test=test, sections=[name], budget=math.inf, generator=draw)[
        name
    ]
    assert not section.traceback, section.traceback
    return section


def sorted_classes(n: int):
    """A layer that always gives the first class, and as many fresh examples of each of two."""
    model = nn.Linear(3, 2)
    model.weight.data, model.bias.data = torch.zeros(2, 3), torch.tensor([1.0, 0.0])
    return model, (torch.randn(n, 3), torch.arange(n) * 2 // n)


def test_the_twin_and_the_network_answer_examples_of_all_classes():
    """Of 400 fresh ones 40 count, as many as there are examples: not the first of them."""
    model, test = sorted_classes(400)
    section = found("kernel", model, torch.randn(40, 3), torch.arange(40) % 2, test)
    assert section["own_accuracy"].n == 40
    # hypergeometric, 20 of 40 in the mean: six standard deviations are 0.45
    assert 0.05 < section.own_accuracy < 0.95


def test_a_certificate_is_made_with_examples_of_all_classes(monkeypatch):
    seen: list[torch.Tensor] = []

    def certificate(model, x, y, **knobs):
        seen.append(y)
        bound = SimpleNamespace(kl=0.5)
        return SimpleNamespace(zero_one=bound, kl=1.0, delta=0.025, delta_mc=0.025)

    monkeypatch.setattr(generalisation, "pac_bayes_certificate", certificate)
    monkeypatch.setattr(generalisation, "_MOST", 40)
    model, test = sorted_classes(400)
    section = found("generalisation", model, torch.randn(40, 3), torch.arange(40) % 2, test)
    assert section.pac_bayes_bound == 0.5
    assert len(seen[0]) == 40
    assert 0.05 < float(seen[0].double().mean()) < 0.95


@pytest.mark.parametrize(("seconds", "cut"), [(338.0, ""), (337.0, "no PAC-Bayes certificate")])
def test_a_certificate_takes_27_passes_of_all_fresh_examples(monkeypatch, seconds, cut):
    """640 of them at 1 s for 64: 270 s, for which four fifths of the time may be taken."""
    asked: list[int] = []

    def certificate(model, x, y, **knobs):
        bound = SimpleNamespace(kl=0.5)
        return SimpleNamespace(zero_one=bound, kl=1.0, delta=0.025, delta_mc=0.025)

    def second(clock, model, x):
        asked.append(len(x))
        return 1.0

    monkeypatch.setattr(generalisation, "pac_bayes_certificate", certificate)
    monkeypatch.setattr(Clock, "pass_seconds", second)
    model, test = sorted_classes(640)
    study = Study(model, torch.randn(40, 3), torch.arange(40) % 2, test=test)
    clock = Clock(seconds, now=lambda: 0.0)
    assert bool(list(generalisation._certificate(study, clock, {}))) is not bool(cut)
    assert (clock.cut, asked) == (cut, [64])


@pytest.mark.parametrize("form", ["inputs", "pair"])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_fresh_examples_without_targets_tell_nothing_of_errors(form, task):
    x, fresh = torch.randn(30, 3), torch.randn(20, 3)
    y = torch.arange(30) % 2 if task == "classification" else torch.randn(30, 2)
    test = fresh if form == "inputs" else (fresh, None)
    section = found("generalisation", nn.Linear(3, 2), x, y, test)
    assert section.status == "measured"
    assert "test_error" not in section
    assert "pac_bayes_bound" not in section
    words = "without targets of the fresh examples nothing is known of its errors on new ones"
    assert words in section.sentence


def test_fresh_examples_of_a_density_need_no_targets():
    class Gaussian(nn.Linear):
        def forward(self, input):
            return -super().forward(input).square().sum(1)

    section = found("generalisation", Gaussian(3, 2), torch.randn(30, 3), None, torch.randn(20, 3))
    assert section["test_loss"].n == 20
