"""Exact intervals against sums in 30 digits, closed forms, SciPy, and enumeration."""

import math

import mpmath
import pytest
import torch
from scipy.stats import binomtest

from vademecum.foundations.confidence import clopper_pearson, clopper_pearson_sample_size


def error(k, n, p, alpha, *, up):
    """By which share p misses the point where P(X >= k), or P(X <= k), is alpha: a Newton step."""
    with mpmath.workdps(30):
        p = mpmath.mpf(p)
        odds = p / (1 - p)
        log = mpmath.loggamma(n + 1) - mpmath.loggamma(k + 1) - mpmath.loggamma(n - k + 1)
        top = mpmath.exp(log + k * mpmath.log(p) + (n - k) * mpmath.log1p(-p))
        term, total, j = mpmath.mpf(1), mpmath.mpf(1), k
        while term > 1e-20 * total:
            if up:
                term, j = term * odds * (n - j) / (j + 1), j + 1
            else:
                term, j = term * j / (odds * (n - j + 1)), j - 1
            total += term
        slope = top * (k if up else (n - k) * odds)  # of the tail in the logarithm of p
        return float((top * total - mpmath.mpf(alpha)) / slope)


@pytest.mark.parametrize("confidence", [0.3, 0.95, 1 - 1e-12])
@pytest.mark.parametrize("n", [2, 30, 10**4, 10**6, 10**9])
def test_limits_in_30_digits(n, confidence):
    counts = {1, 2, n // 3, n // 2, n - 1} if n < 10**6 else {1, 5, 999, 1000, n // 10**5, n - 1}
    for k in sorted(counts - {0, n}):
        low, high = clopper_pearson(k, n, confidence=confidence)
        alpha = (1 - confidence) / 2
        assert 0 < low < k / n < high <= 1
        assert abs(error(k, n, low, alpha, up=True)) < 1e-10
        if high < 1:
            assert abs(error(k, n, high, alpha, up=False)) < 1e-10
        else:
            assert n - k < 3


def test_where_the_inverse_of_scipy_is_lost():
    low, high = clopper_pearson(1000, 10**9)
    assert 9.38e-7 < low < 9.40e-7  # SciPy 1.17 inverts to 1.9e-6, beyond the upper limit
    assert 1.06e-6 < high < 1.07e-6


def test_edges_in_closed_form():
    for n in (1, 7, 10**9):
        for confidence in (0.5, 0.999):
            alpha = (1 - confidence) / 2
            low, high = clopper_pearson(0, n, confidence=confidence)
            assert low == 0
            assert high == pytest.approx(-math.expm1(math.log(alpha) / n), rel=1e-13)
            low, high = clopper_pearson(n, n, confidence=confidence)
            assert high == 1
            assert low == pytest.approx(alpha ** (1 / n), rel=1e-14)
            limit = clopper_pearson(n, n, confidence=confidence, side="lower")
            assert limit.low == pytest.approx((1 - confidence) ** (1 / n), rel=1e-14)


@pytest.mark.parametrize("side", ["both", "lower", "upper"])
def test_scipy_agrees(side):
    alternative = {"both": "two-sided", "lower": "greater", "upper": "less"}[side]
    for n in (1, 5, 20):
        found = clopper_pearson(torch.arange(n + 1), n, confidence=0.9, side=side)
        for k in range(n + 1):
            ci = binomtest(k, n, alternative=alternative).proportion_ci(0.9, "exact")
            assert float(found.low[k]) == pytest.approx(ci.low, abs=1e-12)
            assert float(found.high[k]) == pytest.approx(ci.high, abs=1e-12)


def test_counts_in_bulk():
    n = torch.randint(1, 10**6, (50, 4))
    k = (torch.rand(50, 4) * (n + 1)).long()
    low, high = clopper_pearson(k.int(), n, confidence=0.99)
    assert low.dtype == high.dtype == torch.float64
    assert low.shape == high.shape == (50, 4)
    assert (low <= k / n).all()
    assert (k / n <= high).all()
    for i in range(0, 50, 7):
        one = clopper_pearson(int(k[i, 0]), int(n[i, 0]), confidence=0.99)
        assert (float(low[i, 0]), float(high[i, 0])) == one
    mirrored = clopper_pearson(n - k, n, confidence=0.99)
    torch.testing.assert_close(1 - mirrored.high, low, rtol=0, atol=1e-15)
    assert clopper_pearson(torch.tensor(3), 10).low.shape == ()


def test_clopper_pearson_sample_size_by_enumeration():
    for epsilon, confidence in ((0.3, 0.9), (0.12, 0.95), (0.1, 0.5), (0.2, 0.999)):
        found = clopper_pearson_sample_size(epsilon, confidence=confidence)
        for n in range(1, found + 40):
            low, high = clopper_pearson(torch.arange(n + 1), n, confidence=confidence)
            assert bool((high - low).max() <= 2 * epsilon) == (n >= found)
    assert clopper_pearson_sample_size(4e-8) == pytest.approx(1.959964**2 / 6.4e-15, rel=1e-6)
    with pytest.raises(ValueError, match="epsilon must be so large that 1e15 trials do, got 1e-08"):
        clopper_pearson_sample_size(1e-8)
    n = clopper_pearson_sample_size(1e-3)
    lengths = [clopper_pearson(m // 2, m) for m in (n - 1, n)]
    assert lengths[1].high - lengths[1].low <= 2e-3 < lengths[0].high - lengths[0].low


ONE = torch.tensor([1, 2])
ERRORS = [
    ((1, 0), {}, "trials must be >= 1, got 0"),
    ((1, 10**15 + 1), {}, "trials must be <= 1000000000000000, got 1000000000000001"),
    ((ONE, torch.tensor(2**60)), {}, "trials must be <= 1000000000000000, got 1152921504606846976"),
    ((3, 2), {}, "successes must be from 0 to trials, got 3 of 2"),
    ((-1, 2), {}, "successes must be from 0 to trials, got -1 of 2"),
    ((ONE, 1), {}, "successes must be from 0 to trials, got 2 of 1"),
    ((1.0, 2), {}, "successes must be an integer, got 1.0"),
    ((True, 2), {}, "successes must be an integer, got True"),
    ((ONE.double(), 2), {}, "successes must hold integers, got torch.float64"),
    ((ONE > 1, 2), {}, "successes must hold integers, got torch.bool"),
    ((ONE[:0], 2), {}, "successes must not be empty"),
    ((ONE, torch.tensor([2, 2, 2])), {}, r"must broadcast, got successes: \(2,\), trials: \(3,\)"),
    ((1, 2), {"confidence": 1.0}, "confidence must be < 1, got 1.0"),
    ((1, 2), {"confidence": 0.0}, "confidence must be > 0, got 0.0"),
    ((1, 2), {"confidence": math.nan}, "confidence must be .*, got nan"),
    ((1, 2), {"side": "left"}, "side must be one of 'both', 'lower', 'upper', got 'left'"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("arguments", "knobs", "message"), ERRORS)
def test_errors(arguments, knobs, message):
    with pytest.raises(ValueError, match=message):
        clopper_pearson(*arguments, **knobs)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, math.nan])
def test_errors_of_the_sample_size(epsilon):
    with pytest.raises(ValueError, match=f"epsilon must be .*, got {epsilon}"):
        clopper_pearson_sample_size(epsilon)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    k = torch.arange(101)
    here, gone = clopper_pearson(k, 100), clopper_pearson(k.cuda(), 100)
    assert gone.low.is_cuda
    assert torch.equal(gone.low.cpu(), here.low)
    assert torch.equal(gone.high.cpu(), here.high)
