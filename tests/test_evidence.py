import math

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
)

finite = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(finite, finite)
def test_holds_and_refutes_are_opposites_on_numbers(a, b):
    for make in (at_most, at_least, equals):
        evidence = make("it", a, b)
        assert evidence.holds != evidence.refutes


@given(st.integers(), st.integers())
def test_integers_compare_exactly_at_any_size(a, b):
    assert at_most("it", a, b).holds == (a <= b)
    assert at_least("it", a, b).holds == (a >= b)
    assert equals("it", a, b).holds == (a == b)
    assert equals("it", a + 2**80, b + 2**80).holds == (a == b)


@pytest.mark.parametrize("relation", ["<=", ">=", "=="])
@pytest.mark.parametrize("pair", [(math.nan, 1.0), (1.0, math.nan), (math.nan, math.nan)])
def test_nan_neither_holds_nor_refutes(relation, pair):
    evidence = Evidence("it", relation, *pair)
    assert not evidence.holds
    assert not evidence.refutes


@pytest.mark.parametrize(
    ("evidence", "holds", "refutes"),
    [
        (equals("it", math.inf, math.inf), True, False),
        (equals("it", 1.0, math.inf), False, True),
        (at_most("it", 1.0, math.inf), True, False),
        (at_most("it", math.inf, 1.0), False, True),
        (at_least("it", -math.inf, -1e300), False, True),
        (at_most("it", [], []), False, False),  # no case, no evidence
        (equals("it", torch.tensor(True), 1), True, False),
        (equals("it", 1 + 2j, 1 + 2j), True, False),
        (equals("it", 1 + 2j, 1 + 3j), False, True),
        (equals("it", 0.1 + 0.2, 0.3), True, False),
        (equals("it", 1.0, 1.0 + 1e-6), False, True),
        (equals("it", 1.0, 1.1, tol=0.1), True, False),
    ],
)
def test_edge_cases(evidence, holds, refutes):
    assert (evidence.holds, evidence.refutes) == (holds, refutes)


def test_tensors_keep_the_worst_entry_and_count_the_cases():
    evidence = at_most("it", torch.tensor([[1.0, 9.0], [2.0, 5.0]]), torch.tensor([3.0, 4.0]), d=7)
    assert (evidence.measured, evidence.bound, evidence.cases) == (9.0, 4.0, 4)
    assert evidence.at == {"d": 7}
    assert str(evidence) == "it: 9 > 4 at d = 7"


def test_a_refuting_entry_outweighs_a_nan_and_a_nan_outweighs_holding_ones():
    assert at_most("it", [math.nan, 5.0], 1.0).refutes
    mixed = at_most("it", [math.nan, 0.0, 1.0], 1.0)
    assert not mixed.holds
    assert not mixed.refutes


def test_python_floats_are_not_rounded_to_the_default_dtype():
    assert torch.get_default_dtype() == torch.float32
    assert equals("it", 0.1, 0.1 + 1e-8, tol=1e-9).refutes
    assert equals("it", [0.1], [0.1 + 1e-8], tol=1e-9).refutes


def test_in_mean_accepts_the_true_mean_and_refuses_one_ten_errors_off():
    samples = torch.randn(10_000, dtype=torch.float64) + 3
    assert in_mean("it", samples, 3.0).holds
    assert in_mean("it", samples, 3.1).refutes
    assert in_mean("it", torch.ones(5), 1.0).holds
    assert not in_mean("it", torch.ones(1), 1.0).holds  # one draw has no standard error


def test_statistical_tests_state_their_false_alarm_rate():
    assert rejects("it", 1e-7).holds
    assert rejects("it", 1e-5).refutes
    assert consistent("it", 1e-5).holds
    assert consistent("it", 1e-7).refutes
    assert not rejects("it", math.nan).holds
    for make in (rejects, consistent):
        with pytest.raises(ValueError, match=r"alpha must be in \(0, 1e-06\], got 0.05"):
            make("it", 0.01, alpha=0.05)


@pytest.mark.parametrize("name", ["", "  ", 3.0])
def test_evidence_has_a_name(name, unchecked):
    with pytest.raises(TypeError, match="begins with the name of what is compared"):
        equals(name, 1.0, 1.0)


def test_integer_tensors_compare_exactly_where_doubles_of_them_would_agree_up_to_tol():
    large = torch.tensor([10**10])
    assert equals("it", large, large).holds
    assert equals("it", large + 1, large).refutes
    assert at_most("it", large + 1, large).refutes
    assert equals("it", large + 1, large).tol == 0
    assert equals("it", (large + 1).double(), large).holds  # up to 1e-9 of its size


def test_conjugates_compare_as_other_complex_numbers_do():
    z = torch.tensor([1 + 2j])
    assert equals("it", z.conj(), torch.tensor([1 - 2j])).holds
    assert equals("it", z.conj(), z).refutes


def test_excess_counts_tolerances():
    assert equals("it", 1.0, 2.0, tol=0.1).excess == pytest.approx(1 / 0.3)
    assert equals("it", 1, 2).excess == math.inf
    assert equals("it", 2.0, 2.0).excess == 0


def test_a_sentence_for_somebody_who_has_not_seen_the_check():
    assert at_most("mistakes", 9, 2, d=3).in_words() == (
        "mistakes at d = 3: 9, where the formula demands at most 2"
    )
    assert equals("sum", 4, 4).in_words() == "sum: 4, as it must be 4"
    near = equals("sum", 1.0000001, 1.0)
    assert near.in_words() == "sum: 1, where the formula demands 1 (they differ by 1e-07)"
    assert str(near) == "sum: 1 != 1 (they differ by 1e-07)"
