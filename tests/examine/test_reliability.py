"""Calibration by simulation: no bias, coverage, the identity of Brier's score, the temperature."""

import math
from typing import Any

import pytest
import torch
from scipy import stats
from torch import nn

from vademecum.examine import _reliability, examine
from vademecum.examine._reliability import (
    BestTemperature,
    Bins,
    best_temperature,
    binned,
    brier_parts,
)
from vademecum.examine.sections import calibration
from vademecum.examine.sections.calibration import _leaning, _sentence


def replicates(shift: float, n: int = 400, times: int = 400):
    """Confidences, and answers that are right with this probability less a shift."""
    draw = torch.Generator().manual_seed(0)
    p = torch.linspace(0.5, 0.98, n, dtype=torch.float64)
    for _ in range(times):
        yield p, torch.rand(n, generator=draw, dtype=torch.float64) < p - shift


@pytest.mark.parametrize("shift", [0.0, 0.1, 0.3])
def test_calibration_error_has_no_bias_and_its_interval_covers(shift):
    found = [binned(p, c, 15) for p, c in replicates(shift)]
    squares = torch.tensor([bins.square for bins in found]).double()
    error = float(squares.std() / len(squares) ** 0.5)
    assert abs(float(squares.mean()) - shift**2) < 4 * error
    covered = [low - 1e-12 <= shift <= high for _, low, high in (bins.error() for bins in found)]
    assert sum(covered) >= stats.binom.ppf(1e-4, len(covered), 0.95)
    plain = torch.tensor([bins.plain_error for bins in found])
    if shift == 0:  # the plain error is far from the truth
        assert float(plain.mean()) > 0.03


