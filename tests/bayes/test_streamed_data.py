"""A `DataLoader` where data stand: energies, their estimates, and Laplace's approximation."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tests.bayes.test_sampling import within
from vademecum.bayes import laplace, posterior, sample
from vademecum.models import mlp

N = 23
X = torch.randn(N, 3, generator=torch.Generator().manual_seed(0)).double()
Y = (X @ torch.tensor([1.0, -2.0, 0.5]).double() + 0.1 * X[:, 0] ** 2)[:, None]
LABELS = (X[:, 0] > 0).long() + (X[:, 1] > 0.5).long()


def loader(*tensors: Tensor, size: int = 5, **knobs: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*tensors), batch_size=size, **knobs)


def network(outputs: int) -> nn.Module:
    torch.manual_seed(4)
    return mlp([3, 4, outputs]).double()


def normed() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 1)).double()


@pytest.mark.parametrize("model", [network(1), normed()])
@pytest.mark.parametrize("shuffle", [False, True])
def test_energies_stream(model, shuffle):
    wanted = posterior(model, X, Y, likelihood="gaussian", noise=0.7, prior=1.3, temperature=0.5)
    found = posterior(model, loader(X, Y, shuffle=shuffle), likelihood="gaussian", noise=0.7,
                      prior=1.3, temperature=0.5)  # fmt: skip
    theta = torch.randn(4, wanted.size).double()
    assert found.n == N
    torch.testing.assert_close(found(theta), wanted(theta))
    torch.testing.assert_close(found.gradient(theta), wanted.gradient(theta))
    for one, other in zip(found.with_gradient(theta), wanted.with_gradient(theta), strict=True):
        torch.testing.assert_close(one, other)
    assert repr(found) == f"PosteriorEnergy(Sequential, n=23, P={wanted.size})"


@pytest.mark.parametrize("control", [False, True])
def test_estimates_are_right_on_average(control):
    """Batches of 5, 5, 5, 5, 3: an uneven last one counts by its own size."""
    model = network(1)
    wanted = posterior(model, X, Y, likelihood="gaussian", prior=2.0)
    theta = torch.randn(2, wanted.size).double()
    at = theta[0] + 0.1 if control else None
    found = posterior(model, loader(X, Y, shuffle=True), likelihood="gaussian", prior=2.0,
                      control=at)  # fmt: skip
    drawn = [found.estimate(theta) for _ in range(1500)]
    energy, slope = wanted.with_gradient(theta)
    assert within(torch.stack([e.energy for e in drawn]), energy)
    assert within(torch.stack([e.gradient for e in drawn]).flatten(1), slope.flatten())


def test_an_estimate_is_the_next_batch_scaled():
    model = network(1)
    found = posterior(model, loader(X, Y), likelihood="gaussian", prior=2.0)
    theta = torch.randn(2, found.size).double()
    prior = theta.square().sum(1) / 8
    for start in (0, 5, 10, 15, 20, 0):
        rows = slice(start, start + 5)
        part = posterior(model, X[rows], Y[rows], likelihood="gaussian", prior=2.0)
        wanted = (part(theta) - prior) * N / len(X[rows]) + prior
        torch.testing.assert_close(found.estimate(theta).energy, wanted)


def test_the_order_of_batches_follows_from_the_generator():
    model, theta, seen = network(1), torch.zeros(1, 21).double(), []
    torch.manual_seed(0)
    state = torch.get_rng_state()
    for seed in (1, 1, 2):
        energy = posterior(model, loader(X, Y, shuffle=True), likelihood="gaussian")
        dice = torch.Generator().manual_seed(seed)
        seen.append([float(energy.estimate(theta, generator=dice).energy) for _ in range(11)])
    assert seen[0] == seen[1] != seen[2]
    assert seen[0][:5] != seen[0][5:10]  # each pass has an order of its own
    assert state.equal(torch.get_rng_state())


@pytest.mark.parametrize("kernel", ["sgld", "sghmc", "hmc"])
def test_samples_from_a_loader_have_the_posterior_mean(kernel):
    noise, scale = 0.8, 1.5
    cov = torch.linalg.inv(X.T @ X / noise**2 + torch.eye(3).double() / scale**2)
    mean = cov @ X.T @ Y[:, 0] / noise**2
    model = nn.Linear(3, 1, bias=False).double()
    energy = posterior(model, loader(X, Y, size=12, shuffle=True), likelihood="gaussian",
                       noise=noise, prior=scale)  # fmt: skip
    start = mean + torch.randn(60, 3).double() @ torch.linalg.cholesky(cov).T
    knobs: Any = {"sgld": {"eta": 1e-3}, "sghmc": {"eta": 0.02, "friction": 20.0}}.get(kernel, {})
    found = sample(energy, start, kernel=kernel, draws=25, warmup=60, thin=2, max_rhat=torch.inf,
                   leapfrogs=2, **knobs)  # fmt: skip
    # chains see the same batches, so that only means over time are independent of them
    error = 5.5 * (cov.diagonal() / 60).sqrt() + 0.1
    assert bool(((found.draws.mean((0, 1)) - mean).abs() < error).all())


CASES = [
    ("gaussian", Y, 1, {"noise": 0.7}), ("categorical", LABELS, 3, {}),
    ("bernoulli", (LABELS > 0).double(), 1, {}),
]  # fmt: skip


@pytest.mark.parametrize(("likelihood", "y", "outputs", "knobs"), CASES)
@pytest.mark.parametrize("structure", ["full", "kron", "diagonal"])
@pytest.mark.parametrize("subset", ["last", "all"])
def test_laplace_streams(likelihood, y, outputs, knobs, structure, subset):
    model = network(outputs)
    options: Any = {"likelihood": likelihood, "subset": subset, "structure": structure,
                    "prior": "evidence", **knobs}  # fmt: skip
    wanted = laplace(model, X, y, **options)
    found = laplace(model, loader(X, y, shuffle=True), **options)
    torch.testing.assert_close(found.curvature.values, wanted.curvature.values)
    assert found.prior == pytest.approx(wanted.prior)
    assert found.log_evidence == pytest.approx(wanted.log_evidence)
    one, other = found.outputs(X[:4]), wanted.outputs(X[:4])
    torch.testing.assert_close(one.covariance(), other.covariance())


@pytest.mark.usefixtures("unchecked")
def test_errors():
    model, plain = network(1), loader(X, Y)
    table = [
        (lambda: posterior(model, X, likelihood="gaussian"), "y must be given where x is no DataL"),
        (lambda: posterior(model, plain, Y, likelihood="gaussian"),
         "y must be None where x is a DataLoader, which has its own"),
        (lambda: posterior(model, plain, likelihood="gaussian", batch=3),
         "batch must be None where x is a DataLoader, which has its own"),
        (lambda: posterior(model, loader(X, Y, drop_last=True), likelihood="gaussian"),
         "x must bring all its examples, and drop_last of the loader is set"),
        (lambda: posterior(model, loader(X[:0], Y[:0]), likelihood="gaussian"),
         "x must hold batches, got an empty DataLoader"),
        (lambda: posterior(model, loader(X, LABELS - 1), likelihood="categorical"),
         "y must be classes >= 0, got -1"),
        (lambda: posterior(model, plain, likelihood="gaussian").on("cpu"),
         "x must be at hand where chains are on several devices, got a DataLoader"),
        (lambda: laplace(model, plain, Y, likelihood="gaussian"),
         "y must be None where x is a DataLoader, which brings the targets"),
        (lambda: laplace(model, loader(X[:0], Y[:0]), likelihood="gaussian"),
         "x must hold batches, got an empty DataLoader"),
        (lambda: laplace(model, X, likelihood="gaussian"), "y must be a tensor, got NoneType"),
    ]  # fmt: skip
    for act, message in table:
        with pytest.raises(ValueError, match=message):
            act()
