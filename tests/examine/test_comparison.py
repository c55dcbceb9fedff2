"""Two dossiers side by side: paired tests against SciPy, Holm's correction, and words."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from torch import nn

from vademecum.examine import Dossier, Measurement, Section, compare, examine
from vademecum.examine.comparison import _signs, holm

SAME = {"examples_mark": "a", "seed": 1}


def dossier(*measurements: Measurement, **environment) -> Dossier:
    return Dossier((Section("robustness", "measured", measurements),), (), environment or SAME)


def mean(name: str, each: np.ndarray) -> Measurement:
    error = float(each.std(ddof=1)) / math.sqrt(len(each))
    return Measurement(name, float(each.mean()), error, "", len(each), "", tuple(each.tolist()))


def test_paired_numbers_are_students_t():
    draw = np.random.default_rng(0)
    a = draw.normal(size=40)
    b = a + 0.1 + 0.2 * draw.normal(size=40)
    (row,) = compare(dossier(mean("loss", a)), dossier(mean("loss", b))).rows
    test = stats.ttest_rel(b, a)
    assert row.p == pytest.approx(test.pvalue)
    assert row.interval == pytest.approx(tuple(test.confidence_interval()))
    assert row.pairs == 40
    assert row.verdict == "b is larger"
    (blind,) = compare(dossier(mean("loss", a)), dossier(mean("loss", b), seed=1)).rows
    assert blind.pairs is None
    assert blind.verdict == "equal within error"  # which pairs alone could tell


def test_paired_answers_are_mcnemars_exact_test():
    a, b = np.zeros(50), np.zeros(50)
    a[:20], b[:20] = 1, 1
    b[20:32] = 1  # twelve gained
    a[40:42] = 1  # and two lost
    (row,) = compare(dossier(mean("accuracy", a)), dossier(mean("accuracy", b))).rows
    assert row.difference == pytest.approx(0.2)
    assert row.p == pytest.approx(stats.binomtest(12, 14).pvalue)
    assert row.interval is not None
    for end, side in zip(row.interval, (1, -1), strict=True):
        far = spreads(12, 2, 50, end, side)
        assert far == pytest.approx(side * stats.norm.ppf(0.975), rel=1e-4)


def spreads(more: int, less: int, n: int, d: float, side: int) -> float:
    """How far what was seen, less one, is from a difference d, for the likeliest shares."""

    def unlikely(share: float) -> float:
        p = np.array([share + d, share, 1 - 2 * share - d])
        return -float(np.array([more, less, n - more - less]) @ np.log(p))

    bounds = max(0.0, -d) + 1e-12, (1 - d) / 2 - 1e-12
    found: Any = optimize.minimize_scalar(unlikely, bounds=bounds, options={"xatol": 1e-10})
    share = found.x
    return ((more - less - side) / n - d) / math.sqrt((2 * share + d - d * d) / n)


@pytest.mark.parametrize(
    ("more", "less", "n"), [(0.2, 0.2, 60), (0.1, 0.0, 100), (0.02, 0.12, 80), (0.01, 0.0, 300)]
)
def test_intervals_of_paired_answers_cover(more, less, n):
    """At least 95 % of them, also where one is never better: what share differs is not known."""
    draw, hits, times = np.random.default_rng(1), 0, 400
    for _ in range(times):
        kind = draw.choice(3, size=n, p=[more, less, 1 - more - less])
        a, b = (kind == 1).astype(float), (kind == 0).astype(float)
        (row,) = compare(dossier(mean("accuracy", a)), dossier(mean("accuracy", b))).rows
        assert row.interval is not None
        hits += row.interval[0] <= more - less <= row.interval[1]
    assert hits >= stats.binom.ppf(1e-4, times, 0.95)


@pytest.mark.parametrize("n", [5, 14, 30])
def test_intervals_of_paired_answers_cover_by_all_outcomes(n):
    """The coverage itself, from the probabilities of all outcomes, for shares of all kinds."""
    kinds = [(m, k) for m in range(n + 1) for k in range(n + 1 - m)]
    pairs = (np.repeat([1.0, -1.0, 0.0], [m, k, n - m - k]) for m, k in kinds)
    ends: Any = [_signs(0.0, each).interval for each in pairs]
    low, high = np.array(ends).T
    counts = np.array([(m, k, n - m - k) for m, k in kinds])
    odds = np.random.default_rng(0).dirichlet([0.4, 0.4, 0.8], 60).tolist()
    odds += [(p, 1 - p, 0.0) for p in (0.5, 0.7, 0.9)]
    odds += [(p, 0.0, 1 - p) for p in (0.05, 0.3, 0.95)]
    for p in odds:
        chance = stats.multinomial.pmf(counts, n, np.array(p))
        d = p[0] - p[1]
        covered = chance[(low <= d + 1e-9) & (d - 1e-9 <= high)].sum()
        assert covered >= 0.95, (p, covered)


def test_large_numbers_are_paired_too():
    """They are kept in nine digits, so that their mean is not the value to the last one."""
    draw = np.random.default_rng(0)
    a = 1e6 * (1 + 0.1 * draw.normal(size=40))
    b = a + 1 + 0.2 * draw.normal(size=40)
    one, other = (
        mean("loss", each)._replace(each=tuple(float(f"{v:.9g}") for v in each)) for each in (a, b)
    )
    (row,) = compare(dossier(one), dossier(other)).rows
    assert row.pairs == 40
    assert row.verdict == "b is larger"


def test_equal_answers_leave_room_for_a_difference():
    """None of 50 differ: then a share d may, of which n d - 1 is z spreads of n d (1 - d)."""
    (row,) = compare(*(dossier(mean("accuracy", np.ones(50))) for _ in range(2))).rows
    z, n = float(stats.norm.ppf(0.975)) ** 2, 50
    most = max(np.roots([n * n + z * n, -(2 + z) * n, 1.0]))
    assert row.interval == pytest.approx((-most, most), rel=1e-6)
    assert (row.p, row.verdict) == (1.0, "equal within error")


@pytest.mark.parametrize(("mark", "drawn", "words"), [
    ("a", 1, "the same examples"), ("a", 2, "the same examples, in another order"),
    ("a-c", 1, "the same examples, but not the same fresh ones"), ("b", 1, "other examples"),
    ("b-c", 1, "other examples"), (None, 1, "other examples"),
])  # fmt: skip
def test_what_both_have_seen(mark, drawn, words):
    one = dossier(mean("loss", np.arange(5.0)))
    other = dossier(mean("loss", np.arange(5.0)), examples_mark=mark, seed=drawn)
    for pair in ((one, other), (other, one)):
        found = compare(*pair)
        assert found.examples == words
        assert (found.rows[0].pairs is not None) == (words == "the same examples")


def test_errors_of_other_examples_add_up():
    one = dossier(Measurement("loss", 1.0, 0.3), examples_mark="a", seed=1)
    other = dossier(Measurement("loss", 2.0, (1.216, 2.784)), examples_mark="b", seed=1)
    found = compare(one, other)
    (row,) = found.rows
    assert found.examples == "other examples"
    assert row.interval == pytest.approx((1 - 1.96 * 0.5, 1 + 1.96 * 0.5), abs=1e-6)
    assert row.p == pytest.approx(2 * stats.norm.sf(2))
    assert row.verdict == "b is larger"


@pytest.mark.parametrize(
    ("kind", "n", "tested"),
    [("sample", 9, True), ("arithmetic", 8, True), ("arithmetic", 9, False), ("spread", 8, False)],
)
def test_what_an_error_is_of_decides_what_is_tested(kind, n, tested):
    """Here of the same examples, all of them or not; a spread is no error of a mean."""
    one = Measurement("number", 1.0, 0.1, n=8, error_of=kind)
    (row,) = compare(dossier(one), dossier(one._replace(value=2.0, n=n))).rows
    assert (row.p is not None) is tested
    (row,) = compare(dossier(one._replace(error_of="sample")), dossier(one)).rows
    assert (row.p is not None) is (kind != "spread")


def test_errors_of_arithmetic_say_nothing_of_other_examples():
    """The same network differs in its eigenvalues from sample to sample, far beyond rounding."""
    model, draw = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)), torch.Generator()

    def looked(model: nn.Module, seed: int) -> Dossier:
        x = torch.randn(24, 3, generator=draw.manual_seed(seed))
        y, sections = (x[:, 0] > 0).long(), ["curvature"]
        dice = torch.Generator().manual_seed(0)
        return examine(model, x, y, sections=sections, budget=math.inf, generator=dice)

    found = compare(looked(model, 1), looked(model, 2))
    names = {row.name: row for row in found.rows}
    for name in ("largest_eigenvalue", "critical_learning_rate", "smallest_eigenvalue", "trace"):
        assert names[name].difference != 0
        assert names[name].p is None
    assert found.verdict.startswith("Equal within error"), found.verdict
    model[0].weight.data *= 3  # pyright: ignore
    other = looked(model, 1)
    model[0].weight.data /= 3  # pyright: ignore
    (row,) = (row for row in compare(looked(model, 1), other).rows if row.section == "curvature"
              and row.name == "largest_eigenvalue")  # fmt: skip
    assert row.p is not None
    assert row.p < 1e-6


@pytest.mark.parametrize(
    ("p", "corrected"),
    [
        ([], []),
        ([0.5], [0.5]),
        ([0.04, 0.01, 0.02], [0.04, 0.03, 0.04]),
        ([0.01, 0.01, 0.5, 0.9], [0.04, 0.04, 1.0, 1.0]),
    ],
)
def test_holm(p, corrected):
    assert holm(p) == pytest.approx(corrected)


def test_many_numbers_need_more():
    """A difference that stands alone is lost among twenty that are none."""
    values = [(1.0, 1.0 + 0.11)] + [(1.0, 1.0)] * 20
    one, other = (
        dossier(*(Measurement(f"m{i}", pair[k], 0.0359) for i, pair in enumerate(values)), seed=k)
        for k in (0, 1)
    )
    found = compare(one, other)
    assert found.rows[0].p == pytest.approx(
        21 * 2 * stats.norm.sf(0.11 / math.hypot(0.0359, 0.0359))
    )
    assert found.verdict == "Equal within error in all of 21 numbers that have one."
    alone = compare(dossier(Measurement("m0", 1.0, 0.0359), seed=0),
                    dossier(Measurement("m0", 1.11, 0.0359), seed=1))  # fmt: skip
    assert alone.verdict.startswith("Different in 1 of 1 numbers")


def test_what_has_no_error_is_told_without_a_test():
    one = dossier(Measurement("parameters", 10), Measurement("masked", True))
    other = dossier(Measurement("parameters", 12), Measurement("masked", False))
    (row,) = compare(one, other).rows
    assert (row.p, row.interval, row.difference) == (None, None, 2)
    assert row.verdict == "b is larger"  # a count is exact
    (row,) = compare(*(dossier(Measurement("share", v)) for v in (0.5, 0.25))).rows
    assert row.verdict == "b is smaller, and no error is known"
    assert compare(one, one).rows[0].verdict == "equal"
    assert compare(one, Dossier(())).verdict == "Nothing was measured in both."


def test_networks_on_the_same_examples():
    means = 2 * torch.eye(3)
    y = torch.arange(90) % 3
    x = means[y] + torch.randn(90, 3)

    def looked(model: nn.Module) -> Dossier:
        draw = torch.Generator().manual_seed(0)
        return examine(model, x, y, sections=["generalisation"], generator=draw)

    worse = nn.Linear(3, 3, bias=False)
    worse.weight.data = torch.eye(3)[[1, 0, 2]]
    one, other = looked(nn.Identity()), Dossier.from_json(looked(worse).to_json())
    found = compare(one, other)
    assert found.examples == "the same examples"
    row = next(row for row in found.rows if row.name == "train_error")
    right = [(model(x).argmax(1) != y).double() for model in (nn.Identity(), worse)]
    assert row.difference == pytest.approx(float((right[1] - right[0]).mean()))
    assert row.pairs == 90
    assert row.verdict == "b is larger"
    assert "generalisation.train_error" in found.table()
    assert compare(one, one).verdict.startswith("Equal within error")
