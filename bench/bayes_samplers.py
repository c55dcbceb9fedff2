"""Rows of the room `bayes`: chains against NumPyro, BlackJAX, Pyro and posteriors.

A logistic regression of 1,000 x 20 with a standard normal prior. Each call draws from the
beginning, with warm-up and compilation; ours makes so many draws that its smallest effective sample
size is at least the peer's, which is checked, so that a ratio of times bounds that of effective
draws a second.
"""

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bench.harness import Row, Skipped, in_turn
from vademecum.bayes import ess, hmc_step, posterior, sample, sghmc_step, sgld_step
from vademecum.models import mlp

__all__ = ["rows"]

N, D, CHAINS = 1_000, 20, 64
STEPS = 300


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    if device.type == "cpu":
        yield from in_turn(_many(), _one(), _pyro(), _steps())
    else:
        yield from in_turn(_network(device))


def _library(name: str) -> Any:
    return importlib.import_module(name)


def _data(device: str = "cpu") -> tuple[Tensor, Tensor]:
    dice = torch.Generator().manual_seed(0)
    x = torch.randn(N, D, generator=dice)
    y = torch.rand(N, generator=dice) < (x @ torch.randn(D, generator=dice)).sigmoid()
    return x.to(device), y.float().to(device)


def _ours(draws: int, *, warmup: int = 120, chains: int = CHAINS) -> Tensor:
    x, y = _data()
    energy = posterior(nn.Linear(D, 1, bias=False), x, y, likelihood="bernoulli")
    start = 0.1 * torch.randn(chains, D)
    found = sample(energy, start, kernel="hmc", leapfrogs=3, target=0.65, metric="dense",
                   draws=draws, warmup=warmup)  # fmt: skip
    return found.draws


def _numpyro(draws: int, warmup: int, chains: int) -> Tensor:
    jax, numpyro = _library("jax"), _library("numpyro")
    infer = _library("numpyro.infer")

    x, y = (t.numpy() for t in _data())

    def model() -> None:
        w = numpyro.sample("w", numpyro.distributions.Normal(0, 1).expand([D]).to_event(1))
        numpyro.sample("y", numpyro.distributions.Bernoulli(logits=x @ w), obs=y)

    jax.clear_caches()
    how = "vectorized" if chains > 1 else "sequential"
    mcmc = infer.MCMC(infer.NUTS(model), num_warmup=warmup, num_samples=draws, num_chains=chains,
                chain_method=how, progress_bar=False)  # fmt: skip
    mcmc.run(jax.random.PRNGKey(0))
    found = mcmc.get_samples(group_by_chain=True)["w"]
    return torch.from_numpy(np.array(found))


def _blackjax(draws: int, warmup: int, chains: int) -> Tensor:
    blackjax, jax, jnp = (_library(name) for name in ("blackjax", "jax", "jax.numpy"))

    x, y = (jnp.asarray(t.numpy()) for t in _data())

    def log_density(w: Any) -> Any:
        z = x @ w
        return (y * z - jnp.logaddexp(0, z)).sum() - (w**2).sum() / 2

    jax.clear_caches()
    key = jax.random.PRNGKey(0)
    adapt = blackjax.window_adaptation(blackjax.nuts, log_density)
    (state, knobs), _ = adapt.run(key, jnp.zeros(D), num_steps=warmup)
    kernel = blackjax.nuts(log_density, **knobs)
    states = jax.vmap(kernel.init)(jnp.broadcast_to(state.position, (chains, D)))

    def step(states: Any, key: Any) -> tuple[Any, Any]:
        states, _ = jax.vmap(kernel.step)(jax.random.split(key, chains), states)
        return states, states.position

    _, found = jax.lax.scan(step, states, jax.random.split(key, draws))
    return torch.from_numpy(np.array(found)).transpose(0, 1)


def _pyro_nuts(draws: int, warmup: int) -> Tensor:
    pyro, infer = _library("pyro"), _library("pyro.infer")

    x, y = _data()

    def model() -> None:
        w = pyro.sample("w", pyro.distributions.Normal(torch.zeros(D), 1.0).to_event(1))
        pyro.sample("y", pyro.distributions.Bernoulli(logits=x @ w).to_event(1), obs=y)

    pyro.clear_param_store()
    mcmc = infer.MCMC(
        infer.NUTS(model), num_samples=draws, warmup_steps=warmup, disable_progbar=True
    )
    mcmc.run()
    return mcmc.get_samples(group_by_chain=True)["w"]


def _enough(mine: Tensor, other: Tensor) -> None:
    """Equal means, and at least as many effective draws of ours."""
    sizes = [float(ess(draws.double()).min()) for draws in (mine, other)]
    assert sizes[0] >= sizes[1], f"smallest effective sample sizes: {sizes}"
    error = other.flatten(0, 1).std(0) * (1 / sizes[0] + 1 / sizes[1]) ** 0.5
    gap = (mine.flatten(0, 1).mean(0) - other.flatten(0, 1).mean(0)).abs()
    assert bool((gap < 6 * error).all()), f"means differ by {float((gap / error).max()):.1f} errors"


