"""Estimates from counts: loops over left-out draws, and expectations over all samples."""

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from vademecum.foundations.entropies import entropy
from vademecum.foundations.information import mutual_information
from vademecum.foundations.information_estimators import (
    Correction,
    entropy_from_counts,
    mutual_information_from_counts,
)

CORRECTIONS: list[Correction] = ["none", "miller_madow", "jackknife"]


def multinomial(p: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """All tables of counts of n draws, and their probabilities."""
    k = len(p)
    tables = torch.tensor([c for c in product(range(n + 1), repeat=k) if sum(c) == n])
    log = math.lgamma(n + 1) + (tables * p.log() - torch.lgamma(tables.double() + 1)).sum(1)
    return tables, log.exp()


def expected_bias(p: Tensor, n: int, correction: Correction) -> float:
    tables, weights = multinomial(p, n)
    assert float(weights.sum()) == pytest.approx(1.0)
    value = entropy_from_counts(tables.double(), correction=correction).value
    return float(weights @ value - entropy(p))


def test_biases_by_enumeration():
    p = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    for n in (20, 40):
        plug_in = expected_bias(p, n, "none")
        assert plug_in == pytest.approx(-2 / (2 * n), rel=0.2)
        for correction in CORRECTIONS[1:]:
            assert abs(expected_bias(p, n, correction)) < 0.2 * abs(plug_in)
    for correction in CORRECTIONS[1:]:  # of second order, at least
        assert abs(expected_bias(p, 40, correction)) < 0.3 * abs(expected_bias(p, 20, correction))


def test_standard_error_by_enumeration():
    p = torch.tensor([0.2, 0.8], dtype=torch.float64)
    tables, weights = multinomial(p, 300)
    estimate = entropy_from_counts(tables.double(), correction="none")
    spread = (weights @ estimate.value**2 - (weights @ estimate.value) ** 2).sqrt()
    assert float(weights @ estimate.standard_error) == pytest.approx(float(spread), rel=0.02)


def test_mutual_information_from_counts_by_enumeration():
    joint = torch.tensor([[0.4, 0.1], [0.2, 0.3]], dtype=torch.float64)
    tables, weights = multinomial(joint.flatten(), 30)
    tables = tables.unflatten(-1, (2, 2)).double()
    truth = mutual_information(joint)
    bias = {
        c: float(weights @ mutual_information_from_counts(tables, correction=c).value - truth)
        for c in CORRECTIONS
    }
    assert bias["none"] == pytest.approx(1 / 60, rel=0.15)
    assert abs(bias["miller_madow"]) < 0.15 * bias["none"]
    assert abs(bias["jackknife"]) < 0.15 * bias["none"]


def leave_one_out(counts: Tensor, functional) -> float:
    """The jackknife's estimate of the bias, one draw after the other."""
    n, mean = int(counts.sum()), 0.0
    for place in counts.nonzero():
        fewer = counts.clone().double()
        fewer[tuple(place)] -= 1
        share = counts[tuple(place)].item() / n
        mean += share * float(functional(fewer / (n - 1)))
    return (n - 1) * (mean - float(functional(counts / n)))


def test_jackknife_against_a_loop():
    counts = torch.tensor([[3, 0, 1], [7, 2, 0]])
    one = entropy_from_counts(counts.flatten().double(), correction="jackknife")
    assert one.bias.item() == pytest.approx(leave_one_out(counts.flatten().double(), entropy))
    two = mutual_information_from_counts(counts.double(), correction="jackknife")
    assert two.bias.item() == pytest.approx(leave_one_out(counts.double(), mutual_information))
    assert two.value.item() == pytest.approx(
        mutual_information(counts.double() / 13).item() - two.bias.item()
    )


def test_corrections_agree_for_many_draws():
    counts = torch.tensor([2 * 10**9, 3 * 10**9, 5 * 10**9])
    close = [entropy_from_counts(counts.double(), correction=c).bias.item() for c in CORRECTIONS]
    assert close == pytest.approx([-1e-10] * 3, rel=1e-4)


def test_counts_whose_sum_is_beyond_64_bits():
    counts = torch.full((4,), 2**62)
    assert entropy_from_counts(counts, base=2).value.item() == pytest.approx(2.0)


def test_batches_dtypes_and_bases():
    counts = torch.tensor([[1, 2, 0], [4, 4, 4]])
    both = entropy_from_counts(counts, base=2)
    assert both.value.dtype == torch.float32
    assert both.value[1].item() == pytest.approx(math.log2(3) + 2 / 24 / math.log(2))
    assert both.standard_error[1].item() == pytest.approx(0.0, abs=1e-7)
    half = entropy_from_counts(counts.double(), base=2)
    assert half.value.dtype == torch.float64
    for i in range(2):
        alone = entropy_from_counts(counts[i].double(), base=2)
        assert [v[i].item() for v in half] == pytest.approx([v.item() for v in alone])
    table = torch.tensor([[[4, 0], [0, 4]], [[2, 2], [2, 2]]])
    estimate = mutual_information_from_counts(table, correction="none", base=2)
    assert estimate.value.tolist() == [1.0, 0.0]
    assert (estimate.bias * math.log(2)).tolist() == pytest.approx([-1 / 16, 1 / 16])


E, M = entropy_from_counts, mutual_information_from_counts
ERRORS = [
    (E, torch.tensor([1, -1]), {}, "counts must be whole numbers >= 0, got -1"),
    (E, torch.tensor([1.5, 2.0]), {}, "counts must be whole numbers >= 0, got 1.5"),
    (E, torch.tensor([math.nan, 2.0]), {}, "counts must be whole numbers >= 0, got nan"),
    (E, torch.tensor([math.inf, 2.0]), {}, "counts must be whole numbers >= 0, got inf"),
    (E, torch.tensor([[1, 1], [0, 0]]), {}, "counts must sum to 1 or more, got a sum of 0"),
    (
        E,
        torch.tensor([]),
        {},
        r"counts must have 1 or more axes, none of them empty, got shape \(0",
    ),
    (E, torch.tensor(3), {}, r"counts must have 1 or more axes, .*, got shape \(\)"),
    (
        E,
        torch.tensor([True, False]),
        {},
        "counts must be a tensor of whole numbers, got torch.bool",
    ),
    (E, [1, 2], {}, "counts must be a tensor of whole numbers, got list"),
    (E, torch.tensor([1, 2]), {"correction": "chao"}, "correction must be one of 'miller_madow'"),
    (E, torch.tensor([1, 0]), {"correction": "jackknife"}, "counts must sum to 2 or more"),
    (E, torch.tensor([1, 2]), {"base": 1}, "base must be > 1"),
    (M, torch.tensor([1, 2]), {}, "counts must have 2 or more axes"),
    (M, torch.zeros(2, 2), {}, "counts must sum to 1 or more"),
    (M, torch.eye(2) / 2, {}, "counts must be whole numbers"),
    (M, torch.eye(2), {"correction": None}, "correction must be one of"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("function", "counts", "knobs", "message"), ERRORS)
def test_errors(function, counts, knobs, message):
    with pytest.raises(ValueError, match=message):
        function(counts, **knobs)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("correction", CORRECTIONS)
def test_cuda(correction):
    counts = torch.tensor([[3, 0, 1], [7, 2, 0]])
    for function in (E, M):
        there = function(counts.cuda(), correction=correction)
        torch.testing.assert_close(
            [v.cpu() for v in there], list(function(counts, correction=correction))
        )
