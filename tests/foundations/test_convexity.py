"""Violating chords of functions whose worst one is known, and none for convex ones."""

import inspect
import math

import numpy as np
import pytest
import torch
from torch import nn

from vademecum.foundations.bregman import bregman_divergence
from vademecum.foundations.convexity import ConvexityViolation, convexity_violation
from vademecum.foundations.regions import Ball, Box


def cube(low: float, high: float, d: int = 1, dtype=torch.float64) -> Box:
    return Box(torch.full((d,), low, dtype=dtype), torch.full((d,), high, dtype=dtype))


def gap_of(f, found: ConvexityViolation) -> float:
    """The gap of the chord that was found, from its definition."""
    middle = found.lam * found.x + (1 - found.lam) * found.y
    value = lambda x: float(f(x[None])[0])  # noqa: E731
    return value(middle) - found.lam * value(found.x) - (1 - found.lam) * value(found.y)


CONVEX = {
    "squares": lambda x: x.square().sum(1),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=1),
    "l1": lambda x: x.abs().sum(1),
    "log-sum-exp": lambda x: x.logsumexp(1),
    "softplus": lambda x: nn.functional.softplus(x).sum(1),
    "quartic": lambda x: (x**4).sum(1),
    "linear": lambda x: 3 * x[:, 0] - 1e6,
    "constant": lambda x: 0 * x[:, 0] + 7,
    "root": lambda x: -(x + 2).sum(1).sqrt(),  # infinitely steep in a corner
    "hinge": lambda x: (x.sum(1) - 0.1).relu(),
    "far": lambda x: (x + 1e5).square().sum(1),
}


@pytest.mark.parametrize("name", CONVEX)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("d", [1, 4])
def test_nothing_is_found_where_there_is_nothing(name, dtype, d):
    found = convexity_violation(CONVEX[name], cube(-2.0, 2.0, d, dtype), chords=256, steps=15)
    assert not found.found
    assert found.x.dtype == dtype
    assert found.gap <= found.tol


SMALL = 1e-3
WORST = [  # function, region, largest gap
    (lambda x: x[:, 0].sin(), cube(0.0, math.pi), 1.0),
    (lambda x: x[:, 0] ** 3, cube(-2.0, 0.0), 16 / math.sqrt(27)),
    (lambda x: -x.square().sum(1), Ball(torch.zeros(3).double(), 2.0), 4.0),
    (lambda x: x[:, 0] ** 2 - SMALL * x[:, 1] ** 2, cube(-1.0, 1.0, 2), SMALL),
    (lambda x: x[:, 0] * x[:, 1], cube(-1.0, 1.0, 2), 1.0),
    (lambda x: -x.abs().sum(1), cube(-1.0, 1.0, 2), 2.0),
    (lambda x: (x[:, 0].square() - 1).square(), cube(-2.0, 2.0), 1.0),
    (lambda x: torch.minimum(x[:, 0], -x[:, 0]), cube(-3.0, 1.0), 1.5),
]


@pytest.mark.parametrize(("f", "region", "worst"), WORST)
def test_the_worst_chord_is_found(f, region, worst):
    found = convexity_violation(f, region)
    assert found.found
    assert found.gap == pytest.approx(worst, rel=1e-6)
    assert gap_of(f, found) == pytest.approx(found.gap, rel=1e-9)
    for end in (found.x, found.y):
        torch.testing.assert_close(region.project(end[None])[0], end)
    assert 0 <= found.lam <= 1


def test_a_small_dent_in_many_dimensions_is_found():
    f = lambda x: x.square().sum(1) - (1 + 1e-4) * (x[:, 0] + x[:, 1]) ** 2 / 2  # noqa: E731
    found = convexity_violation(f, Ball(torch.zeros(20).double(), 1.0), chords=256)
    assert found.found  # the curvature is -2e-4 in one of twenty directions
    assert found.gap == pytest.approx(1e-4, rel=0.3)
    assert "place of curvature -0.0002" in found.tried
    assert "gradient ascent" in found.tried


def test_without_derivatives():
    f = lambda x: torch.from_numpy(np.sin(x.numpy()[:, 0]))  # noqa: E731
    found = convexity_violation(f, cube(0.0, math.pi))
    assert found.gap == pytest.approx(1.0, abs=1e-3)
    assert "random search" in found.tried
    steps = convexity_violation(lambda x: x.floor().sum(1), cube(-2.0, 2.0))
    assert steps.gap > 0.9


