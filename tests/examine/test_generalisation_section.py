"""Errors on examples given and fresh ones: memorised labels, and what was learned."""

import math
from typing import Any

import pytest
import torch
from scipy.stats import binomtest
from torch import Tensor, nn

from vademecum.examine import _study, examine


def found(model, x, y=None, **options) -> Any:
    draw = torch.Generator().manual_seed(0)
    given = {"sections": ["generalisation"], "budget": math.inf, "generator": draw} | options
    dossier = examine(model, x, y, **given)
    assert not dossier["generalisation"].traceback, dossier["generalisation"].traceback
    return dossier


class Remembers(nn.Module):
    """The right answer for what it has seen, the first class for all else."""

    x: Tensor
    y: Tensor

    def __init__(self, x, y, k):
        super().__init__()
        self.register_buffer("x", x)
        self.register_buffer("y", nn.functional.one_hot(y, k).float())
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        near = torch.cdist(x, self.x).amin(1) < 1e-2
        index = torch.cdist(x, self.x).argmin(1)
        return self.scale * near[:, None] * self.y[index]


@pytest.fixture
def memorised():
    x, fresh = torch.randn(80, 4), torch.randn(60, 4)
    y, other = torch.randint(3, (80,)), torch.randint(3, (60,))
    return Remembers(x, y, 3), x, y, (fresh, other)


def test_memorised_labels_show_in_the_gap(memorised):
    model, x, y, test = memorised
    dossier = found(model, x, y, test=test)
    section = dossier["generalisation"]
    wrong = int((test[1] != 0).sum())
    assert section.train_error == 0
    assert section.test_error == pytest.approx(wrong / 60)
    exact = binomtest(wrong, 60).proportion_ci(method="exact")
    assert section["test_error"].error == pytest.approx((exact.low, exact.high), rel=1e-9)
    assert section["gap"].error[0] > 0.3
    assert [f.section for f in dossier.findings if "worse" in f.text] == ["generalisation"]


def test_what_was_learned_shows_no_gap():
    means = 4 * torch.eye(3)
    y, other = torch.arange(90) % 3, torch.arange(60) % 3
    x, fresh = means[y] + torch.randn(90, 3) / 2, means[other] + torch.randn(60, 3) / 2
    dossier = found(nn.Identity(), x, y, test=(fresh, other))
    section = dossier["generalisation"]
    assert section.train_error < 0.05
    assert section["gap"].error[0] < 0.05
    assert not dossier.findings


def test_without_fresh_examples_it_says_so(memorised):
    model, x, y, _ = memorised
    section = found(model, x, y)["generalisation"]
    assert "without fresh examples" in section.sentence
    assert "test_error" not in section
    assert "gap" not in section


def test_a_constant_answer_is_guessing():
    y = torch.arange(90) % 3
    constant = nn.Linear(2, 3)
    nn.init.zeros_(constant.weight)
    dossier = found(
        constant, torch.randn(90, 2), y, test=(torch.randn(60, 2), torch.arange(60) % 3)
    )
    assert dossier["generalisation"].test_error_of_constant == pytest.approx(2 / 3)
    assert any("most frequent class" in finding.text for finding in dossier.findings)


def test_margins_and_bounds_of_a_layer():
    layer = nn.Linear(2, 2, bias=False)
    layer.weight.data = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    x = torch.eye(2).repeat(20, 1)
    y = torch.tensor([0, 1]).repeat(20)
    section = found(layer, x, y, test=(x, y))["generalisation"]
    assert section.median_margin == 3.0  # the lower of the two middle ones
    assert section["median_margin"].error == (3.0, 4.0)
    assert section.frobenius_bound > 1
    assert section.pac_bayes_bound < 0.5


def test_numbers_have_squared_errors():
    layer = nn.Linear(1, 1)
    nn.init.ones_(layer.weight)
    nn.init.zeros_(layer.bias)
    x = torch.randn(30, 1)
    section = found(layer, x, x + 2, test=(x, x + 3))["generalisation"]
    assert section.train_squared_error == pytest.approx(4, rel=1e-5)
    assert section.gap == pytest.approx(5, rel=1e-5)


def test_sequences_have_a_share_each():
    class Next(nn.Module):
        def forward(self, x):
            return nn.functional.one_hot((x + 1) % 5, 5).float()

    counting = (torch.arange(6) + torch.arange(8)[:, None]) % 5
    section = found(Next(), counting)["generalisation"]
    assert section.train_error == 0
    assert section["train_error"].n == 8


@pytest.mark.parametrize("kind", ["classes", "numbers", "positions"])
def test_of_very_large_outputs_the_first_count(monkeypatch, kind):
    monkeypatch.setattr(_study, "_BATCH", 5)
    monkeypatch.setattr(_study, "_ENTRIES", 40)
    x = torch.randn(30, 4, 3)
    z = x if kind == "positions" else x[:, 0]
    y = z.roll(1, -1) if kind == "numbers" else z.roll(1, -1).argmax(-1)
    name = "squared_error" if kind == "numbers" else "error"
    section = found(nn.Identity(), z, y, test=(z[3:], y[3:]))["generalisation"]
    n = 5 if kind == "positions" else 15  # 12 or 3 numbers each, until there are 40
    for which, first in (("train", 0), ("test", 3)):
        part, wanted = z[first : first + n], y[first : first + n]
        each = (part - wanted).square() if kind == "numbers" else part.argmax(-1) != wanted
        assert section[f"{which}_{name}"].n == n
        assert section[f"{which}_{name}"].value == pytest.approx(float(each.double().mean()))


def test_without_targets_it_does_not_apply():
    section = found(nn.Linear(2, 3), torch.randn(9, 2))["generalisation"]
    assert section.status == "not applicable"
    assert "no targets" in section.reason
