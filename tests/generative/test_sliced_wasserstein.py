"""Sliced distances against SciPy, linear programs, and closed forms of shifts and scales."""

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import torch
from torch import nn

from tests.generative.drawn_features import batched, normal
from vademecum.generative import sliced_wasserstein
from vademecum.models import mlp, peak_bytes
from vademecum.testing import check_instrument


def by_program(x: np.ndarray, y: np.ndarray, p: float) -> float:
    """The cheapest plan between two sets of points on a line, as a linear program."""
    n, m = len(x), len(y)
    cost = np.abs(x[:, None] - y) ** p
    rows = np.kron(np.eye(n), np.ones(m))
    columns = np.kron(np.ones(n), np.eye(m))
    limits = np.concatenate([np.full(n, 1 / n), np.full(m, 1 / m)])
    found = scipy.optimize.linprog(cost.ravel(), A_eq=np.vstack([rows, columns]), b_eq=limits)
    return found.fun ** (1 / p)


@pytest.mark.parametrize(("n", "m"), [(5, 5), (6, 4), (7, 3), (2, 9)])
@pytest.mark.parametrize("p", [1.0, 2.0, 3.5])
def test_linear_programs_on_a_line(n, m, p):
    x, y = normal(n, 1, seed=1), 2 * normal(m, 1, seed=2) + 1
    found = sliced_wasserstein(x, y, p=p, projections=3)
    expected = by_program(x[:, 0].numpy(), y[:, 0].numpy(), p)
    assert found.value == pytest.approx(expected, rel=1e-8)
    assert found.standard_error == pytest.approx(0, abs=1e-12)


def test_scipy_along_each_direction():
    x, y = normal(30, 4, seed=3), normal(41, 4, seed=4) + 1
    generator = torch.Generator().manual_seed(5)
    found = sliced_wasserstein(x, y, p=1, projections=6, generator=generator)
    drawn = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    for direction, distance in zip(drawn, found.distances, strict=True):
        u, v = (t @ (direction / direction.norm()) for t in (x, y))
        assert float(distance) == pytest.approx(scipy.stats.wasserstein_distance(u, v), rel=1e-10)
    assert found.value == pytest.approx(float(found.distances.mean()))
    error = float(found.distances.std()) / math.sqrt(6)
    assert found.standard_error == pytest.approx(error, rel=1e-10)


def test_shifts_and_scales():
    """A shift by c has the distance |c| / sqrt(d); doubling x that of its second moment."""
    x, c = normal(40, 3, seed=6), torch.tensor([3.0, -4.0, 12.0]).double()
    g = torch.Generator().manual_seed(7)
    found = sliced_wasserstein(x, x + c, projections=4000, generator=g)
    assert abs(found.value - 13 / math.sqrt(3)) < 5 * found.standard_error
    assert found.standard_error < 0.1
    doubled = sliced_wasserstein(x, 2 * x, projections=4000, generator=g)
    expected = math.sqrt(float(x.square().sum(1).mean()) / 3)
    assert abs(doubled.value - expected) < 5 * doubled.standard_error
    assert sliced_wasserstein(x, x.flip(0), generator=g).value == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("p", [2.0, 60.0])
@pytest.mark.parametrize("scale", [1e-200, 1e-8, 1e8, 1e200])
def test_powers_neither_overflow_nor_vanish(scale, p):
    x, y, g = normal(9, 3, seed=16), normal(7, 3, seed=17) + 1, torch.Generator
    near = sliced_wasserstein(x, y, p=p, projections=20, generator=g())
    found = sliced_wasserstein(scale * x, scale * y, p=p, projections=20, generator=g())
    assert found.value / scale == pytest.approx(near.value, rel=1e-12)
    assert found.standard_error / scale == pytest.approx(near.standard_error, rel=1e-10)
    mean = float(near.distances.pow(p).mean())
    assert near.value == pytest.approx(mean ** (1 / p), rel=1e-12)
    error = float(near.distances.pow(p).std()) / math.sqrt(20)
    assert near.standard_error == pytest.approx(error * near.value / (p * mean), rel=1e-10)


def test_standard_error_is_the_spread_of_values():
    x, y, g = normal(20, 5, seed=8), normal(25, 5, seed=9) * 2 + 1, torch.Generator().manual_seed(1)
    found = [sliced_wasserstein(x, y, projections=40, generator=g) for _ in range(150)]
    spread = np.std([f.value for f in found])
    assert 0.8 < np.mean([f.standard_error for f in found]) / spread < 1.25


def test_far_from_zero_and_in_portions():
    x, y = normal(50, 3, seed=10), normal(35, 3, seed=11)
    near = sliced_wasserstein(x, y, generator=torch.Generator())
    far = sliced_wasserstein(x + 2.0**30, y + 2.0**30, generator=torch.Generator(), memory=9000)
    assert far.value == pytest.approx(near.value, rel=1e-5)  # of 2^-52 2^30 over distances of 0.3
    wide = normal(2000, 3)
    assert peak_bytes(lambda: sliced_wasserstein(wide, wide, memory=2**20)) < 2**20 + 2**18


def test_global_and_given_generators():
    x, y = normal(9, 3, seed=12), normal(8, 3, seed=13)
    state = torch.get_rng_state()
    values = {sliced_wasserstein(x, y, projections=2).value for _ in range(3)}
    assert len(values) == 3
    torch.set_rng_state(state)
    assert sliced_wasserstein(x, y, projections=2).value in values


def test_modules_and_loaders():
    net = nn.Sequential(nn.Linear(4, 3), nn.Dropout()).double()
    x, y = normal(11, 4, seed=14), normal(9, 4, seed=15)
    g = torch.Generator
    wanted = sliced_wasserstein(net.eval()(x), net(y), generator=g()).value
    net.train()
    found = sliced_wasserstein(batched(x, size=4), y, features=net, generator=g())
    assert found.value == pytest.approx(wanted, rel=1e-12)

    def of_halves(model, data):
        halves = data[::2], data[1::2]
        return sliced_wasserstein(*halves, features=model, generator=g()).distances

    check_instrument(of_halves, mlp([6, 4, 2]), normal(8, 6).float())


x = torch.randn(5, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sliced_wasserstein(x[:1], x), "x must hold at least 2 examples, got 1"),
        (lambda: sliced_wasserstein(x, x[:, :1]), "equally many features, got 3 and 1"),
        (lambda: sliced_wasserstein(x, x, p=0.5), "p must be >= 1, got 0.5"),
        (lambda: sliced_wasserstein(x, x, projections=1), "projections must be >= 2, got 1"),
        (lambda: sliced_wasserstein(x, x, memory=0), "memory must be >= 1, got 0"),
        (lambda: sliced_wasserstein(x.long(), x), "x must be floating point"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.gpu
def test_gpus():
    x, y, g = normal(50, 6), normal(40, 6, seed=1) + 1, torch.Generator
    here = sliced_wasserstein(x, y, generator=g())
    there = sliced_wasserstein(x.cuda(), y.cuda(), generator=g())
    assert there.value == pytest.approx(here.value, rel=1e-10)
    assert math.isfinite(sliced_wasserstein(x.cuda(), y.cuda()).value)


@pytest.mark.parametrize("m", [2, 4])
def test_powers_of_gaps_that_leave_the_range(m):
    x = torch.tensor([[0.0], [1e200]], dtype=torch.float64)
    y = torch.tensor([[0.0], [3e200]], dtype=torch.float64).repeat(m // 2, 1)
    found = sliced_wasserstein(x, y, p=2.0, projections=3)
    assert found.value == pytest.approx(2e200 / 2**0.5)
