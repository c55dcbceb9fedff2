"""Capacity: the theory by a second derivation, the measurement, and its picture."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from scipy import stats
from sklearn.exceptions import ConvergenceWarning

from vademecum.connectionism.hopfield.capacity import (
    capacity_curve,
    draw_capacity,
    hopfield_capacity,
    mean_field_overlap,
)


def mean_field_iteration(load, rounds=3000):
    r"""The equations $m = \mathrm{erf}(m / \sqrt{2 \alpha r})$, $r = (1 - C)^{-2}$ by iteration."""
    m, r = 1.0, 1.0
    for _ in range(rounds):
        spread = math.sqrt(load * r)
        c = math.sqrt(2 / math.pi) / spread * math.exp(-(m**2) / (2 * spread**2))
        m, r = math.erf(m / (math.sqrt(2) * spread)), 1 / (1 - c) ** 2
    return m


@pytest.mark.parametrize("load", [0.01, 0.05, 0.1, 0.13, 0.137])
def test_mean_field_overlap_solves_its_equations(load):
    assert mean_field_overlap(load) == pytest.approx(mean_field_iteration(load), abs=1e-9)


def test_capacity_is_where_the_solution_ends():
    load, overlap = hopfield_capacity()
    assert (load, overlap) == pytest.approx((0.1379, 0.967), abs=5e-4)
    assert mean_field_overlap(load) == pytest.approx(overlap)
    assert mean_field_overlap(load - 1e-12) == pytest.approx(overlap, abs=1e-4)
    assert mean_field_overlap(load + 1e-12) == 0
    assert mean_field_overlap(1e-6) == 1


def test_curve_falls_and_has_students_intervals():
    curve = capacity_curve(300, [0.01, 0.05, 0.4], trials=4, probes=10, confidence=0.9)
    assert curve.loads.tolist() == pytest.approx([0.01, 0.05, 0.4])
    assert curve.mean[1] > 0.95 > 0.7 > curve.mean[2]
    row = curve.overlaps[2].double().numpy()
    low, high = stats.t.interval(0.9, 3, row.mean(), stats.sem(row))
    assert (curve.low[2].item(), curve.high[2].item()) == pytest.approx((low, high), abs=1e-5)


def test_curve_does_not_depend_on_the_executor():
    curves = []
    with ThreadPoolExecutor(2) as pool:
        for executor in (None, pool):
            generator = torch.Generator().manual_seed(1)
            curves.append(
                capacity_curve(
                    100, (0.05, 0.2), trials=3, noise=0.1, executor=executor, generator=generator
                )
            )
    assert curves[0].overlaps.equal(curves[1].overlaps)


def test_pseudo_inverse_holds_where_hebb_fails():
    curve = capacity_curve(200, [0.4], trials=2, rule="pseudo-inverse")
    assert curve.overlaps.eq(1).all()


def test_noise_flips_the_stated_share():
    """With a single pattern any start below one half of flipped bits is repaired."""
    assert capacity_curve(100, [0.001], trials=2, noise=0.49).overlaps.eq(1).all()


def test_draw_capacity_shows_measurement_and_theory():
    curve = capacity_curve(100, [0.05, 0.3], trials=3)
    axes = draw_capacity(curve).axes[0]
    assert axes.get_xlabel() == "load s / n (patterns per unit)"
    assert axes.get_ylabel() == "overlap after retrieval"
    _, labels = axes.get_legend_handles_labels()
    assert labels == ["mean-field theory", "capacity 0.138", "measured, n = 100"]
    styles = {line.get_linestyle() for line in axes.lines}
    assert {"--", ":"} <= styles  # told apart without colour
    other = draw_capacity(capacity_curve(50, [0.1], trials=2, rule="perceptron")).axes[0]
    assert other.get_legend_handles_labels()[1] == ["measured, n = 50"]


def test_progress_shows_where_it_is_asked_for(capsys):
    capacity_curve(20, [0.1], trials=2)
    assert capsys.readouterr().err == ""
    capacity_curve(20, [0.1], trials=2, progress=True)
    assert "2/2 trials" in capsys.readouterr().err


def test_trials_that_were_cut_short_are_marked():
    with pytest.warns(ConvergenceWarning, match=r"max_iter=1 reached in \d of 4 trials") as caught:
        curve = capacity_curve(200, [0.005, 0.5], trials=2, noise=0.1, max_iter=1)
    assert len(caught) == 1
    assert curve.converged.tolist() == [[True, True], [False, False]]
    assert "\n" not in repr(curve)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: capacity_curve(1, [0.1]), "n must be >= 2, got 1"),
        (lambda: capacity_curve(10, []), "loads must not be empty"),
        (lambda: capacity_curve(10, [0.1, -0.1]), "loads must be > 0, got -0.1"),
        (lambda: capacity_curve(10, [0.1], trials=1), "trials must be >= 2, got 1"),
        (lambda: capacity_curve(10, [0.1], probes=0), "probes must be >= 1"),
        (lambda: capacity_curve(10, [0.1], noise=0.5), "noise must be < 0.5, got 0.5"),
        (lambda: capacity_curve(10, [0.1], confidence=1.0), "confidence must be < 1"),
        (lambda: capacity_curve(10, [0.1], rule="hebb"), "rule must be one of"),
        (lambda: capacity_curve(10, [1.0], rule="pseudo-inverse"), "fewer than the 10 units"),
        (lambda: mean_field_overlap(0.0), "load must be > 0, got 0"),
        (lambda: mean_field_overlap(math.nan), "load must be .* got nan"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
