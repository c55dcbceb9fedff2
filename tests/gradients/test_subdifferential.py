"""Subdifferentials by hand, and against the inequality that defines them."""

import math

import pytest
import torch

from vademecum.gradients.subgradients import subdifferential

Z = torch.tensor([-2.0, -0.125, 0.0, 0.125, 3.0])
UNITS = {
    "abs": (torch.abs, [-1, -1, -1, 1, 1], [-1, -1, 1, 1, 1]),
    "relu": (torch.relu, [0, 0, 0, 1, 1], [0, 0, 1, 1, 1]),
    "leaky_relu": (
        lambda z: torch.where(z > 0, z, z / 4), [0.25, 0.25, 0.25, 1, 1], [0.25, 0.25, 1, 1, 1],
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("unit", UNITS)
def test_units_by_hand(unit, dtype):
    _, low, high = UNITS[unit]
    found = subdifferential(unit, Z.to(dtype), negative_slope=0.25)
    assert found.low.tolist() == low
    assert found.high.tolist() == high
    assert found.low.dtype == found.high.dtype == dtype


@pytest.mark.parametrize("unit", UNITS)
def test_members_satisfy_the_inequality_and_others_do_not(unit):
    f = UNITS[unit][0]
    u, g = torch.arange(-40, 41) / 8, torch.arange(-16, 17) / 8
    for z in Z:
        below = (f(u)[:, None] >= f(z) + g * (u - z)[:, None]).all(0)
        found = subdifferential(unit, z, negative_slope=0.25)
        assert found.contains(g).equal(below)


def test_leaky_slopes():
    kink = torch.zeros(1)
    for slope in (-0.5, 0.0, 1.0):
        found = subdifferential("leaky_relu", kink, negative_slope=slope)
        assert (found.low.item(), found.high.item()) == (slope, 1.0)


def test_max():
    z = torch.tensor([[1.0, 1.0, 0.0], [0.0, 2.0, 1.0]])
    found = subdifferential("max", z)
    assert found.low.tolist() == [[0, 0, 0], [0, 1, 0]]
    assert found.high.tolist() == [[1, 1, 0], [0, 1, 0]]
    tie = torch.tensor([0.5, 0.5, 0.0])
    assert found.contains(tie).tolist() == [True, False]
    assert found.contains(torch.tensor([0.0, 1.0, 0.0])).tolist() == [True, True]
    assert found.contains(torch.tensor([0.5, 0.4, 0.0])).tolist() == [False, False]
    assert found.contains(torch.tensor([0.5, 0.4, 0.0]), tol=0.11).tolist() == [True, False]
    gradient = torch.func.grad(torch.amax)(z[0])
    assert found.contains(gradient)[0]
    images = subdifferential("max", z[None])  # rows are along the last axis of any number
    assert images.low.equal(found.low[None])
    assert images.high.equal(found.high[None])
    assert images.contains(tie).tolist() == [[True, False]]


ERRORS = [
    (("tanh", Z), {}, "unit must be one of 'abs', 'relu', 'leaky_relu', 'max', got 'tanh'"),
    (("abs", Z.long()), {}, "z must be floating point, got torch.int64"),
    (("abs", Z / 0), {}, "z must be finite, got -inf at"),
    (("abs", Z[:0]), {}, "z must not be empty"),
    (("abs", torch.zeros(2, dtype=torch.cfloat)), {}, "z must be real, got torch.complex64"),
    (("max", torch.tensor(1.0)), {}, "z must have an axis"),
    (("leaky_relu", Z), {"negative_slope": 1.5}, "negative_slope must be <= 1, got 1.5"),
    (("leaky_relu", Z), {"negative_slope": math.nan}, "negative_slope must be .* got nan"),
    (("leaky_relu", Z), {"negative_slope": -math.inf}, "negative_slope must be .* got -inf"),
]


@pytest.mark.parametrize(("arguments", "knobs", "message"), ERRORS)
def test_errors(arguments, knobs, message, unchecked):
    with pytest.raises(ValueError, match=message):
        subdifferential(*arguments, **knobs)


def test_errors_of_contains(unchecked):
    found = subdifferential("abs", Z)
    with pytest.raises(ValueError, match="g must be floating point"):
        found.contains(Z.long())
    with pytest.raises(ValueError, match="tol must be >= 0, got -1"):
        found.contains(Z, tol=-1)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("unit", ["abs", "leaky_relu", "max"])
def test_cuda(unit):
    here, there = subdifferential(unit, Z), subdifferential(unit, Z.cuda())
    assert there.low.cpu().equal(here.low)
    assert there.high.cpu().equal(here.high)
