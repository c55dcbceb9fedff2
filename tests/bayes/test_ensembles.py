"""Importance weights, deep ensembles and SWAG against sums by hand."""

import math
import re
from typing import Any

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import nn

from vademecum.bayes import deep_ensemble, importance_ensemble, swag
from vademecum.gradients import functional
from vademecum.models import SlowPathWarning, mlp

DRAWS = torch.tensor([[0.0], [1.0], [2.0], [3.0]]).double()


def energy(t):
    return t[:, 0] / 10


def test_importance_weights():
    wanted = torch.tensor([math.exp(-i / 10) / (i + 1) for i in range(4)], dtype=torch.float64)
    law = torch.arange(1, 5).double().log()
    for given in (law, lambda t: (t[:, 0] + 1).log(), law + 700):
        found = importance_ensemble(energy, DRAWS, law=given)
        torch.testing.assert_close(found.log_weights.exp(), wanted / wanted.sum())
        size = float(wanted.sum() ** 2 / wanted.square().sum())
        assert found.effective == pytest.approx(size, rel=1e-10)
    found = importance_ensemble(energy, DRAWS, law=law)
    assert found.log_evidence == pytest.approx(math.log(float(wanted.mean())), rel=1e-10)
    far = importance_ensemble(lambda t: energy(t) + 5000, DRAWS, law=law)  # no underflow
    torch.testing.assert_close(far.log_weights, found.log_weights)
    assert far.log_evidence == pytest.approx(found.log_evidence - 5000)


def test_infinite_energies_count_for_nothing_and_few_draws_warn():
    walls = lambda t: torch.where(t[:, 0] > 1.5, math.inf, 0.0)  # noqa: E731
    found = importance_ensemble(walls, DRAWS, law="uniform")
    assert found.log_weights.exp().tolist() == [0.5, 0.5, 0, 0]
    steep = lambda t: 50 * t[:, 0]  # noqa: E731
    with pytest.warns(ConvergenceWarning, match="4 draws are worth 1: their law is far from the"):
        importance_ensemble(steep, DRAWS, law="uniform")


