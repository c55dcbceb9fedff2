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


class NextIsTheSame(nn.Module):
    """Scores of tokens: the next one is this one, more so as `scale` is larger."""

    def __init__(self, k: int, scale: float):
        super().__init__()
        self.k, self.scale = k, nn.Parameter(torch.tensor(scale))

    def forward(self, ids):
        score = torch.arange(self.k, 0, -1.0) / self.k  # without a scale always the first token
        return score.expand(*ids.shape, self.k) + self.scale * nn.functional.one_hot(ids, self.k)


CONSTANT = "As far as can be told it is no better than the same answer whatever the input."


@pytest.mark.parametrize(("scale", "told"), [(0.0, 1), (5.0, 0)])
def test_sequences_no_better_than_a_constant(scale, told):
    """Tokens that mostly stay as they are: one network knows it, the other says the first token."""
    draw = torch.Generator().manual_seed(3)
    stay = torch.rand(30, 12, generator=draw) < 0.8
    ids = torch.randint(5, (30, 12), generator=draw)
    for t in range(1, 12):
        ids[:, t] = torch.where(stay[:, t], ids[:, t - 1], ids[:, t])
    y = torch.cat([ids[:, 1:], torch.full((30, 1), -100)], 1)
    y[:10, 6:] = -100  # shorter ones
    dossier = found(NextIsTheSame(5, scale), ids, y)
    section = dossier["generalisation"]
    shares = [(row[row >= 0] == k).double().mean() for k in range(5) for row in y]
    hits = torch.stack(shares).reshape(5, 30)
    best = hits[hits.mean(1).argmax()]
    wrong = [1 - (a[:-1][b[:-1] >= 0] == b[b >= 0]).double().mean() if scale else 1 -
             (b[b >= 0] == 0).double().mean() for a, b in zip(ids, y, strict=True)]  # fmt: skip
    gain = (1 - best) - torch.stack(wrong)
    told_gain = section["train_gain_over_constant"]
    assert told_gain.value == pytest.approx(float(gain.mean()), abs=1e-12)
    assert told_gain.error == pytest.approx(float(gain.std()) / 30**0.5, rel=1e-9)
    assert [f.text for f in dossier.findings].count(CONSTANT) == told


@pytest.mark.parametrize(("slope", "told"), [(0.0, 1), (1.0, 0)])
def test_numbers_no_better_than_their_mean(slope, told):
    x = torch.randn(50, 2)
    y = x @ torch.tensor([[1.0, -1.0], [0.5, 2.0]]) + 3
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.copy_(slope * torch.tensor([[1.0, 0.5], [-1.0, 2.0]]))
        model.bias.fill_(3.1)
    dossier = found(model, x, y)
    section, z = dossier["generalisation"], model(x).detach()
    gain = (y - y.mean(0)).square().mean(1) - (y - z).square().mean(1)
    assert section.train_gain_over_constant == pytest.approx(float(gain.mean()), rel=1e-5)
    assert [f.text for f in dossier.findings].count(CONSTANT) == told


def test_a_tenth_of_very_many_margins():
    """Two million of them, of which torch's quantile or a minimum would tell something else."""
    from vademecum.examine.sections._losses import Losses
    from vademecum.examine.sections.generalisation import _margins

    many = torch.arange(2_000_001.0).flip(0)
    none = torch.zeros(0)
    middle, tenth = _margins(Losses("error", "", none, many, none, False))
    assert (middle.value, tenth.value) == (1_000_000.0, 200_000.0)  # pyright: ignore


def test_the_best_constant_is_that_of_the_mean_over_sequences():
    """Four zeros in one sequence, a one in each of two others: always one is right in two."""
    from vademecum.examine.sections._losses import _always_one

    classes, counts = torch.tensor([0, 0, 0, 0, 1, 1]), torch.tensor([4, 1, 1])
    assert _always_one(classes, counts).tolist() == [1.0, 0.0, 0.0]
