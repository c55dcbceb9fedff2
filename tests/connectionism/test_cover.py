import math
from fractions import Fraction
from itertools import product
from typing import Any

import jaxtyping
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.stats import norm

from vademecum.connectionism.cover import cover_count, separable_probability
from vademecum.connectionism.labellings import count_dichotomies, dichotomies

fraction: Any = 1.5


def realisable(x, y) -> bool:
    """Whether a linear programme finds weights with $y_i <theta, x_i> >= 1$."""
    z = -(x * y[:, None]).double().numpy()
    return linprog([0] * x.shape[1], A_ub=z, b_ub=[-1] * len(x), bounds=(None, None)).status == 0


@pytest.mark.parametrize(("s", "n"), [(1, 1), (4, 1), (2, 3), (3, 3), (5, 2), (5, 3), (6, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dichotomies_are_those_that_linear_programming_finds(s, n, dtype):
    x = torch.randint(-20, 21, (s, n), generator=torch.Generator().manual_seed(s + n)).to(dtype)
    every = torch.tensor(list(product((-1, 1), repeat=s)), dtype=torch.int8)
    expected = every[torch.tensor([realisable(x, y) for y in every])]
    assert dichotomies(x).equal(expected)
    assert len(expected) == cover_count(s, n)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 9), st.integers(1, 5), st.integers(0, 2**32))
def test_counting_agrees_with_the_formula(s, n, seed):
    x = torch.randn(s, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    assert count_dichotomies(x) == cover_count(s, n)


def test_many_points():
    assert count_dichotomies(torch.randn(20, 4)) == 2320
    assert count_dichotomies(torch.randn(300, 2)) == 600
    assert count_dichotomies(torch.randn(12, 12)) == 2**12


def test_the_count_ignores_scale_and_linear_maps():
    x = torch.randn(9, 3, dtype=torch.float64)
    labels = dichotomies(x)
    scale = torch.logspace(-300, 300, 9, dtype=torch.float64)[:, None]
    assert dichotomies(x * scale).equal(labels)
    assert dichotomies(x * 1e-310 * 1e10).equal(labels)
    shear = torch.tensor([[1.0, 2, 3], [0, 1, 4], [0, 0, 1]], dtype=torch.float64)
    assert dichotomies(x @ shear).equal(labels)


def test_signs_are_exact_where_rounding_would_decide():
    # Three nearly parallel points whose determinant, 2^-60, is far below the rounding error.
    tiny = 2.0**-30
    x = torch.tensor([[1, 0, 0], [1, tiny, 0], [1, 0, tiny], [1, 1, 1]], dtype=torch.float64)
    assert count_dichotomies(x) == cover_count(4, 3)
    x = torch.tensor([[1.0, 2.0**52], [1.0, 2.0**52 + 1]], dtype=torch.float64)
    assert count_dichotomies(torch.cat([x, torch.tensor([[1.0, 0.0]])])) == 6
    near = torch.tensor([[0.1, 0.3], [0.3, 0.9], [1.0, 0.0]], dtype=torch.float64)
    assert Fraction(0.1) * Fraction(0.9) != Fraction(0.3) ** 2
    assert count_dichotomies(near) == 6
    near[1] = 2 * near[0]
    with pytest.raises(ValueError, match="general position, got linearly dependent rows 0, 1"):
        dichotomies(near)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([[1.0, 2.0], [2.0, 4.0]], "general position, got linearly dependent rows 0, 1"),
        ([[1.0, 0.0], [0.0, 1.0], [3.0, 0.0]], "got linearly dependent rows 0, 2"),
        ([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]], "linearly dependent rows 0, 1, 3"),
        ([[0.0], [1.0]], "linearly dependent rows 0"),
        ([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]], "linearly dependent rows 0, 1"),
        ([[0.1, 0.2, 0.3], [0.4, 0.5, math.nan]], "x must be finite, got nan"),
        ([[1.0, math.inf]], "x must be finite, got inf"),
        ([[1, 2], [2, 1]], "x must be floating point"),
        ([1.0, 2.0], "x must have 2 axes"),
        ([[]], "x must not be empty"),
        (torch.ones(40, 12), "x must have fewer rows: 40 points in 12 dimensions"),
        (torch.eye(30), "x must have fewer rows: 30 points in 30 dimensions"),
    ],
)
def test_bad_points_are_refused(x, message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match=message):
        count_dichotomies(torch.as_tensor(x))


@given(st.integers(1, 60), st.integers(0, 30))
def test_the_count_is_the_sum_of_binomials(s, n):
    assert cover_count(s, n) == 2 * sum(math.comb(s - 1, i) for i in range(n))


@pytest.mark.parametrize("n", [1, 2, 7, 40, 300])
def test_probability_against_integers(n):
    s = torch.arange(1, 6 * n + 4)
    exact = [float(Fraction(cover_count(k, n), 2**k)) for k in s.tolist()]
    curve = separable_probability(s, n)
    torch.testing.assert_close(curve, torch.tensor(exact, dtype=torch.float64), rtol=1e-12, atol=0)
    assert separable_probability(2 * n, n) == pytest.approx(0.5, rel=1e-14)
    assert [separable_probability(int(k), n) for k in s[:9]] == curve[:9].tolist()


def test_probability_of_a_million_points():
    s = 10**6
    n = torch.linspace(-4, 4, 9, dtype=torch.float64).mul(math.sqrt(s) / 2).add(s / 2).round()
    for k in n.long().tolist():
        z = (k - 0.5 - (s - 1) / 2) / (math.sqrt(s - 1) / 2)  # the normal limit, corrected
        assert separable_probability(s, k) == pytest.approx(norm.cdf(z), rel=1e-4)
    assert separable_probability(10**6, 5 * 10**5) == pytest.approx(0.5, rel=1e-13)
    assert separable_probability(10**6, 10**5) == 0.0
    assert separable_probability(10**6, 10**6) == 1.0


def test_probability_keeps_shape_and_edge_values():
    s = torch.tensor([[1, 2], [3, 4]], dtype=torch.int32)
    assert separable_probability(s, 0).eq(0).all()
    assert separable_probability(s, 1).tolist() == [[1.0, 0.5], [0.25, 0.125]]
    assert separable_probability(5, 5) == 1.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cover_count(0, 1), "s must be >= 1, got 0"),
        (lambda: cover_count(1, -1), "n must be >= 0, got -1"),
        (lambda: cover_count(fraction, 1), "s must be an integer, got 1.5"),
        (lambda: separable_probability(0, 3), "s must be >= 1, got 0"),
        (lambda: separable_probability(fraction, 3), "s must be an integer, got 1.5"),
        (lambda: separable_probability(torch.tensor([4, 0]), 3), "s must be >= 1, got 0"),
        (lambda: separable_probability(torch.tensor([4.0]), 3), "s must be integers, got"),
        (lambda: separable_probability(torch.tensor([True]), 3), "s must be integers, got"),
        (lambda: separable_probability(3, -1), "n must be >= 0, got -1"),
    ],
)
def test_bad_sizes_are_refused(call, message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda_agrees_with_cpu():
    x = torch.randn(9, 3)
    assert dichotomies(x.cuda()).cpu().equal(dichotomies(x))
    assert dichotomies(x[:2].cuda()).cpu().equal(dichotomies(x[:2]))
    s = torch.arange(1, 50)
    assert separable_probability(s.cuda(), 9).cpu().equal(separable_probability(s, 9))