@pytest.mark.parametrize(
    ("ends", "n", "shift", "part"),
    [((0.5, 0.98), 2000, 0.1, 2), ((0.9, 0.999), 2000, 0.1, 2), ((0.9, 0.999), 100, 0.3, 1)],
)
def test_the_interval_covers_where_its_law_is_least_apt(ends, n, shift, part):
    """Bins with and without an error, and bins of hardly any noise: the worst of some eighty."""
    p, times = torch.linspace(ends[0], ends[1], n, dtype=torch.float64), 4000
    q = p - shift * (torch.arange(n) < n // part)
    truth = shift / math.sqrt(part)
    if part == 2:  # of 15 bins the middle one is half and half
        truth = shift * math.sqrt((7 + 0.25) / 15)
    draw, covered = torch.Generator().manual_seed(0), 0
    for _ in range(times):
        right = torch.rand(n, generator=draw, dtype=torch.float64) < q
        _, low, high = binned(p, right, min(15, n // 10)).error()
        covered += low <= truth <= high
    assert covered >= stats.binom.ppf(1e-4, times, 0.95)


@pytest.mark.parametrize(("n", "shift"), [(100, 0.25), (400, 0.12)])
def test_calibration_is_accused_where_it_deserves_it(n, shift):
    """The lower end is above zero in 2.5 % of the cases without error, and in most with it."""
    bins, times = min(15, n // 10), 400
    wrong = sum(binned(p, c, bins).error()[1] > 0 for p, c in replicates(0.0, n, times))
    assert wrong <= stats.binom.ppf(1 - 1e-4, times, 0.05)  # its law is not quite chi-square
    found = sum(binned(p, c, bins).error()[1] > 0 for p, c in replicates(shift, n, times))
    assert found > 0.8 * times


def test_interval_of_one_bin_of_many():
    """Of one bin it is that of the difference of two numbers, of which one is noisy."""
    n, right = 10_000, 7_000
    p = torch.full((n,), 0.8, dtype=torch.float64)
    value, low, high = binned(p, torch.arange(n) < right, 1).error()
    spread = math.sqrt(0.7 * 0.3 / n)
    assert value == pytest.approx(math.sqrt(0.1**2 - 0.21 / (n - 1)), rel=1e-9)
    reach = stats.norm.ppf(0.98) * spread
    assert (low, high) == pytest.approx((0.1 - reach, 0.1 + reach), rel=2e-3)


def test_interval_where_all_of_a_bin_are_right():
    """As if half of one were wrong and half of one right beside them."""
    n, p = 20, 0.8
    value, low, high = binned(torch.full((n,), p).double(), torch.ones(n), 1).error()
    smooth = (n + 0.5) / (n + 1)
    noise = smooth * (1 - smooth) / n
    assert value == pytest.approx(1 - p)
    seen = math.sqrt((value**2 + noise) / noise)
    for end, q in ((low, 0.98), (high, 0.02)):
        at = end / math.sqrt(noise)  # a normal number around it is as near to zero as what was seen
        assert stats.norm.cdf(seen - at) - stats.norm.cdf(-seen - at) == pytest.approx(q, rel=1e-6)


def test_plain_error_by_hand():
    """Three of four examples at 0.9, of which 20 of 30 are right; a quarter at 0.6, 9 of 10."""
    p = torch.tensor([0.9] * 30 + [0.6] * 10).double()
    right = torch.tensor([1.0] * 20 + [0.0] * 11 + [1.0] * 9)
    wanted = 0.75 * (0.9 - 2 / 3) + 0.25 * (0.9 - 0.6)
    assert binned(p, right, 4).plain_error == pytest.approx(wanted)


def test_intervals_of_very_many_are_the_same_by_both_ways(monkeypatch):
    p = torch.linspace(0.5, 0.98, 50_000, dtype=torch.float64)
    draw = torch.Generator().manual_seed(0)
    bins = binned(p, torch.rand(len(p), generator=draw, dtype=torch.float64) < p - 0.1, 15)
    one = bins.error()
    monkeypatch.setattr(_reliability, "_NEARLY_NORMAL", 0.0)
    assert bins.error() == pytest.approx(one, abs=0.02 * (one[2] - one[1]))


def test_equal_confidences_share_a_bin():
    p = torch.tensor([0.9] * 10 + [0.6] * 2)
    bins = binned(p, torch.ones(12), 4)
    assert sorted(bins.counts.tolist()) == [2.0, 10.0]
    assert bins.confidence.tolist() == pytest.approx([0.6, 0.9])


def test_bins_of_equal_mass():
    bins = binned(torch.rand(150, dtype=torch.float64), torch.ones(150), 15)
    assert bins.counts.tolist() == [10.0] * 15


def test_brier_parts_add_up():
    p, c = torch.rand(200, dtype=torch.float64), torch.rand(200) < 0.4
    bins = binned(p, c, 7)
    parts = brier_parts(p, c, bins)
    total = parts.reliability - parts.resolution + parts.uncertainty + parts.within
    assert parts.score == pytest.approx(total, rel=1e-12)
    assert parts.score == pytest.approx(float((p - c.double()).square().mean()), rel=1e-12)
    assert min(parts.reliability, parts.resolution, parts.uncertainty) >= 0


def test_best_temperature_of_two_classes():
    z = torch.tensor([[3.0, 0.0]]).repeat(10, 1)
    y = torch.tensor([0] * 8 + [1] * 2)
    found: Any = best_temperature(z, y)  # odds of 4
    assert found.value == pytest.approx(3 / math.log(4), rel=1e-9)
    assert found.loss == pytest.approx(-(0.8 * math.log(0.8) + 0.2 * math.log(0.2)), rel=1e-9)
    # of b = 1 / T: the standard error of the log odds over 3
    b, spread = math.log(4) / 3, 1 / math.sqrt(10 * 0.16) / 3
    ends = [1 / (b + 1.959964 * spread), math.inf]  # b - 1.96 spreads is below zero
    assert found.interval == pytest.approx(ends, rel=1e-6)
    many: Any = best_temperature(z.repeat(10, 1), y.repeat(10))
    ends = [1 / (b + side * 1.959964 * spread / math.sqrt(10)) for side in (1, -1)]
    assert many.interval == pytest.approx(ends, rel=1e-6)


@pytest.mark.parametrize("scale", [0.02, 0.1, 1.0, 3.0])
@pytest.mark.parametrize("n", [64, 300])
def test_the_interval_of_the_best_temperature_covers(scale, n):
    """Classes drawn from the softmax: the best temperature is 1, however little scores differ."""
    draw, times = torch.Generator().manual_seed(0), 200
    low = high = 0
    for _ in range(times):
        z = scale * torch.randn(n, 3, generator=draw, dtype=torch.float64)
        y = torch.multinomial(z.softmax(1), 1, generator=draw)[:, 0]
        ends = best_temperature(z, y).interval or (1.0, 1.0)  # infinite: nothing is said
        low, high = low + (ends[0] > 1), high + (ends[1] < 1)
    # a sandwich of few examples is short: 5 % on a side were observed at n = 64, 10 % is the bound
    assert max(low, high) <= stats.binom.ppf(1 - 1e-4, times, 0.05)


def test_scores_that_hardly_differ_are_not_called_too_small():
    """Those of a network before its training: the likeliest temperature is anywhere."""
    draw, accused, likely = torch.Generator().manual_seed(0), 0, 0
    for _ in range(100):
        z = 0.02 * torch.randn(64, 3, generator=draw, dtype=torch.float64)
        y = torch.multinomial(z.softmax(1), 1, generator=draw)[:, 0]
        best = best_temperature(z, y)
        likely += best.value < 0.2
        accused += best.interval is not None and best.interval[1] < 0.5
    assert likely > 15  # most of which a multiple of its own error would have accused
    assert accused <= stats.binom.ppf(1 - 1e-4, 100, 0.025)


def test_scores_are_divided_where_one_is_no_good_temperature():
    """Of the first, one half says too little and the other too much: no temperature mends that."""
    draw = torch.Generator().manual_seed(0)
    p = torch.tensor([0.6, 0.9]).repeat(1000).double()
    z = torch.stack([(p / (1 - p)).log(), torch.zeros_like(p)], 1)

    def sentence(truth: list[float]) -> str:
        chance = torch.tensor(truth).repeat(1000)
        right = torch.rand(2000, generator=draw) < chance
        return _sentence(binned(p, right, 2), best_temperature(z, (~right).long()), "where")

    mixed, sure = sentence([0.8, 0.865]), sentence([0.5, 0.6])
    assert "mostly not sure enough" in mixed
    assert "divide" not in mixed
    assert "divide its scores by" in sure


@pytest.mark.parametrize(("ends", "told"), [((0.3, 0.9), True), ((0.3, 1.0), False),
                                            ((1.0, 3.0), False), ((1.1, 3.0), True)])  # fmt: skip
def test_scores_are_divided_by_what_is_surely_not_one(ends, told):
    """All are right, and said to be so half of the time."""
    bins = binned(torch.full((100,), 0.5).double(), torch.ones(100).bool(), 10)
    words = _sentence(bins, BestTemperature(0.6, ends, 0.5), "where")
    assert ("; divide its scores by 0.6" in words) is told


def test_best_temperature_at_the_ends():
    z = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    assert best_temperature(z, torch.tensor([0, 1])).value == 0.0
    assert best_temperature(z, torch.tensor([1, 0])).value == math.inf


def test_of_equal_scores_no_temperature_is_better_than_equal_ones():
    """Whatever the classes: they are not all right, as where the colder is the better."""
    y, draw = torch.tensor([0, 1, 1, 1]), torch.Generator().manual_seed(0)
    for _ in range(20):  # whose mean is off by rounding, either way
        rows = torch.randn(4, 1, generator=draw).repeat(1, 3)
        assert best_temperature(rows, y).value == math.inf
    found = best_temperature(torch.full((4, 3), 2.0), y)
    assert found == (math.inf, None, math.log(3))
    bins = binned(torch.full((4,), 1 / 3), torch.tensor([1, 0, 0, 0]), 1)
    assert "at no temperature are its scores better" in _sentence(bins, found, "where")


def test_a_class_with_one_of_two_equal_scores_is_no_right_answer():
    """The first of them is the answer, though no temperature is too low."""
    z, y = torch.tensor([[3.0, 3.0, 0.0], [0.0, 1.0, 5.0]] * 20), torch.tensor([1, 2] * 20)
    found = best_temperature(z, y)
    assert (found.value, found.interval) == (0.0, None)
    assert found.loss == pytest.approx(math.log(2) / 2)  # half of it is as of a fair coin
    p, answer = z.double().softmax(1).max(1)
    words = _sentence(binned(p, answer == y, 2), found, "where")
    assert "no score is above that of the right class" in words
    assert "all answers are right" not in words
    assert "all answers are right" in _sentence(binned(p, y >= 0, 2), found, "where")


def test_best_temperature_where_the_range_of_scores_is_beyond_half_precision():
    """Right three times of four: odds of 3."""
    z = torch.tensor([[40_000.0, -40_000.0]] * 4, dtype=torch.float16)
    found = best_temperature(z, torch.tensor([0, 0, 0, 1]))
    assert found.value == pytest.approx(80_000 / math.log(3), rel=1e-3)


def test_best_temperature_scales_with_the_scores():
    z = torch.randn(300, 3, dtype=torch.float64)
    y = torch.multinomial(z.softmax(1), 1)[:, 0]
    one: Any = best_temperature(z, y)
    other: Any = best_temperature(1e6 * z, y)
    assert other.value == pytest.approx(1e6 * one.value, rel=1e-6)
    assert other.interval == pytest.approx([1e6 * end for end in one.interval], rel=1e-5)


def test_no_confidence_is_further_off_than_one():
    wrong = binned(torch.tensor([0.9, 0.95]), torch.tensor([False, False]), 2)
    assert wrong.error()[0] == pytest.approx(math.sqrt((0.9**2 + 0.95**2) / 2))
    assert wrong.error()[2] == 1.0


@pytest.mark.parametrize(("n", "bins"), [(9, 1), (29, 2), (30, 3), (150, 15), (400, 15)])
def test_bins_have_ten_examples_at_least_and_are_fifteen_at_most(n, bins):
    model, x = nn.Linear(3, 2), torch.randn(n, 3)
    section = examine(model, x, torch.arange(n) % 2, sections=["calibration"])["calibration"]
    assert f" over {bins} bins of equal mass" in section["calibration_error"].method


def test_of_very_many_scores_the_first_are_looked_at(monkeypatch):
    monkeypatch.setattr(calibration, "_ENTRIES", 38)
    model, x = nn.Linear(3, 3), torch.randn(30, 3)
    section = examine(model, x, torch.arange(30) % 3, sections=["calibration"])["calibration"]
    assert [section[name].n for name in ("accuracy", "brier", "best_temperature")] == 3 * [12]


@pytest.mark.parametrize(
    ("confidence", "words"),
    [
        ([0.61, 0.61], "mostly too sure"),  # the standard error of 100 at one half is 0.05
        ([0.59, 0.59], "too sure of some and not sure enough of others"),
        ([0.1, 0.9], "too sure of some and not sure enough of others"),
        ([0.41, 0.41], "too sure of some and not sure enough of others"),
        ([0.39, 0.39], "mostly not sure enough"),
    ],
)
def test_which_way_it_is_off_is_told_beyond_two_standard_errors(confidence, words):
    frequency, counts = torch.tensor([0.5, 0.5]).double(), torch.tensor([50, 50])
    p = torch.tensor(confidence).double()
    assert _leaning(Bins(p, frequency, counts, torch.arange(100) // 50)) == words
