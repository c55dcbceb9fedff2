"""Rational-quadratic splines: far outside the knots, at them, and where slopes are extreme."""

import itertools
from typing import Any

import pytest
import torch
from scipy import optimize

from vademecum.generative import SplineFlow
from vademecum.generative.flows._rational_quadratic import bent_by_spline, unbent_by_spline

GEN = torch.Generator().manual_seed


def logits(n: int, K: int, m: int, *, size: float = 2.0, seed: int = 0) -> torch.Tensor:
    return size * torch.randn(n, 3 * K - 1, m, generator=GEN(seed), dtype=torch.float64)


def knots(numbers, bound):
    """Corners and slopes of one spline, from its definition."""
    K = (len(numbers) + 1) // 3
    sides = []
    for part in (numbers[:K], numbers[K : 2 * K]):
        share = 1e-3 / K + (1 - 1e-3) * part.softmax(0)
        sides.append(torch.cat((torch.zeros(1), share.cumsum(0))) * 2 * bound - bound)
    limit = torch.tensor(1000.0).double().log()
    inner = numbers[2 * K :]
    slopes = torch.exp(inner / (1 + inner.abs() / limit))
    return *sides, torch.cat((torch.ones(1), slopes, torch.ones(1)))


def test_splines_pass_their_knots_with_their_slopes():
    """And between two knots they are the quotient of quadratics that Gregory and Delbourgo give."""
    for K, bound in ((2, 1.0), (5, 3.0)):
        numbers = logits(1, K, 1, seed=K)
        x, y, d = knots(numbers[0, :, 0], bound)
        many = numbers.expand(K - 1, -1, 1)
        value, log_slope = bent_by_spline(x[1:-1, None], many, bound)
        torch.testing.assert_close(value[:, 0], y[1:-1], rtol=0, atol=1e-13)
        torch.testing.assert_close(log_slope[:, 0].exp(), d[1:-1], rtol=1e-11, atol=0)
        for k, t in itertools.product(range(K), (0.1, 0.5, 0.8)):
            w, h = x[k + 1] - x[k], y[k + 1] - y[k]
            at = (x[k] + t * w)[None, None]
            top = h / w * t**2 + d[k] * t * (1 - t)
            under = h / w + (d[k] + d[k + 1] - 2 * h / w) * t * (1 - t)
            found = bent_by_spline(at, numbers, bound).value[0, 0]
            torch.testing.assert_close(found, y[k] + h * top / under, rtol=0, atol=1e-12)


def test_ends_meet_the_identity():
    """Value and slope are continuous at the outermost knots, and zeros give the identity."""
    numbers = logits(2, 4, 3)
    for side in (-1.0, 1.0):
        just = torch.full((2, 3), side * 2 * (1 - 1e-9)).double()
        for f in (bent_by_spline, unbent_by_spline):
            value, log_slope = f(just, numbers, 2.0)
            torch.testing.assert_close(value, just, rtol=0, atol=1e-6)
            torch.testing.assert_close(log_slope, torch.zeros(2, 3).double(), rtol=0, atol=1e-5)
            outside = f(torch.full((2, 3), side * 2).double(), numbers, 2.0)
            assert outside.value.eq(side * 2).all()
            assert not outside.log_slope.any()
    x = torch.linspace(-3, 3, 60).double().reshape(2, 30)
    value, log_slope = bent_by_spline(x, torch.zeros(2, 11, 30).double(), 2.0)
    torch.testing.assert_close(value, x)
    torch.testing.assert_close(log_slope, torch.zeros(2, 30).double())


def test_a_million_points_up_to_a_million_have_finite_gradients():
    torch.manual_seed(0)
    flow = SplineFlow(2, transforms=2, hidden=(4,), bins=4)
    x = torch.randn(500_000, 2) * torch.logspace(-2, 6, 500_000)[:, None]
    x[:5], x[5:10] = 5.0, -5.0
    x = x.requires_grad_()
    for f in (flow, flow.inverse):
        value, log_det = f(x)
        wanted = [x, *flow.parameters()]
        grads = torch.autograd.grad(
            (value / x.detach().abs().clamp_min(1)).sum() + log_det.sum(), wanted
        )
        assert torch.isfinite(value).all()
        assert torch.isfinite(log_det).all()
        assert all(torch.isfinite(g).all() for g in grads)
    outside = (x.abs() > 5).all(1)
    assert int(outside.sum()) > 100_000
    assert flow(x).value[outside].equal(x[outside])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_splines_are_inverted(dtype):
    """Where discriminants, computed as b^2 - 4 a c, are negative after rounding."""
    numbers = logits(400, 6, 25, size=30.0).to(dtype)
    y = torch.linspace(-4.999, 4.999, 400).to(dtype)[:, None].expand(400, 25)
    x, log_slope = unbent_by_spline(y, numbers, 5.0)
    assert torch.isfinite(log_slope).all()
    assert (x.abs() <= 5 * (1 + 1e-6)).all()
    back = bent_by_spline(x, numbers, 5.0).value
    eps = torch.finfo(dtype).eps
    steep = torch.exp(-log_slope).clamp_min(1)  # a rounding of x is magnified by the slope
    assert ((back - y).abs() <= 300 * eps * 5 * steep).all()


def test_unbending_is_the_root_that_scipy_finds():
    numbers = logits(6, 3, 1, size=3.0)
    for i, goal in enumerate((-1.9, -1.0, -0.1, 0.3, 1.2, 1.99)):
        one = numbers[i : i + 1]

        def gap(x, one=one, goal=goal):
            at = torch.tensor([[x]], dtype=torch.float64)
            return float(bent_by_spline(at, one, 2.0).value) - goal

        root = optimize.brentq(gap, -2, 2, xtol=1e-14)
        found = unbent_by_spline(torch.tensor([[goal]], dtype=torch.float64), one, 2.0).value
        assert float(found) == pytest.approx(root, abs=1e-10)


def test_bins_are_never_empty():
    numbers = torch.zeros(1, 11, 1).double()
    numbers[0, 0], numbers[0, 4] = 1e4, -1e4
    x, y, _ = knots(numbers[0, :, 0], 1.0)
    assert (x.diff() > 4e-4).all()
    value = bent_by_spline(x[1:-1, None], numbers.expand(3, -1, 1), 1.0).value
    torch.testing.assert_close(value[:, 0], y[1:-1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_rounds_the_result_alone(dtype):
    """Knots that half precision could not tell apart, from numbers that it can hold."""
    flow: Any = SplineFlow(2, transforms=1, hidden=(), bins=4).double()
    layer = flow.networks[0][-1]
    layer.weight.data.zero_()
    layer.bias.data = torch.tensor([8.0, 0, 0, 4, 0, 4, 8, 0, 1, -2, 1]).double()
    x = torch.linspace(-4.875, 4.875, 40).to(dtype).double()[:, None].expand(40, 2)
    for run in (lambda f, v: f(v), lambda f, v: f.inverse(v)):
        with torch.no_grad():
            wanted = run(flow.double(), x)
            found = run(flow.to(dtype), x.to(dtype))
        rounding = torch.finfo(dtype).eps
        for got, exact in zip(found, wanted, strict=True):
            torch.testing.assert_close(got.double(), exact, rtol=rounding, atol=1e-4)
