"""Predictive laws against densities that are summed, integrated and inverted by SciPy."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import brentq
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from vademecum.bayes import (
    DeepEnsemble,
    ImportanceEnsemble,
    importance_ensemble,
    laplace,
    posterior_predictive,
    sample,
    swag,
)
from vademecum.gradients import functional
from vademecum.models import SlowPathWarning, mlp

X = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)).double()
Y = torch.randn(6, 2, generator=torch.Generator().manual_seed(1)).double()
CLASSES = torch.tensor([0, 1, 1, 0, 1, 0])
NOISE = 0.4


def net() -> nn.Module:
    torch.manual_seed(2)
    return mlp([3, 4, 2], nn.Tanh).double()


def ensemble(S: int = 5) -> tuple[ImportanceEnsemble, Tensor]:
    """Draws with unequal shares, and their outputs one by one."""
    f, g = functional(net()), torch.Generator().manual_seed(3)
    theta = f.theta + torch.randn(S, f.size, generator=g).double()
    shares = torch.rand(S, generator=g).double()
    shares /= shares.sum()
    z = torch.stack([f(t, X) for t in theta])
    return ImportanceEnsemble(theta, shares.log(), 1.0, 0.0), z


@pytest.mark.parametrize("S", [5, 200])
def test_mixtures_of_normal_laws(S):
    draws, z = ensemble(S)
    found = posterior_predictive(draws, net(), X, Y, likelihood="gaussian", noise=NOISE, level=0.8)
    w = draws.log_weights.exp().numpy()
    assert found.log_score is not None
    assert found.crps is not None
    for i in range(2):
        for c in range(2):
            f = z[:, i, c].numpy()
            mean = w @ f
            assert float(found.mean[i, c]) == pytest.approx(mean, rel=1e-10)
            spread = w @ (f - mean) ** 2
            assert float(found.spread[i, c]) == pytest.approx(spread**0.5, rel=1e-10)
            assert float(found.std[i, c]) == pytest.approx((spread + NOISE**2) ** 0.5, rel=1e-10)

            def cdf(t, f=f):
                return float(w @ stats.norm.cdf(t, f, NOISE))

            for end, q in zip(found.interval[:, i, c].tolist(), (0.1, 0.9), strict=True):
                wanted = brentq(lambda t, q=q, cdf=cdf: cdf(t) - q, -30, 30, xtol=1e-13)
                assert end == pytest.approx(wanted, abs=1e-8)
            y = float(Y[i, c])
            left = quad(lambda t, cdf=cdf: cdf(t) ** 2, -25, y, epsabs=1e-10, limit=400)[0]
            right = quad(lambda t, cdf=cdf: (1 - cdf(t)) ** 2, y, 25, epsabs=1e-10, limit=400)[0]
            assert float(found.crps[i, c]) == pytest.approx(left + right, abs=1e-7)
        densities = stats.norm.pdf(Y[i].numpy(), z[:, i].numpy(), NOISE).prod(1)
        assert float(found.log_score[i]) == pytest.approx(-np.log(w @ densities), rel=1e-9)
    assert found.brier is None
    assert found.effective == pytest.approx(1 / (w @ w), rel=1e-10)


@pytest.mark.parametrize("likelihood", ["categorical", "bernoulli"])
def test_averages_of_probabilities(likelihood):
    draws, z = ensemble(50)
    y = CLASSES if likelihood == "categorical" else (Y > 0).double()
    found = posterior_predictive(draws, net(), X, y, likelihood=likelihood, level=0.8)
    w = draws.log_weights.exp()
    p = (
        z.exp() / z.exp().sum(2, keepdim=True)
        if likelihood == "categorical"
        else 1 / (1 + (-z).exp())
    )
    mean = (w[:, None, None] * p).sum(0)
    torch.testing.assert_close(found.mean, mean)
    spread = (w[:, None, None] * (p - mean).square()).sum(0).sqrt()
    torch.testing.assert_close(found.std, spread)
    if likelihood == "categorical":
        own = torch.stack([p[:, i, c] for i, c in enumerate(y.tolist())], 1)
        target = torch.eye(2).double()[y]
    else:
        own, target = torch.where(y > 0, p, 1 - p).prod(2), y
    assert found.log_score is not None
    torch.testing.assert_close(found.log_score, -(w @ own).log())
    torch.testing.assert_close(found.brier, (mean - target).square().sum(1))
    assert found.crps is None
    low, high = found.interval
    below = ((p <= low + 1e-12) * w[:, None, None]).sum(0)
    under = ((p < low - 1e-12) * w[:, None, None]).sum(0)
    assert ((below >= 0.1 - 1e-12) & (under < 0.1 + 1e-12)).all()
    assert (((p <= high + 1e-12) * w[:, None, None]).sum(0) >= 0.9 - 1e-12).all()
    assert (((p < high - 1e-12) * w[:, None, None]).sum(0) < 0.9 + 1e-12).all()


def close(one: Any, other: Any) -> None:
    for a, b in zip(one, other, strict=True):
        if a is not None:
            torch.testing.assert_close(a, b)


def test_memory_loaders_and_shapes_of_draws():
    draws, _ = ensemble(7)
    theta, knobs = draws.draws[:6], {"likelihood": "gaussian", "noise": NOISE}
    found = posterior_predictive(theta, net(), X, Y, **knobs)
    close(found, posterior_predictive(theta.view(2, 3, -1), net(), X, Y, **knobs))
    close(found, posterior_predictive(theta, net(), X, Y, **knobs, memory=1))
    loader = DataLoader(TensorDataset(X, Y), batch_size=4)
    close(found, posterior_predictive(theta, net(), loader, **knobs))
    bare = posterior_predictive(theta, net(), X, **knobs)
    assert bare.log_score is bare.crps is bare.brier is None


def test_chains_and_deep_ensembles():
    model = net()
    chains = sample(lambda t: t.square().sum(1) / 2, torch.zeros(3, 26).double(), kernel="hmc",
                    draws=8, warmup=5, generator=torch.Generator().manual_seed(0))  # fmt: skip
    knobs: dict[str, Any] = {"likelihood": "gaussian", "noise": NOISE}
    one = posterior_predictive(chains, model, X, Y, **knobs)
    close(one, posterior_predictive(chains.draws.flatten(0, 1), model, X, Y, **knobs))
    nets = [net(), mlp([3, 4, 2], nn.Tanh).double()]
    found = posterior_predictive(DeepEnsemble(nets, torch.zeros(2)), None, X, Y, **knobs)
    theta = torch.stack([functional(m).theta for m in nets])
    close(found, posterior_predictive(theta, net(), X, Y, **knobs))
    assert found.effective == 2


class Choosy(nn.Module):
    """A network whose way depends on its numbers, which vmap cannot map."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = net()

    def forward(self, x: Tensor) -> Tensor:
        z = self.inner(x)
        return z if float(z.detach().sum()) > 0 else 2 * z


