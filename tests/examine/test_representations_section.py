"""What layers know, where it is known what they can know."""

import math
from typing import Any

import pytest
import torch
from scipy import stats
from torch import nn

from vademecum.examine import examine
from vademecum.examine.sections.representations import effective_rank, rank_error


def found(model, x, y=None, **options) -> Any:
    draw = torch.Generator().manual_seed(0)
    given = {"sections": ["representations"], "budget": math.inf, "generator": draw} | options
    dossier = examine(model, x, y, **given)
    section = dossier["representations"]
    assert not section.traceback, section.traceback
    return dossier


def parity():
    """Two bits and their parity, which is linear after one layer of units and not before."""
    x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]).repeat(16, 1)
    hidden = nn.Linear(2, 2)
    hidden.weight.data, hidden.bias.data = torch.ones(2, 2), torch.tensor([0.0, -1.0])
    last = nn.Linear(2, 2)
    last.weight.data = torch.tensor([[0.0, 0.0], [1.0, -2.0]])
    last.bias.data = torch.tensor([0.5, 0.0])
    model = nn.Sequential(hidden, nn.ReLU(), last)
    y = (x.sum(1) == 1).long()
    assert bool((model(x).argmax(1) == y).all())
    return model, x, y


def test_parity_is_read_off_after_the_units():
    model, x, y = parity()
    section = found(model, x, y)["representations"]
    assert section.layers == ("0", "2")
    assert section.probe_scores[0] <= 0.75 < section.probe_scores[1] == 1
    assert section.best_layer == "2"
    assert section.lost_by_the_end == 0
    assert section["best_score"].error[0] > 0.85


def test_a_layer_that_forgets_is_found():
    x = torch.randn(200, 4)
    y = (x[:, 0] > 0).long()
    knows, forgets = nn.Linear(4, 3), nn.Linear(3, 2)
    knows.weight.data = torch.eye(4)[:3] * torch.tensor([[9.0], [1], [1]])
    forgets.weight.data = torch.tensor([[0.0, 1, 0], [0, 0, 1]])
    dossier = found(nn.Sequential(knows, forgets), x, y)
    assert dossier["representations"].best_layer == "0"
    assert [f.section for f in dossier.findings if "off an earlier" in f.text] == [
        "representations"
    ]
    forgets.weight.data = torch.tensor([[-1.0, 0, 0], [1, 0, 0]])
    control = found(nn.Sequential(knows, forgets), x, y)
    assert not control.findings


def test_collapsed_layers_are_found():
    x, y = torch.randn(200, 8), torch.arange(200) % 2
    layers = [nn.Linear(8, 8) for _ in range(3)]
    layers[1].weight.data = torch.ones(8, 1) @ torch.randn(1, 8)
    dossier = found(nn.Sequential(*layers, nn.Linear(8, 2)), x, y)
    assert dossier["representations"].least_hidden_rank == pytest.approx(1, abs=1e-3)
    assert any("of its directions" in finding.text for finding in dossier.findings)
    for layer in layers:
        nn.init.orthogonal_(layer.weight)
    control = found(nn.Sequential(*layers, nn.Linear(8, 2)), x, y)
    assert control["representations"].least_hidden_rank > 6
    assert not any("of its directions" in finding.text for finding in control.findings)


def test_ranks_of_the_same_features_are_seldom_called_different():
    """By two standard errors of their own, for other examples of the same law."""
    draw, told, times = torch.Generator().manual_seed(0), 0, 200
    mix = torch.randn(8, 8, generator=draw) * torch.linspace(0.2, 2, 8)[:, None]
    for _ in range(times):
        one, other = ((torch.randn(100, 8, generator=draw) @ mix).relu() for _ in range(2))
        gap = effective_rank(one) - effective_rank(other)
        told += abs(gap) > 1.96 * math.hypot(rank_error(one), rank_error(other))
    # Student's law with 19 degrees of freedom: 6.5 %; by the two halves of them it was 20 %
    assert told <= stats.binom.ppf(1 - 1e-4, times, 0.065)


def test_an_error_of_a_rank_of_few_or_equal_features():
    assert rank_error(torch.ones(30, 3)) == 0
    assert rank_error(torch.tensor([[1.0, 0.0], [0.0, 1.0]])) == 0
    h = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    kept = [effective_rank(torch.cat([h[:i], h[i + 1 :]])) for i in range(7)]
    spread = math.sqrt(6 / 7 * sum((each - sum(kept) / 7) ** 2 for each in kept))
    assert rank_error(h) == pytest.approx(spread, rel=1e-6)


def test_effective_rank_of_known_spectra():
    base = torch.eye(4).repeat(2, 1)
    base[4:] *= -1
    assert effective_rank(base) == pytest.approx(4)
    assert effective_rank(base @ torch.diag(torch.tensor([1.0, 1, 0, 0]))) == pytest.approx(2)
    p = torch.tensor([0.8, 0.2])
    expected = float(torch.exp(-(p * p.log()).sum()))
    scaled = base[:, :2] @ torch.diag(p.sqrt())
    assert effective_rank(scaled[scaled.abs().sum(1) > 0]) == pytest.approx(expected)
    assert effective_rank(torch.ones(5, 3)) == 0


