"""Certificates of stochastic methods against exact moments and closed forms."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from vademecum.optimization import certify_descent

DOUBLE: dict[str, Any] = {"dtype": torch.float64}
START = torch.tensor([1.0, -2.0, 0.5], **DOUBLE)


def scalars(x: Tensor) -> Tensor:
    a, c = torch.tensor([3.0, 1.0]).to(x), torch.tensor([1.0, -3.0]).to(x)
    return a / 2 * (x - c).square()


def test_sgd_has_exact_means_and_the_bound_of_the_theorem():
    """f_i = a_i / 2 (x - c_i)^2: mu = 2, L = 3, the noise 9, the minimiser 0."""
    eta, a, c = 0.2, torch.tensor([3.0, 1.0], **DOUBLE), torch.tensor([1.0, -3.0], **DOUBLE)
    result = certify_descent(
        scalars, torch.tensor([2.0], **DOUBLE), method="sgd", L=3.0, mu=2.0, eta=eta, steps=25,
        runs=4000, generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    first, second, means = 2.0, 4.0, [4.0]
    alpha, beta = 1 - eta * a, eta * a * c
    for _ in range(25):
        second = float((alpha**2).mean() * second + 2 * (alpha * beta).mean() * first
                       + (beta**2).mean())  # fmt: skip
        first = float(alpha.mean() * first + beta.mean())
        means.append(second)
    exact = torch.tensor(means, **DOUBLE)
    assert ((result.low <= exact + 1e-12) & (exact <= result.high + 1e-12)).all()
    A, B = 1 - 2 * eta * 2 * (1 - eta * 3), eta * 9 / (2 * (1 - eta * 3))
    torch.testing.assert_close(result.bound, 4 * A ** torch.arange(26, **DOUBLE) + B)
    assert result.held
    assert result.constants["noise"] == pytest.approx(9.0)
    assert result.measures == "distance"


def test_intervals_widen_with_confidence_and_narrow_with_runs():
    def width(**options):
        dice = torch.Generator().manual_seed(0)
        start = torch.tensor([2.0], **DOUBLE)
        result = certify_descent(
            scalars, start, method="sgd", L=3.0, mu=2.0, steps=5, generator=dice, **options
        )
        return float((result.high - result.low)[-1]) / 2

    narrow, wide = width(confidence=0.9), width(confidence=0.9999)
    quantile = torch.special.ndtri(torch.tensor([0.1 / 12, 0.0001 / 12], **DOUBLE))
    assert wide / narrow == pytest.approx(float(quantile[1] / quantile[0]))
    assert width(runs=6400) == pytest.approx(width(runs=100) / 8, rel=0.3)


def test_interpolation_needs_an_exact_fit():
    X = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], **DOUBLE)
    target = X @ torch.tensor([1.0, 2.0], **DOUBLE)
    mu = float(torch.linalg.eigvalsh(X.T @ X / 3)[0])
    options: dict[str, Any] = {
        "method": "sgd",
        "assuming": "interpolation",
        "L": 1.0,
        "mu": mu,
        "steps": 20,
    }
    result = certify_descent(lambda w: (X @ w - target).square() / 2, START[:2], **options)
    assert result.held
    A = 1 - mu / 2
    torch.testing.assert_close(result.bound, A ** torch.arange(21, **DOUBLE) * result.bound[0])
    noisy = target + torch.tensor([1.0, 0.0, 0.0], **DOUBLE)
    with pytest.raises(ValueError, match="the minimiser must be one of every term"):
        certify_descent(lambda w: (X @ w - noisy).square() / 2, START[:2], **options)


def test_averaged_sgd_on_kinks():
    def terms(x: Tensor) -> Tensor:
        return torch.stack([x.abs(), x.abs(), (x - 1).abs()])[:, 0]

    result = certify_descent(
        terms, torch.tensor([2.0], **DOUBLE), method="averaged_sgd", G=1.0, steps=16,
        minimiser=torch.zeros(1, **DOUBLE), generator=torch.Generator().manual_seed(1),
    )  # fmt: skip
    assert result.held
    assert result.gap[0] == pytest.approx(5 / 3 - 1 / 3)  # the start alone
    assert result.bound[-1] == pytest.approx(2 / 4)
    assert result.constants["eta"] == pytest.approx(2 / 4)


def test_averaged_sgd_from_the_minimiser_has_nothing_to_gain():
    at = torch.zeros(1, **DOUBLE)
    result = certify_descent(
        lambda x: torch.stack([x.abs(), x.abs()])[:, 0], at, method="averaged_sgd", G=1.0, steps=4,
        minimiser=at, runs=2,
    )  # fmt: skip
    assert result.bound.tolist() == [0.0] * 4
    assert result.gap.tolist() == [0.0] * 4


def test_svrg_is_measured_at_its_snapshots_and_beats_sgd():
    dice = torch.Generator().manual_seed(0)
    X = torch.cat([torch.eye(3, **DOUBLE)] * 4)
    y = X.sum(1) + torch.randn(12, generator=dice, **DOUBLE)
    L, mu = float(X.square().sum(1).max()), float(torch.linalg.eigvalsh(X.T @ X / 12)[0])
    period = math.ceil(50 * L / mu)
    result = certify_descent(
        lambda w: (X @ w - y).square() / 2, START, method="svrg", L=L, mu=mu, runs=5,
        period=40, eta=0.05 / L, steps=150, generator=dice,
    )  # fmt: skip
    assert result.steps.tolist() == [0, 40, 80, 120]
    eta = 0.05 / L
    alpha = 1 / (mu * eta * 0.9 * 40) + 0.1 / 0.9
    assert float(result.bound[1] / result.bound[0]) == pytest.approx(alpha)
    assert float(result.gap[-1] / result.gap[0]) < 0.5
    assert result.held
    usual = certify_descent(
        lambda w: (X @ w - y).square() / 2, START, method="svrg", L=L, mu=mu, runs=2,
        steps=period, generator=dice,
    )  # fmt: skip
    assert usual.constants["period"] == period
    assert float(usual.bound[1] / usual.bound[0]) <= 0.5 + 1e-12
    assert usual.held


def test_svrg_without_variance_takes_means_of_descents():
    """Terms of one curvature: an epoch multiplies x by the mean of the powers of 1 - eta a."""
    a, eta, m = 2.0, 0.1, 7
    centres = torch.tensor([1.0, -3.0, 2.0], **DOUBLE)
    result = certify_descent(
        lambda x: a / 2 * (x - centres).square(), torch.tensor([5.0], **DOUBLE), method="svrg",
        L=a, mu=a, eta=eta, period=m, steps=3 * m, runs=2,
    )  # fmt: skip
    factor = (1 - (1 - eta * a) ** m) / (m * eta * a)
    wanted = a / 2 * (5 * factor ** torch.arange(4, **DOUBLE)).square()
    torch.testing.assert_close(result.gap, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("method", "more"), [("sgd", {}), ("svrg", {"period": 50})])
def test_runs_that_diverge_violate_the_bound(method, more):
    result = certify_descent(
        lambda x: 50 * (x - torch.tensor([1.0, -1.0]).to(x)).square(), START[:1], method=method,
        L=1.0, mu=1.0, steps=300, runs=3, minimiser=torch.zeros(1, **DOUBLE), **more,
    )  # fmt: skip
    assert result.held is False
    assert result.gap[-1] == math.inf
    assert result.tightness == math.inf
