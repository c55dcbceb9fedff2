"""Boxes and balls: samples stay inside, projections are nearest points."""

import inspect
import math

import pytest
import scipy.stats
import torch

from vademecum.foundations.curvature_constants import lipschitz_constant
from vademecum.foundations.projections import project
from vademecum.foundations.regions import Ball, Box, Region

BOX = Box(torch.tensor([-1.0, 2.0]).double(), torch.tensor([1.0, 5.0]).double())
BALL = Ball(torch.tensor([3.0, -1.0]).double(), 2.0)


@pytest.mark.parametrize("region", [BOX, BALL])
def test_samples_lie_inside_and_repeat(region):
    x = region.sample(500, generator=torch.Generator().manual_seed(1))
    assert x.dtype == torch.float64
    torch.testing.assert_close(region.project(x), x)
    again = region.sample(500, generator=torch.Generator().manual_seed(1))
    assert x.equal(again)
    assert isinstance(region, Region)


def fits(numbers):
    """Whether numbers are uniform in [0, 1], by Kolmogorov and Smirnov: one alarm in a million."""
    return scipy.stats.kstest(numbers.numpy(), "uniform").pvalue > 1e-6


def test_box_samples_are_uniform():
    x = (BOX.sample(20_000) - BOX.low) / (BOX.high - BOX.low)
    assert all(fits(column) for column in x.unbind(1))
    assert fits(x.sum(1) % 1)  # which two columns in step would not be


@pytest.mark.parametrize("d", [1, 2, 3, 7])
def test_ball_samples_are_uniform(d):
    ball = Ball(torch.arange(1.0, d + 1).double(), 2.5)
    x = (ball.sample(20_000) - ball.centre) / 2.5
    r = torch.linalg.vector_norm(x, dim=1)
    assert fits(r**d)  # the share of the volume that lies further inside
    for column in (x / r[:, None]).unbind(1):
        assert float(column.sign().mean()) == pytest.approx(0.0, abs=5 / 20_000**0.5)
        if d > 1:  # of a random direction the squared coordinates have a beta law
            law = scipy.stats.beta(0.5, (d - 1) / 2)
            assert fits(torch.from_numpy(law.cdf(column.numpy() ** 2)))


class Triangle:
    """The points with non-negative coordinates that sum to one."""

    def sample(self, n, *, generator=None):
        e = torch.empty(n, 3, dtype=torch.float64).exponential_(generator=generator)
        return e / e.sum(1, keepdim=True)

    def project(self, x):
        return project(x, "simplex")


def test_region_is_whatever_samples_and_projects():
    assert isinstance(Triangle(), Region)
    assert not isinstance(torch.zeros(2), Region)
    steepest = lipschitz_constant(lambda x: (x**2).sum(1), Triangle())
    assert steepest.value == pytest.approx(2.0, rel=1e-6)  # in a corner
    torch.testing.assert_close(steepest.x.sort().values, torch.tensor([0.0, 0.0, 1.0]).double())


@pytest.mark.parametrize("region", [BOX, BALL])
def test_projections_are_nearest(region):
    x = 10 * torch.randn(50, 2).double()
    p = region.project(x)
    torch.testing.assert_close(region.project(p), p)
    others = region.sample(2000)
    nearest = torch.cdist(x, others).amin(1)
    assert (torch.linalg.vector_norm(x - p, dim=1) <= nearest + 1e-12).all()
    # The angle between what sticks out and every other point is at least a right one.
    assert (((x - p)[:, None] * (others - p[:, None])).sum(2) <= 1e-9).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_far_points_and_small_balls(dtype):
    out = torch.tensor([[3.0, 4.0], [-0.3, 0.4]], dtype=dtype)
    for scale in (1e-30, 1.0, 1e30):
        ball = Ball(torch.zeros(2, dtype=dtype), scale)
        expected = torch.tensor([[0.6, 0.8], [-0.3, 0.4]], dtype=dtype)
        torch.testing.assert_close(ball.project(scale * out) / scale, expected)
    far = Ball(torch.ones(2, dtype=dtype), 2.0).project(1e30 * out[:1])
    torch.testing.assert_close(far, torch.tensor([[2.2, 2.6]], dtype=dtype))


ERRORS = [
    (Box, (torch.ones(2), torch.zeros(2)), "high must be > low, got 0.0 and 1.0 at 0"),
    (Box, (torch.zeros(2), torch.ones(3)), "high must be 2 wide"),
    (Box, (torch.zeros(0), torch.zeros(0)), "low must not be empty"),
    (Box, (torch.zeros(2), torch.tensor([1.0, math.inf])), "high must be finite"),
    (Box, (torch.zeros(2), torch.ones(2).double()), "high must be torch.float32 on cpu like low"),
    (Box, (torch.full((2,), -3e38), torch.full((2,), 3e38)), "high - low must be finite, got inf"),
    (Box, (torch.zeros(2).long(), torch.ones(2)), "low must be floating point"),
    (Ball, (torch.zeros(2), 0.0), "radius must be > 0, got 0"),
    (Ball, (torch.zeros(2), math.inf), "radius must be <= .*, got inf"),
    (Ball, (torch.tensor([math.nan]), 1.0), "centre must be finite, got nan"),
    (Ball, (torch.zeros(2, 2), 1.0), "centre must have 1 axes"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("region", "arguments", "message"), ERRORS)
def test_errors(region, arguments, message):
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(region)(*arguments)