def test_what_cannot_be_mapped_goes_one_by_one():
    draws, z = ensemble(4)
    with pytest.warns(SlowPathWarning, match="draws are asked one by one"):
        found = posterior_predictive(draws, Choosy(), X, likelihood="gaussian")
    z = torch.stack([one if float(one.sum()) > 0 else 2 * one for one in z])
    w = draws.log_weights.exp()
    torch.testing.assert_close(found.mean, (w[:, None, None] * z).sum(0))


def test_laplace_is_normal_and_draws_agree():
    model = net()
    la = laplace(model, X, Y, likelihood="gaussian", noise=NOISE, subset="all", structure="full")
    found = posterior_predictive(la, None, X, Y, likelihood="gaussian", level=0.8)
    law = la.outputs(X)
    cov = law.covariance() + NOISE**2 * torch.eye(2).double()
    normal = torch.distributions.MultivariateNormal(law.mean, cov)
    torch.testing.assert_close(found.log_score, -normal.log_prob(Y))
    std = cov.diagonal(dim1=1, dim2=2).sqrt()
    torch.testing.assert_close(found.std, std)
    torch.testing.assert_close(found.interval[1], law.mean + 1.2815515655446004 * std)
    y, m, s = float(Y[0, 0]), float(law.mean[0, 0]), float(std[0, 0])
    left = quad(lambda t: stats.norm.cdf(t, m, s) ** 2, -30, y, limit=400)[0]
    right = quad(lambda t: stats.norm.sf(t, m, s) ** 2, y, 30, limit=400)[0]
    assert found.crps is not None
    assert float(found.crps[0, 0]) == pytest.approx(left + right, abs=1e-7)
    wider = posterior_predictive(la, None, X, likelihood="gaussian", noise=2 * NOISE)
    torch.testing.assert_close(wider.std**2 - found.std**2, torch.full_like(std, 3 * NOISE**2))
    with pytest.raises(ValueError, match="likelihood must be that of samples, 'gaussian', got 'b"):
        posterior_predictive(la, None, X, likelihood="bernoulli")
    la = laplace(model, X, CLASSES, likelihood="categorical")
    knobs: dict[str, Any] = {"likelihood": "categorical", "draws": 4000}
    drawn = posterior_predictive(la, None, X, CLASSES, **knobs)
    p = la.outputs(X).sample(4000).softmax(2)
    assert ((drawn.mean - p.mean(0)).abs() <= 7 * p.std(0) / 4000**0.5 + 1e-12).all()