@pytest.mark.parametrize(
    ("f", "law", "message"),
    [
        (energy, "prior", "law must be one of 'uniform', 'posterior', got 'prior'"),
        (energy, torch.zeros(3), "law must give one number for each of 4 draws, got (3,)"),
        (energy, lambda t: 0.0, "law must give one number for each of 4 draws, got float"),
        (energy, torch.tensor([0.0, 1, 2, -math.inf]), "law must be finite, got -inf at (3,)"),
        (lambda t: t, "uniform", "energy must give one number for each of 4 draws, got (4, 1)"),
        (lambda t: t[:, 0] * math.nan, "uniform", "energy must give numbers or infinity, got NaN"),
        (lambda t: t[:, 0] + math.inf, "uniform", "energy must be finite for a draw, got infinity"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_importance_refusals(f, law, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        importance_ensemble(f, DRAWS, law=law)


def test_swag_is_the_moments_of_its_trajectory():
    T = torch.randn(9, 4, generator=torch.Generator().manual_seed(0)).double()
    found = swag(T, rank=3)
    torch.testing.assert_close(found.mean, T.mean(0))
    torch.testing.assert_close(found.variance, T.var(0, correction=0))
    D = torch.stack([T[t] - T[: t + 1].mean(0) for t in range(6, 9)])
    torch.testing.assert_close(found.deviations, D)
    wanted = (torch.diag(T.var(0, correction=0)) + D.T @ D / 2) / 2
    torch.testing.assert_close(found.covariance(), wanted)
    drawn = found.sample(40_000, generator=torch.Generator().manual_seed(0))
    off = (drawn - T.mean(0)) @ torch.linalg.inv(torch.linalg.cholesky(wanted)).T
    torch.testing.assert_close(off.T @ off / 40_000, torch.eye(4).double(), atol=0.04, rtol=0)
    assert off.mean(0).abs().max() < 0.025
    assert found.steps == 9


def test_swag_goes_along_a_network_as_it_is_trained():
    model = nn.Linear(2, 1)

    def training():
        for i in range(4):
            nn.init.constant_(model.weight, float(i))
            nn.init.constant_(model.bias, 1.0)
            yield model

    found = swag(training())
    torch.testing.assert_close(found.mean, torch.tensor([1.5, 1.5, 1.0]))
    torch.testing.assert_close(found.variance, torch.tensor([1.25, 1.25, 0.0]))


@pytest.mark.parametrize(
    ("trajectory", "knobs", "message"),
    [
        (torch.zeros(1, 2), {}, "trajectory must have two weights or more, got 1"),
        ([torch.zeros(2), torch.zeros(3)], {}, "trajectory must be of 2 parameters, got 3"),
        (torch.full((2, 2), math.nan), {}, "trajectory must be finite, got nan at (0,)"),
        (torch.zeros(2, 2), {"rank": 0}, "rank must be >= 1, got 0"),
    ],
)
def test_swag_refusals(trajectory, knobs, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        swag(trajectory, **knobs)


def test_members_of_a_deep_ensemble_are_trained_as_if_alone():
    x = torch.linspace(-1, 1, 12)[:, None]
    y = (3 * x).sin()
    knobs: dict[str, Any] = {"members": 3, "epochs": 40, "batch_size": 12, "learning_rate": 0.05}
    start = []

    def make() -> nn.Module:
        made = mlp([1, 6, 1], nn.Tanh)
        start.append({k: v.clone() for k, v in made.state_dict().items()})
        return made

    found = deep_ensemble(make, x, y, **knobs, weight_decay=0.1)
    assert len({tuple(functional(m).theta.tolist()) for m in found.models}) == 3
    for model, state in zip(found.models, start, strict=True):  # full batches: orders do not matter
        alone = mlp([1, 6, 1], nn.Tanh)
        alone.load_state_dict(state)
        steps = torch.optim.AdamW(alone.parameters(), lr=0.05, weight_decay=0.1)
        for _ in range(40):
            steps.zero_grad()
            (alone(x) - y).square().mean().backward()
            steps.step()
        torch.testing.assert_close(model(x), alone(x), atol=1e-4, rtol=1e-4)
        assert not model.training
    losses = torch.stack([(m(x) - y).square().mean() for m in found.models]).detach()
    torch.testing.assert_close(found.losses, losses, rtol=0.2, atol=1e-3)  # one step earlier


def test_deep_ensembles_of_classes_and_seeds():
    x, y = torch.randn(20, 2), torch.arange(20) % 3
    knobs: dict[str, Any] = {"members": 2, "epochs": 3}

    def run(seed: int) -> torch.Tensor:
        g = torch.Generator().manual_seed(seed)
        found = deep_ensemble(lambda: mlp([2, 4, 3]), x, y, **knobs, generator=g)
        return torch.stack([functional(m).theta for m in found.models])

    assert run(0).equal(run(0))
    assert not run(0).equal(run(1))
    with pytest.warns(SlowPathWarning, match="BatchNorm1d"):
        deep_ensemble(lambda: nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 3)), x, y, **knobs)


@pytest.mark.parametrize(
    ("make", "knobs", "message"),
    [
        (lambda: 3, {}, "module must make an nn.Module, got int"),
        (nn.Identity, {}, "module must make networks with parameters, got none"),
        (lambda: nn.Flatten(0), {}, "module must make networks with outputs of shape (n, k), got"),
        (lambda: nn.Linear(2, 3), {"members": 0}, "members must be >= 1, got 0"),
        (lambda: nn.Linear(2, 3), {"learning_rate": 0}, "learning_rate must be > 0, got 0"),
        (lambda: nn.Linear(2, 3), {"weight_decay": -1}, "weight_decay must be >= 0, got -1"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_deep_ensemble_refusals(make, knobs, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        deep_ensemble(make, torch.randn(4, 2), torch.tensor([0, 1, 2, 0]), **knobs)
    with pytest.raises(ValueError, match="x must be a tensor, got dict"):
        deep_ensemble(make, {"x": torch.ones(4, 2)}, torch.tensor([0, 1, 2, 0]))  # pyright: ignore


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.gpu
def test_on_the_gpu():
    x = torch.randn(8, 2).cuda()
    found = deep_ensemble(lambda: nn.Linear(2, 1), x, x[:, :1], members=2, epochs=3)
    assert all(p.is_cuda for m in found.models for p in m.parameters())
    law = swag([functional(m).theta for m in found.models])
    assert law.sample(3, generator=torch.Generator()).is_cuda
    weights = importance_ensemble(lambda t: t.square().sum(1), law.sample(9), law="uniform")
    assert weights.log_weights.is_cuda
