import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vademecum.claims import (
    Evidence,
    at_least,
    at_most,
    consistent,
    equals,
    in_mean,
    rejects,
    slope,
)

finite = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(finite, finite)
def test_holds_and_refutes_are_opposites_on_numbers(a, b):
    for make in (at_most, at_least, equals):
        evidence = make(a, b)
        assert evidence.holds != evidence.refutes


@given(st.integers(), st.integers())
def test_integers_compare_exactly_at_any_size(a, b):
    assert at_most(a, b).holds == (a <= b)
    assert at_least(a, b).holds == (a >= b)
    assert equals(a, b).holds == (a == b)
    assert equals(a + 2**80, b + 2**80).holds == (a == b)


@pytest.mark.parametrize("relation", ["<=", ">=", "=="])
@pytest.mark.parametrize("pair", [(math.nan, 1.0), (1.0, math.nan), (math.nan, math.nan)])
def test_nan_neither_holds_nor_refutes(relation, pair):
    evidence = Evidence(relation, *pair)
    assert not evidence.holds
    assert not evidence.refutes


@pytest.mark.parametrize(
    ("evidence", "holds", "refutes"),
    [
        (equals(math.inf, math.inf), True, False),
        (equals(1.0, math.inf), False, True),
        (at_most(1.0, math.inf), True, False),
        (at_most(math.inf, 1.0), False, True),
        (at_least(-math.inf, -1e300), False, True),
        (at_most([], []), False, False),  # no case, no evidence
        (equals(torch.tensor(True), 1), True, False),
        (equals(1 + 2j, 1 + 2j), True, False),
        (equals(1 + 2j, 1 + 3j), False, True),
        (equals(0.1 + 0.2, 0.3), True, False),
        (equals(1.0, 1.0 + 1e-6), False, True),
        (equals(1.0, 1.1, tol=0.1), True, False),
    ],
)
def test_edge_cases(evidence, holds, refutes):
    assert (evidence.holds, evidence.refutes) == (holds, refutes)


def test_tensors_keep_the_worst_entry_and_count_the_cases():
    evidence = at_most(torch.tensor([[1.0, 9.0], [2.0, 5.0]]), torch.tensor([3.0, 4.0]), d=7)
    assert (evidence.measured, evidence.bound, evidence.cases) == (9.0, 4.0, 4)
    assert evidence.at == {"d": 7}
    assert str(evidence) == "9 > 4 at d=7"


def test_a_refuting_entry_outweighs_a_nan_and_a_nan_outweighs_holding_ones():
    assert at_most([math.nan, 5.0], 1.0).refutes
    mixed = at_most([math.nan, 0.0, 1.0], 1.0)
    assert not mixed.holds
    assert not mixed.refutes


def test_python_floats_are_not_rounded_to_the_default_dtype():
    assert torch.get_default_dtype() == torch.float32
    assert equals(0.1, 0.1 + 1e-8, tol=1e-9).refutes
    assert equals([0.1], [0.1 + 1e-8], tol=1e-9).refutes


def test_in_mean_accepts_the_true_mean_and_refuses_one_ten_errors_off():
    samples = torch.randn(10_000, dtype=torch.float64) + 3
    assert in_mean(samples, 3.0).holds
    assert in_mean(samples, 3.1).refutes
    assert in_mean(torch.ones(5), 1.0).holds
    assert not in_mean(torch.ones(1), 1.0).holds  # one draw has no standard error


def test_slope_finds_the_rate_within_its_own_error():
    x = np.geomspace(1, 1000, 30)
    noise = np.exp(0.1 * np.random.default_rng(0).standard_normal(30))
    assert slope(x, 5 * x**-0.5 * noise, -0.5).holds
    assert slope(x, 5 * x**-0.5 * noise, -1.0).refutes
    assert slope(x, x**-0.5, -0.6, relation=">=").holds
    assert slope(x, x**-0.5, -0.4, relation=">=").refutes
    # the tolerance is Student's quantile at 1e-6 times the standard error, as SciPy has them
    from scipy import stats

    *_, error = stats.linregress(np.log(x), np.log(x**-0.5 * noise))
    expected = stats.t.isf(0.5e-6, 28) * error
    assert slope(x, x**-0.5 * noise, -0.5).tol == pytest.approx(expected, rel=1e-6)


def test_slope_needs_three_pairs():
    with pytest.raises(ValueError, match="three or more pairs, got 2 of x"):
        slope([1, 2], [1, 2], 1.0)


def test_statistical_tests_state_their_false_alarm_rate():
    assert rejects(1e-7).holds
    assert rejects(1e-5).refutes
    assert consistent(1e-5).holds
    assert consistent(1e-7).refutes
    assert not rejects(math.nan).holds
    for make in (rejects, consistent):
        with pytest.raises(ValueError, match=r"alpha must be in \(0, 1e-06\], got 0.05"):
            make(0.01, alpha=0.05)