def _many() -> Iterator[Row]:
    for name in ("blackjax", "numpyro"):
        _library(name)

    name = f"logistic {N:,} x {D}, {CHAINS} chains, at least the effective draws of 500 by NUTS"
    peers = {"numpyro": partial(_numpyro, 500, 500, CHAINS),
             "blackjax": partial(_blackjax, 500, 500, CHAINS)}  # fmt: skip
    yield Row(name, partial(_ours, 500), peers, _enough, rounds=3)


def _one() -> Iterator[Row]:
    _library("numpyro")

    name = f"logistic {N:,} x {D}, effective draws of one chain of 1,000"
    yield Row(name, partial(_ours, 40, warmup=100), {"numpyro": partial(_numpyro, 1000, 1000, 1)},
              _enough, rounds=3)  # fmt: skip


def _pyro() -> Iterator[Row]:
    _library("pyro")

    name = f"logistic {N:,} x {D}, effective draws of Pyro's chain of 300"
    peers = {"pyro": partial(_pyro_nuts, 300, 300)}
    yield Row(name, partial(_ours, 30, warmup=100), peers, _enough, rounds=3)


def _steps() -> Iterator[Row]:
    posteriors = _library("posteriors")

    x, y = _data()
    for kind in ("sgld", "sghmc"):
        for name, model in (
            ("logistic", nn.Linear(D, 1)),
            ("MLP 20-50-1", mlp([D, 50, 1], nn.Tanh)),
        ):
            energy = posterior(model, x, y, likelihood="bernoulli", batch=100, shared=True)
            peer = partial(_posteriors, posteriors, kind, model, x, y)
            yield Row(f"{STEPS} steps of {kind}, {name}, one chain, batches of 100",
                      partial(_stepped, kind, energy), {"posteriors": peer}, _finite)  # fmt: skip


def _stepped(kind: str, energy: Any) -> Tensor:
    step, eta = (sgld_step, 1e-4) if kind == "sgld" else (sghmc_step, 1e-3)
    at: Any = energy.theta[None]
    for _ in range(STEPS):
        at = step(energy, at, eta=eta)
    return at.theta


def _posteriors(posteriors: Any, kind: str, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    def log_posterior(params: Any, batch: Any) -> tuple[Tensor, Tensor]:
        inputs, targets = batch
        z = torch.func.functional_call(model, params, (inputs,))[:, 0]
        loss = nn.functional.binary_cross_entropy_with_logits(z, targets, reduction="sum")
        prior = sum(p.square().sum() for p in params.values()) / 2
        return -(N / len(inputs)) * loss - prior, z

    made = getattr(posteriors.sgmcmc, kind).build(
        log_posterior, lr=1e-4 if kind == "sgld" else 1e-3
    )
    state = made.init({k: p.detach().clone() for k, p in model.named_parameters()})
    for _ in range(STEPS):
        rows = torch.randint(N, (100,))
        state, _ = made.update(state, (x[rows], y[rows]))
    return torch.cat([p.flatten() for p in state.params.values()])


def _finite(mine: Tensor, other: Tensor) -> None:
    assert mine.numel() == other.numel()
    assert bool(mine.isfinite().all())
    assert bool(other.isfinite().all())


def _network(device: torch.device) -> Iterator[Row]:
    """Ten leapfrog steps of 1,000 chains, 784-12-10 (9,550 parameters), 10,000 images."""
    torch.manual_seed(0)
    x = torch.rand(10_000, 784, device=device)
    y = torch.randint(10, (10_000,), device=device)
    model = mlp([784, 12, 10], nn.ReLU).to(device)
    energy = posterior(model, x, y, likelihood="categorical")
    theta = energy.theta + 0.01 * torch.randn(1_000, energy.size, device=device)

    def plain(t: Tensor) -> Tensor:
        z = torch.func.functional_call(model, energy.unravel(t), (x,))
        return nn.functional.cross_entropy(z, y, reduction="sum") + t.square().sum() / 2

    class Mapped:
        """Plain `vmap(grad)`, in as many chains at once as memory allows."""

        _both = staticmethod(torch.func.vmap(torch.func.grad_and_value(plain), chunk_size=250))

        def __call__(self, t: Tensor) -> Tensor:
            return self._both(t)[1]

        def with_gradient(self, t: Tensor) -> tuple[Tensor, Tensor]:
            slope, value = self._both(t)
            return value, slope

    def run(energy: Callable[[Tensor], Tensor]) -> Tensor:
        dice = torch.Generator(device).manual_seed(0)
        return hmc_step(energy, theta, eta=1e-4, leapfrogs=10, generator=dice).energy

    yield Row("10 leapfrog steps, 1,000 chains, 784-12-10, 10,000 images", partial(run, energy),
              {"vmap(grad)": partial(run, Mapped())}, _near, limit="40 a second")  # fmt: skip


def _near(mine: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(mine, other, rtol=1e-3, atol=1.0)