def test_randomness_is_given_back():
    law = swag(torch.randn(5, 26).double())
    model, state = net(), torch.get_rng_state()
    posterior_predictive(law, model, X, likelihood="gaussian")
    assert state.equal(torch.get_rng_state())
    ask = [posterior_predictive(law, net(), X, likelihood="gaussian",
                                generator=torch.Generator().manual_seed(1)).mean
           for _ in range(2)]  # fmt: skip
    assert ask[0].equal(ask[1])


def test_batch_statistics_are_renewed_for_swag():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    theta = functional(model).theta
    still = swag(torch.stack([theta, theta]))  # without variance: each draw is the network
    data = 5 + 3 * torch.randn(40, 3).double()
    found = posterior_predictive(still, model, X, likelihood="gaussian", draws=3, statistics=data)
    with torch.no_grad():
        h = model[0](data)
        z = (model[0](X) - h.mean(0)) / (h.var(0) + 1e-5).sqrt()
        wanted = model[2](z * model[1].weight + model[1].bias)
    torch.testing.assert_close(found.mean, wanted)
    for name, value in model.state_dict().items():
        assert value.equal(before[name])
    with pytest.raises(ValueError, match="statistics must be training inputs for draws of SWAG"):
        posterior_predictive(still, model, X, likelihood="gaussian")


@pytest.mark.parametrize(
    ("samples", "model", "knobs", "message"),
    [
        (None, net(), {}, "samples must be Chains, draws (n, P), an importance or a deep ensemble"),
        (torch.zeros(2, 26).double(), None, {}, "model must be the network of the samples, got"),
        (
            torch.zeros(2, 9).double(),
            net(),
            {},
            "samples must be of the model's 26 parameters, got",
        ),
        (torch.zeros(2, 26).double(), net(), {"level": 1.0}, "level must be < 1, got 1.0"),
        (torch.zeros(2, 26).double(), net(), {"noise": 0.0}, "noise must be > 0, got 0.0"),
        (torch.zeros(2, 26).double(), net(), {"draws": 0}, "draws must be >= 1, got 0"),
        (torch.zeros(2, 26).double(), net(), {"memory": 0}, "memory must be >= 1, got 0"),
        (torch.zeros(2, 26).double(), net(), {"likelihood": "t"}, "likelihood must be one of"),
        (torch.full((2, 26), np.nan).double(), net(), {}, "samples must be finite, got nan"),
        (torch.zeros(2, 26).double(), net(), {"y": X}, "y must have shape (6, 2), got (6, 3)"),
    ],
)
def test_refusals(samples, model, knobs, message):
    given = {"likelihood": "gaussian"} | knobs
    with pytest.raises(ValueError, match=re.escape(message)):
        posterior_predictive(samples, model, X, given.pop("y", None), **given)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.gpu
@pytest.mark.parametrize("likelihood", ["gaussian", "categorical"])
def test_on_the_gpu(likelihood):
    draws, _ = ensemble(9)
    y = Y if likelihood == "gaussian" else CLASSES
    one = posterior_predictive(draws, net(), X, y, likelihood=likelihood)
    other = posterior_predictive(draws, net().cuda(), X.cuda(), y.cuda(), likelihood=likelihood)
    for a, b in zip(one, other, strict=True):
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            torch.testing.assert_close(a, b.cpu())
    law = swag(draws.draws.cuda())
    found = posterior_predictive(law, net().cuda(), X.cuda(), likelihood=likelihood)
    assert found.mean.is_cuda


def test_importance_ensembles_predict():
    draws, z = ensemble(60)
    energy = lambda t: t.square().sum(1) / 8  # noqa: E731
    found = importance_ensemble(energy, draws.draws, law="uniform")
    w = torch.softmax(-draws.draws.square().sum(1) / 8, 0)
    answers = posterior_predictive(found, net(), X, likelihood="gaussian")
    torch.testing.assert_close(answers.mean, (w[:, None, None] * z).sum(0))