def test_a_network_is_left_alone():
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1)).double()
    state = {k: v.clone() for k, v in net.state_dict().items()}
    found = convexity_violation(lambda x: net(x)[:, 0], cube(-2.0, 2.0, 2), chords=256, steps=10)
    assert found.found
    assert all(p.grad is None for p in net.parameters())
    assert all(v.equal(state[k]) for k, v in net.state_dict().items())


def test_tolerance():
    bump = lambda x: -1e-3 * x[:, 0].square()  # noqa: E731
    assert convexity_violation(bump, cube(-1.0, 1.0)).found
    assert not convexity_violation(bump, cube(-1.0, 1.0), tol=0.01).found


def test_bregman_divergence():
    x, y = torch.randn(2, 20, 5).double()
    half = bregman_divergence(lambda x: x.square().sum(1) / 2, y, x)
    torch.testing.assert_close(half, (x - y).square().sum(1) / 2)
    p, q = x.softmax(1), y.softmax(1)
    entropy = bregman_divergence(lambda p: (p * p.log()).sum(1), p, q)
    kl = nn.functional.kl_div(q.log(), p, reduction="none").sum(1)
    torch.testing.assert_close(entropy, kl)
    saddle = bregman_divergence(lambda x: x[:, 0] ** 2 - x[:, 1] ** 2, y, x)
    torch.testing.assert_close(saddle, (x - y)[:, 0] ** 2 - (x - y)[:, 1] ** 2)


def test_bregman_divergence_can_be_differentiated():
    f = lambda x: (x**4).sum(1)  # noqa: E731
    x, y = (torch.randn(3, 2).double().requires_grad_() for _ in range(2))
    assert torch.autograd.gradcheck(lambda y, x: bregman_divergence(f, y, x), (y, x))
    assert not bregman_divergence(f, y.detach(), x.detach()).requires_grad


BOX, SQUARE, X = cube(-1.0, 1.0, 2), lambda x: x.square().sum(1), torch.ones(3, 2)
ERRORS = [
    (convexity_violation, (SQUARE, None), {}, "region must have the methods .* got NoneType"),
    (convexity_violation, (SQUARE, BOX), {"chords": 0}, "chords must be >= 1, got 0"),
    (convexity_violation, (SQUARE, BOX), {"starts": 0}, "starts must be >= 1, got 0"),
    (convexity_violation, (SQUARE, BOX), {"steps": -1}, "steps must be >= 0, got -1"),
    (convexity_violation, (SQUARE, BOX), {"tol": -1.0}, "tol must be >= 0, got -1.0"),
    (convexity_violation, (SQUARE, BOX), {"tol": math.nan}, "tol must be >= 0, got nan"),
    (convexity_violation, (lambda x: x, BOX), {}, "f must return one number a point, got 2"),
    (convexity_violation, (lambda x: x.sum(), BOX), {}, "f must return one row for each of 2048"),
    (convexity_violation, (lambda x: x.sum(1).log(), BOX), {}, r"f\(x\) must be finite, got nan"),
    (convexity_violation, (lambda x: x.long().sum(1), BOX), {}, r"f\(x\) must be floating point"),
    (convexity_violation, (lambda x: x[:, 0] - x.mean(), BOX), {}, "f must act on each row"),
    (bregman_divergence, (SQUARE, X[:2], X), {}, r"y must have the shape of x, \(3, 2\)"),
    (bregman_divergence, (SQUARE, X, X * math.nan), {}, "x must be finite"),
    (bregman_divergence, (SQUARE, X[0], X[0]), {}, "must have 2 axes"),
    (bregman_divergence, (lambda x: x, X, X), {}, "f must return one number a point"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("function", "arguments", "knobs", "message"), ERRORS)
def test_errors(function, arguments, knobs, message):
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(function)(*arguments, **knobs)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    box = Box(torch.zeros(1, device="cuda"), torch.full((1,), math.pi, device="cuda"))
    found = convexity_violation(lambda x: x[:, 0].sin(), box)
    assert found.x.is_cuda
    assert found.gap == pytest.approx(1.0, abs=1e-5)