def test_tokens_and_numbers_and_nothing():
    x = torch.randint(6, (40, 5))
    tokens = found(nn.Sequential(nn.Embedding(6, 6), nn.Linear(6, 6)), x)["representations"]
    assert tokens.status == "measured"
    assert len(tokens.probe_scores) == 2
    z = torch.randn(60, 3)
    numbers = found(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1)), z, z[:, :1])
    assert numbers["representations"].probe_scores[0] > 0.99
    nothing = found(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)), z)["representations"]
    assert "probe_scores" not in nothing
    assert "without targets" in nothing.sentence


def test_blocks_of_many_layers_are_few():
    blocks = [nn.Sequential(nn.Linear(6, 6), nn.ReLU()) for _ in range(30)]
    model = nn.Sequential(nn.Linear(4, 6), nn.Sequential(*blocks), nn.Linear(6, 2))
    section = found(model, torch.randn(50, 4), torch.arange(50) % 2)["representations"]
    assert len(section.layers) == 8
    assert section.layers[0] == "0"
    assert section.layers[-1] == "2"


def test_what_no_layer_knows_is_said():
    """Random next tokens: the last position of each sequence has no target and is no class."""
    model = nn.Sequential(nn.Embedding(20, 6), nn.Linear(6, 20))
    section = found(model, torch.randint(20, (60, 4)))["representations"]
    assert section.chance < 0.15  # a fourth and more, if positions without target were a class
    low, high = section["last_score"].error
    assert low <= section.last_score <= high
    at_chance = section.best_score <= section.chance
    assert ("cannot be read off any layer" in section.sentence) == at_chance
    nothing = nn.Embedding.from_pretrained(torch.zeros(20, 6))
    constant = nn.Sequential(nothing, nn.Linear(6, 20))
    blind = found(constant, torch.randint(20, (60, 4)))["representations"]
    assert "the class cannot be read off any layer better than by chance" in blind.sentence


class Branched(nn.Module):
    """A residual block whose branch begins with zeros, as those of many networks do."""

    def __init__(self, around: float):
        super().__init__()
        self.first, self.branch, self.last = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 2)
        self.around = around
        nn.init.zeros_(self.branch.weight)
        nn.init.zeros_(self.branch.bias)

    def forward(self, x):
        h = self.first(x)
        return self.last(self.around * h + self.branch(h))


def test_a_branch_of_zeros_that_others_go_around_is_no_collapse():
    x, y = torch.randn(200, 4), torch.arange(200) % 2  # which nobody can read
    dossier = found(Branched(1.0), x, y)
    section = dossier["representations"]
    assert section.layers == ("first", "branch", "last")
    assert section.effective_ranks[1] == 0
    assert section.least_hidden_rank == section.effective_ranks[0] > 2
    assert not [f for f in dossier.findings if "of its directions" in f.text]
    control = found(Branched(0.0), x, y)
    assert control["representations"].least_hidden_rank == 0
    assert [f for f in control.findings if "uses no more than 0 of its directions" in f.text]


@pytest.mark.parametrize(("numbers", "collapsed"), [(1, False), (4, True)])
def test_one_direction_of_one_number_is_no_collapse(numbers, collapsed):
    """Layers that give only multiples of their first input: of a single number they must."""
    x = torch.randn(200, numbers)
    first = nn.Linear(numbers, 8, bias=False)
    first.weight.data[:, 1:] = 0
    model = nn.Sequential(first, nn.Tanh(), nn.Linear(8, 1))
    dossier = found(model, x, torch.randn(200))
    section = dossier["representations"]
    assert section.least_hidden_rank == pytest.approx(1)
    exact = effective_rank(x)  # 1, and almost 4
    assert section.input_effective_rank == pytest.approx(exact)
    error = rank_error(x)  # with others left out at a time
    assert section["input_effective_rank"].error == pytest.approx(error, rel=0.7, abs=1e-9)
    assert any("of its directions" in f.text for f in dossier.findings) is collapsed


@pytest.mark.parametrize(("width", "step"), [(6, 1), (256, 1), (257, 2), (600, 3)])
def test_directions_of_a_signal_are_those_of_its_points(width, step):
    """No more than 256 of them, and at equal distances."""
    x, model = torch.randn(40, 1, width), nn.Sequential(nn.Conv1d(1, 3, 3), nn.Flatten())
    section = found(model, x)["representations"]
    exact = effective_rank(x.flatten(1)[:, ::step])
    assert section.input_effective_rank == pytest.approx(exact, rel=1e-6)


def test_one_class_is_no_unknown_kind_of_targets():
    words = found(nn.Linear(3, 2), torch.randn(40, 3), torch.zeros(40).long())
    assert "without targets of a known kind that differ" in words["representations"].sentence
