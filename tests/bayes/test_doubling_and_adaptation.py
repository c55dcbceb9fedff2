"""Trajectories that double, and what warm-up learns: laws that stay, moments, step sizes."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.bayes.test_sampling import within
from vademecum.bayes.sampling._adaptation import DualAveraging, Spread, windows
from vademecum.bayes.sampling._doubling import nuts_move
from vademecum.bayes.sampling._kernels import kernel_of
from vademecum.bayes.sampling._teams import Member
from vademecum.bayes.steps._energy_calls import point
from vademecum.bayes.steps._masses import Mass

COV = torch.tensor([[1.0, 1.2], [1.2, 4.0]]).double()
PRECISION = torch.linalg.inv(COV)


def gaussian(theta: Tensor) -> Tensor:
    return ((theta @ PRECISION) * theta).sum(1) / 2


def quartic(theta: Tensor) -> Tensor:
    return (theta**4).sum(1) / 4


def test_dual_averaging_shrinks_after_refusals():
    small, large = DualAveraging(0.5, 0.8), DualAveraging(0.5, 0.8)
    for _ in range(30):
        small.update(0.1)
        large.update(1.0)
    assert small.eta < small.averaged < 0.5 < large.averaged
    exact = DualAveraging(0.5, 0.8)
    exact.update(0.3)  # log eta = log 5 - 0.5 / 11 / 0.05
    assert exact.eta == pytest.approx(5 * math.exp(-0.5 / 11 / 0.05))


@pytest.mark.parametrize("dense", [False, True])
def test_spread_is_the_covariance_of_all_points(dense):
    points = torch.randn(30, 5, 3).double() * torch.tensor([1.0, 5.0, 0.2]).double() + 7
    spread = Spread(points[0], dense, Member(len(points[0])))
    for rows in points:
        spread.update(rows)
    cov = torch.cov(points.flatten(0, 1).T)
    wanted = 150 / 155 * cov + 1e-3 * 5 / 155 * torch.eye(3).double()
    found = spread.mass().inverse
    torch.testing.assert_close(found, wanted if dense else wanted.diagonal())


def test_windows_cover_what_they_should():
    for warmup in (20, 100, 149, 150, 400, 1000):
        first, ends = windows(warmup)
        assert first < ends[0] < warmup
        assert ends == sorted(ends)
        assert warmup - ends[-1] in (50, int(0.1 * warmup))


@pytest.mark.parametrize("mass", [1.0, 3.0, "dense"])
@pytest.mark.parametrize("eta", [0.4, 1.1])
def test_nuts_leaves_the_target_as_it_is(eta, mass):
    n = 6000
    at = torch.randn(n, 2).double() @ torch.linalg.cholesky(COV).T
    own = Mass(COV) if mass == "dense" else Mass(1 / float(mass))
    step, leaves = nuts_move(gaussian, point(gaussian, at), eta, own, None, 10)
    assert within(step.theta, torch.zeros(2).double())
    products = torch.stack(
        [step.theta[:, i] * step.theta[:, j] for i, j in ((0, 0), (0, 1), (1, 1))]
    )
    assert within(products.T, torch.stack([COV[0, 0], COV[0, 1], COV[1, 1]]))
    torch.testing.assert_close(step.energy, gaussian(step.theta))
    assert step.gradient is not None
    torch.testing.assert_close(step.gradient, step.theta @ PRECISION)
    assert bool(((leaves >= 1) & (leaves < 2**10)).all())


@pytest.mark.parametrize("eta", [0.3, 0.9])
def test_nuts_leaves_a_quartic_as_it_is(eta):
    """Moments from quadrature; trajectories of many lengths, most of them short."""
    n = 20_000
    grid = torch.linspace(-5, 5, 20_001).double()
    density = (-(grid**4) / 4).exp()
    cdf = torch.cumulative_trapezoid(density, grid) / torch.trapezoid(density, grid)
    at = grid[torch.searchsorted(cdf, torch.rand(n).double()).clamp(max=20_000)][:, None]
    moments = [float(torch.trapezoid(density * grid**k, grid)) for k in (0, 2, 4, 6)]
    step, _ = nuts_move(quartic, point(quartic, at), eta, Mass(1.0), None, 10)
    powers = torch.cat([step.theta**k for k in (2, 4, 6)], 1)
    assert within(powers, torch.tensor(moments[1:]).double() / moments[0])


def test_nuts_weighs_the_points_of_a_half_by_their_energies():
    """Errors of the energy are large at this step, and trajectories long in the other direction."""
    stiffness, n = torch.tensor([1.0, 0.05]).double(), 20_000

    def energy(t):
        return (stiffness * t**2).sum(1) / 2

    at = torch.randn(n, 2).double() / stiffness.sqrt()
    step, leaves = nuts_move(energy, point(energy, at), 1.5, Mass(1.0), None, 10)
    assert float(leaves.double().mean()) > 3
    for power, moment in ((2, 1.0), (4, 3.0)):
        assert within(step.theta**power, moment / stiffness ** (power / 2))


def test_nuts_trajectories_span_half_a_period():
    at = torch.randn(500, 20).double()
    ball = lambda t: t.square().sum(1) / 2  # noqa: E731
    _, leaves = nuts_move(ball, point(ball, at), 0.05, Mass(1.0), None, 10)
    span = 0.05 * leaves.double()  # some 3.1 to 2 times that, since it doubles
    assert 1.5 < float(span.mean()) < 7
    _, few = nuts_move(ball, point(ball, at), 0.05, Mass(1.0), None, 3)
    assert bool((few == 7).all())


def test_chees_learns_a_quarter_of_a_period_or_more():
    ball = lambda t: t.square().sum(1) / 2  # noqa: E731
    chains: Any = kernel_of("chees", ball, torch.randn(64, 20).double(), max_leapfrogs=1000)
    for _ in range(400):
        chains.adapt(chains.advance(0.2, Mass(1.0), None), Mass(1.0), Member(len(chains.theta)))
    chains.settle()
    assert 1.2 < math.exp(chains._log_T) < 6.3
