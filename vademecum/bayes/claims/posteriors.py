"""Posteriors over weights: prior times likelihood, as a law and as an energy."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.bayes import BayesianLinearRegression
from vademecum.bayes import posterior as energy_of
from vademecum.bayes.claims._laws import follows
from vademecum.claims import Evidence, claim, equals
from vademecum.linear import RidgeRegression
from vademecum.models import mlp


def slope() -> nn.Linear:
    """A network with one weight: the answer is the weight times the input."""
    return nn.Linear(1, 1, bias=False)


def by_hand(theta: Tensor, X: Tensor, widths: tuple[int, int, int]) -> Tensor:
    """What a network with one hidden layer of hyperbolic tangents gives, for one vector."""
    d, m, k = widths
    W, b, V, c = theta.split([m * d, m, k * m, k])
    return (X @ W.view(m, d).T + b).tanh() @ V.view(k, m).T + c


@claim(
    by="identity",
    sources=("C-252", "C-253", "C-254", "C-255"),
    budget=0.6,
    short=r"-\log p(\theta) = \tfrac1{2 \sigma^2} \|\theta\|^2 + c,\quad -\log p(S | \theta) ="
    r" \tfrac1{2 \delta^2} \|y - f\|^2 + c'",
)
def gaussian_prior_and_likelihood(factor: float = 0.5, power: float = 2.0, counts: float = 0.5):
    r"""A Gaussian prior is weight decay, Gaussian noise is the squared loss.

    With the prior $\theta_i \sim \mathcal N(0, \sigma^2)$, independently for $P$ parameters, $-\log
    p(\theta) = \frac1{2 \sigma^2} \|\theta\|^2 + \frac P2 \log(2 \pi \sigma^2)$. With observations
    $y_i = f^*(x_i) + \eta_i$ of noise $\eta_i \sim \mathcal N(0, \delta^2)$, independently for $s$
    numbers, $-\log p(S \mid \theta) = \frac1{2 \delta^2} \|y - f(\theta)\|^2 + \frac s2 \log(2 \pi
    \delta^2)$.

    *Proof.* The logarithm of a product of normal densities. Checked against SciPy's densities at
    100 random weights of networks with one hidden layer, with scales on both sides of one; the sum
    of the two quadratic forms is the energy of `posterior`, less its value at zero.

    Knobs:
        factor: The factor before the squared norms.
        power: The power of the standard deviations.
        counts: The factor before the numbers of parameters and observations in the constants.
    """
    for n, widths, sigma, delta in ((5, (3, 4, 2), 0.6, 1.7), (8, (2, 3, 1), 2.5, 0.3)):
        X, y = torch.randn(n, widths[0]), torch.randn(n, widths[2])
        model = mlp(list(widths), nn.Tanh)
        energy = energy_of(model, X, y, likelihood="gaussian", noise=delta, prior=sigma)
        theta = sigma * torch.randn(100, energy.size)
        theta[0] = 0
        f = torch.stack([by_hand(t, X, widths) for t in theta])
        prior = -stats.norm.logpdf(theta.numpy(), scale=sigma).sum(1)
        data = -stats.norm.logpdf(y.numpy(), f.numpy(), delta).sum((1, 2))
        decay = factor * theta.square().sum(1) / sigma**power
        square = factor * (y - f).square().sum((1, 2)) / delta**power
        at = {"P": energy.size, "s": y.numel(), "sigma": sigma, "delta": delta}
        constants = [
            counts * count * math.log(2 * math.pi * scale**2)
            for count, scale in ((energy.size, sigma), (y.numel(), delta))
        ]
        yield equals("minus log prior less the decay", prior - decay.numpy(), constants[0], **at)
        less = data - square.numpy()
        yield equals("minus log likelihood less the squared loss", less, constants[1], **at)
        found = energy(theta)
        both = (decay + square) - (decay + square)[0]
        yield equals("energy of posterior less that at zero", found - found[0], both, **at)


gaussian_prior_and_likelihood.foil("the half lost", factor=1.0)
gaussian_prior_and_likelihood.foil("standard deviations that are not squared", power=1.0)
gaussian_prior_and_likelihood.foil("constants twice as large", counts=1.0)


def normalised(energy: Tensor, grid: Tensor) -> tuple[Tensor, float]:
    """The density on an even grid, and the logarithm of its normaliser."""
    step = float(grid[1] - grid[0])
    log_Z = float((-energy).logsumexp(0)) + math.log(step)
    return (-energy - log_Z).exp(), log_Z


@claim(
    by="identity",
    sources=("C-256", "D-370", "D-372"),
    budget=0.8,
    full={"proposals": 400_000},
    short=r"p(\theta | S) = p(S | \theta)\, p(\theta) / p(S),\quad p(S) = \int p(S | \theta)\,"
    r" p(\theta)\, d\theta",
)
def posterior(prior: bool = True, evidence: bool = True, proposals: int = 60_000):
    r"""The posterior over parameters, and its evidence.

    $p(\theta \mid S) = p(S \mid \theta)\, p(\theta) / p(S)$ with the evidence $p(S) = \int p(S \mid
    \theta)\, p(\theta)\, d\theta$: a law that carries the uncertainty of the parameters, in place
    of an estimate. Draws need the numerator alone.

    *Checked* for $e^{-E} / Z$ with the energy of `posterior`, normalised by quadrature: a coin
    whose probability $\sigma(\theta)$ has a Beta prior has the Beta posterior with its counts
    added; a slope with Gaussian prior and noise has the conjugate normal law, and mean, variance
    and evidence of `BayesianLinearRegression`; for a network $\tanh(\theta x)$ draws from the
    prior, kept with probability proportional to the likelihood, so that $p(S)$ is never used, pass
    a test of Dvoretzky, Kiefer, Wolfowitz and Massart at the level $10^{-6}$. That the evidence of
    networks is intractable is quoted.

    Knobs:
        prior: Whether the prior counts.
        evidence: Whether the product is divided by the evidence.
        proposals: How many draws from the prior are proposed.
    """
    for a, b, heads, tails in ((2.0, 3.0, 4, 1), (1.5, 0.8, 2, 6)):
        yield _coin(prior, evidence, a, b, heads, tails)
    for n, sigma, delta in ((4, 0.7, 1.2), (7, 2.0, 0.4)):
        yield from _slope(prior, evidence, n, sigma, delta)
    X, y = torch.tensor([[0.5], [1.0], [2.0]]), torch.tensor([0.3, 0.9, 0.7])
    theta = torch.randn(proposals)  # sigma = 1, delta = 0.8
    misfit = (y - (theta[:, None] * X[:, 0]).tanh()).square().sum(1) / (2 * 0.8**2)
    kept = theta[torch.rand(proposals) < (-misfit).exp()]
    model, scale = nn.Sequential(slope(), nn.Tanh()), 1.0 if prior else 1e9
    energy = energy_of(model, X, y[:, None], likelihood="gaussian", noise=0.8, prior=scale)
    grid = torch.linspace(-9, 9, 20_001)
    yield follows("distance of draws that were kept", kept, energy, grid, draws=len(kept))


def _coin(prior: bool, evidence: bool, a: float, b: float, heads: int, tails: int) -> Evidence:
    X, y = torch.ones(heads + tails, 1), (torch.arange(heads + tails) < heads).double()

    def beta(t: Tensor) -> Tensor:
        return (a * F.softplus(-t) + b * F.softplus(t))[:, 0] if prior else 0 * t[:, 0]

    energy = energy_of(slope(), X, y[:, None], likelihood="bernoulli", prior=beta)
    grid = torch.linspace(-60, 60, 8001)
    found, log_Z = normalised(energy(grid[:, None]), grid)
    p = grid.sigmoid().numpy()
    wanted = stats.beta.pdf(p, a + heads, b + tails) * p * grid.neg().sigmoid().numpy()
    at = {"a": a, "b": b, "heads": heads, "tails": tails}
    return equals("density of a coin's posterior", _undone(found, log_Z, evidence), wanted, **at)


def _slope(prior: bool, evidence: bool, n: int, sigma: float, delta: float) -> Iterator[Evidence]:
    X, w = torch.randn(n, 1), sigma * torch.randn(1)
    y, at = X @ w + delta * torch.randn(n), {"n": n, "sigma": sigma, "delta": delta}
    scale = sigma if prior else 1e9
    energy = energy_of(slope(), X, y[:, None], likelihood="gaussian", noise=delta, prior=scale)
    precision = float(X.square().sum()) / delta**2 + sigma**-2
    mean, std = float(X[:, 0] @ y) / delta**2 / precision, precision**-0.5
    grid = torch.linspace(mean - 40 * std, mean + 40 * std, 4001)
    found, log_Z = normalised(energy(grid[:, None]), grid)
    wanted = stats.norm.pdf(grid.numpy(), mean, std)
    found = _undone(found, log_Z, evidence) * std
    yield equals("density of a slope's posterior", found, wanted * std, **at)
    exact = BayesianLinearRegression(noise=delta, prior=sigma, fit_intercept=False).fit(X, y)
    one, two = (float((found / std * grid**k).sum() * (grid[1] - grid[0])) for k in (1, 2))
    spread = float(exact.covariance_)
    yield equals("mean of the posterior", one, float(exact.coef_), **at)
    yield equals("second moment of the posterior", two, spread + float(exact.coef_) ** 2, **at)
    constants = n / 2 * math.log(2 * math.pi * delta**2) + math.log(2 * math.pi * sigma**2) / 2
    yield equals("log evidence", exact.log_evidence_, log_Z - constants, **at)


def _undone(density: Tensor, log_Z: float, evidence: bool) -> Tensor:
    return density if evidence else density * math.exp(log_Z)


posterior.foil("the normalised likelihood, without the prior", prior=False)
posterior.foil("prior times likelihood, not divided by the evidence", evidence=False)


@claim(
    by="identity",
    sources=("A-310", "C-257", "C-258"),
    budget=0.6,
    short=r"p(\theta | S) = \tfrac1Z e^{-E},\quad E = \tfrac1{2 \delta^2} \|y - f\|^2 +"
    r" \tfrac1{2 \sigma^2} \|\theta\|^2",
)
def posterior_energy(power: float = 2.0, factor: float = 1.0, temperature: float = 1.0):
    r"""The posterior as a Boltzmann law, whose mode is weight decay.

    $p(\theta \mid S) = \frac1Z e^{-E(\theta)}$ with $E(\theta) = \frac1{2 \delta^2} \|y -
    f(\theta)\|^2 + \frac1{2 \sigma^2} \|\theta\|^2$, minus the logarithms of likelihood and prior
    up to a constant. So the most probable weights minimise $\|y - f(\theta)\|^2 + \lambda
    \|\theta\|^2$ with $\lambda = \delta^2 / \sigma^2$.

    *Checked* for the energy of `posterior`: for linear models its minimum, found by one step of
    Newton's method with autograd's derivatives, is that of `RidgeRegression` at $\lambda$, and its
    own gradient vanishes there; $e^{-E}$, normalised on a grid over two weights, is the conjugate
    normal law; for one weight and a logistic model it is Bayes' rule with SciPy's densities.

    Knobs:
        power: The power of $\delta / \sigma$ in $\lambda$.
        factor: A factor before $\lambda$.
        temperature: What the energy is divided by.
    """
    for n, d, sigma, delta in ((9, 4, 0.5, 1.4), (6, 3, 2.0, 0.7)):
        X, y = torch.randn(n, d), torch.randn(n)
        model, at = nn.Linear(d, 1, bias=False), {"n": n, "d": d, "sigma": sigma, "delta": delta}
        knobs: Any = {"noise": delta, "prior": sigma, "temperature": temperature}
        energy = energy_of(model, X, y[:, None], likelihood="gaussian", **knobs)
        zero = torch.zeros(1, d, requires_grad=True)
        (g,) = torch.autograd.grad(energy(zero).sum(), zero, create_graph=True)
        H = torch.stack([torch.autograd.grad(one, zero, retain_graph=True)[0][0] for one in g[0]])
        least = -torch.linalg.solve(H, g[0].detach())
        lam = factor * (delta / sigma) ** power
        ridge = RidgeRegression(alphas=lam, fit_intercept=False).fit(X, y).coef_
        yield equals("most probable weights and ridge regression's", least, ridge, **at)
        gradient = energy.with_gradient(ridge[None]).gradient
        size = float(g.detach().abs().max())
        yield equals("gradient there over that at zero", gradient / size, 0.0, tol=1e-11, **at)
    yield from _on_a_plane(temperature)
    X, y = torch.tensor([[0.5], [-1.0], [2.0], [1.5]]), torch.tensor([1.0, 0.0, 1.0, 0.0])
    wide: Any = {"prior": 1.5, "temperature": temperature}
    energy = energy_of(slope(), X, y[:, None], likelihood="bernoulli", **wide)
    grid = torch.linspace(-20, 20, 2001)
    found, _ = normalised(energy(grid[:, None]), grid)
    p = 1 / (1 + np.exp(-grid.numpy()[:, None] * X[:, 0].numpy()))
    product = np.where(y.numpy() > 0, p, 1 - p).prod(1) * stats.norm.pdf(grid.numpy(), scale=1.5)
    wanted = product / product.sum() / float(grid[1] - grid[0])
    yield equals("density of a logistic slope by Bayes' rule", found, wanted)


def _on_a_plane(temperature: float) -> Iterator[Evidence]:
    sigma, delta, X, y = 0.8, 0.6, torch.randn(5, 2), torch.randn(5)
    knobs: Any = {"noise": delta, "prior": sigma, "temperature": temperature}
    model = nn.Linear(2, 1, bias=False)
    energy = energy_of(model, X, y[:, None], likelihood="gaussian", **knobs)
    Sigma = np.linalg.inv((X.T @ X / delta**2 + torch.eye(2) / sigma**2).numpy())
    mean = Sigma @ (X.T @ y).numpy() / delta**2
    axes = [torch.linspace(-9, 9, 301) * math.sqrt(Sigma[i, i]) + mean[i] for i in range(2)]
    theta = torch.cartesian_prod(*axes)
    E, cell = energy(theta), float((axes[0][1] - axes[0][0]) * (axes[1][1] - axes[1][0]))
    found = (-E - (-E).logsumexp(0)).exp() / cell
    law = stats.multivariate_normal(mean, Sigma)  # pyright: ignore
    top = float(law.pdf(mean))
    yield equals("density of two weights over its maximum", found / top, law.pdf(theta) / top)


posterior_energy.foil("the ratio of variances inverted", power=-2.0)
posterior_energy.foil("standard deviations in the place of variances", power=1.0)
posterior_energy.foil("a decay that is half as large", factor=0.5)
posterior_energy.foil("twice the energy, a law that is too narrow", temperature=0.5)
