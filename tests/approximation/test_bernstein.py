"""Bernstein polynomials against the binomial sum in rationals, and their derivative's formula."""

import inspect
import math
from fractions import Fraction

import pytest
import torch

from vademecum.approximation.bernstein import bernstein_polynomial


def binomial_sum(y, x):
    """The docstring's sum, in exact rationals."""
    n, x = len(y) - 1, Fraction(x)
    return sum(Fraction(v) * math.comb(n, k) * x**k * (1 - x) ** (n - k) for k, v in enumerate(y))


@pytest.mark.parametrize("degree", [0, 1, 2, 7, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_binomial_sum(degree, dtype):
    y, x = torch.randn(degree + 1, dtype=dtype), torch.rand(3, 4, dtype=dtype)
    expected = [[float(binomial_sum(y.tolist(), v)) for v in row] for row in x.tolist()]
    found = bernstein_polynomial(y, x)
    assert found.dtype == dtype
    torch.testing.assert_close(found, torch.tensor(expected, dtype=dtype))


def test_interval_blocks_and_gradient():
    y = torch.randn(601, dtype=torch.float64)
    x = (torch.rand(700, dtype=torch.float64) * 5 - 2).requires_grad_()
    whole = bernstein_polynomial(y, x, low=-2.0, high=3.0)
    parts = torch.stack([bernstein_polynomial(y, (v + 2) / 5) for v in x[:5]])
    torch.testing.assert_close(whole[:5], parts)
    (slope,) = torch.autograd.grad(whole.sum(), x)
    # the derivative is the polynomial of n times the differences
    torch.testing.assert_close(slope, bernstein_polynomial(600 * y.diff(), (x + 2) / 5) / 5)


def test_edges():
    y = torch.tensor([3.0, -1.0, 2.0])
    assert bernstein_polynomial(y, torch.tensor([0.0, 1.0])).tolist() == [3.0, 2.0]
    assert bernstein_polynomial(y, torch.zeros(0)).shape == (0,)
    assert (
        bernstein_polynomial(torch.full((9,), 0.1), torch.rand(5)).tolist()
        == [y.new_tensor(0.1)] * 5
    )


Y = torch.ones(3)
ERRORS = [
    ((torch.ones(0), Y), {}, "y must not be empty"),
    ((Y[None], Y), {}, "y must have 1 axes"),
    ((Y, Y.double()), {}, "x must be torch.float32"),
    ((Y, Y * math.nan), {}, "x must be finite"),
    ((Y.long(), Y), {}, "y must be floating point"),
    ((Y, Y), {"low": 1.0}, "high must be > 1, got 1.0"),
    ((Y, Y), {"low": math.nan}, "low must be .* got nan"),
    ((Y, Y), {"high": math.inf}, "high must be <= 3.4.*, got inf"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("arguments", "knobs", "message"), ERRORS)
def test_errors(arguments, knobs, message):
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(bernstein_polynomial)(*arguments, **knobs)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    y, x = torch.randn(20).double(), torch.rand(50).double()
    torch.testing.assert_close(
        bernstein_polynomial(y.cuda(), x.cuda()).cpu(), bernstein_polynomial(y, x)
    )
