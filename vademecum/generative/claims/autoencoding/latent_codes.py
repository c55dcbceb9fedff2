"""Models with a hidden code: their marginal, how it is estimated, how they are sampled."""

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, at_least, claim, equals, in_mean
from vademecum.foundations import bayes_posterior, conditional
from vademecum.foundations import marginal as marginal_of
from vademecum.generative import VAE
from vademecum.generative.claims._exact_bounds import (
    Told,
    linear_vae,
    log_likelihood,
    log_normal,
    posterior,
    random_model,
    trapezia,
)
from vademecum.models import mlp

At = Literal["integral", "mean code"]


@claim(
    by="identity",
    sources=(
        *("A-329", "C-297", "C-298", "D-392", "D-403", "D-404", "D-405", "E-262", "E-263"),
        *("E-294", "E-299"),
    ),
    budget=0.3,
    short=r"p(x) = \int p(x | z)\, p(z)\, dz,\quad p(z | x) = p(x | z)\, p(z) / p(x)",
)
def latent_variable_model(marginal: At = "integral", power: float = 1.0):
    r"""A latent variable model: a joint law of a hidden code and an example.

    The joint law is $p_\theta(x, z) = p(z)\, p_\theta(x \mid z)$, usually with $p(z) = \mathcal
    N(0, I)$, so that the marginal is $p_\theta(x) = \int p_\theta(x \mid z)\, p(z)\, dz$ and the
    posterior $p_\theta(z \mid x) = p_\theta(x \mid z)\, p(z) / p_\theta(x)$. Prior knowledge enters
    through $p(z)$; its influence on a posterior fed with $n$ observations fades like $1 / n$. (That
    for a nonlinear decoder the integral has no closed form is quoted.)

    *Checked* for `VAE`: with a linear decoder and its posterior as encoder its log-likelihood is
    that of quadrature, and of SciPy's normal law; the posterior by Bayes' rule on a grid is the
    encoder's law; with a network as decoder it is that of quadrature, within five standard errors
    that quadrature gives. A discrete model with 4 codes and 5 observations keeps Bayes' rule. The
    posterior means of a location under priors of unit variance and different means, with unit
    noise, differ by $c / (n + 1)$, for $n$ from 10 to $10^4$.

    Knobs:
        marginal: What is called the marginal: the integral, or the law at the mean code.
        power: The power of $n + 1$ with which the influence of the prior fades.
    """
    for d in (2, 3):
        model, x = random_model(d, 1), 2 * torch.randn(5, d)
        A, a, precision = posterior(model)
        vae = linear_vae(model, A, a, -precision.diagonal().log())
        nodes, weights = trapezia()
        fit = log_normal(x[:, None], nodes @ model.W.T + model.b, model.sigma**2).sum(2)
        value = (fit + weights.log()).logsumexp(1)
        if marginal == "mean code":
            value = log_normal(x, model.b, model.sigma**2).sum(1)
        yield equals("marginal, against SciPy's", value, log_likelihood(model, x), d=d)
        found = vae.log_prob(x, k=3).log_prob
        yield equals("log-likelihood of the part, against the marginal", found, value, d=d)
        z = nodes[:, 0]
        rule = (
            (fit + weights.log() - value[:, None]).exp() / weights * log_normal(z, 0.0, 1.0).exp()
        )
        mean, log_variance = vae.encode(x)
        law = log_normal(z, mean, log_variance.exp()).exp()
        yield equals("posterior by Bayes' rule, and the encoder's law", rule, law, d=d)
    yield _network(marginal)
    yield from _table()
    yield from _location(power)


def _network(marginal: At) -> Evidence:
    """Weights have the second moment that quadrature gives, so the tolerance is not the part's."""
    net, x, k = mlp([1, 5, 3], nn.Tanh), torch.randn(1, 3) / 2, 20_000
    prior = Told(lambda x: (torch.zeros(len(x), 1), torch.zeros(len(x), 1)))
    nodes, weights = trapezia()
    fit = log_normal(x, net(nodes), 0.64).sum(1).detach()
    first, second = ((c * fit).exp() @ weights for c in (1, 2))
    spread = float((second / first**2 - 1) / k) ** 0.5
    wanted = (
        first.log() if marginal == "integral" else log_normal(x, net(0 * nodes[:1]), 0.64).sum()
    )
    found = VAE(prior, net, noise=0.8).log_prob(x, k=k).log_prob
    off = float((found - wanted.detach()).abs())
    return Evidence("log-likelihood of a network, off", "<=", off, 5 * spread, 0.0, 1, sampled=True)


def _table() -> Iterator[Evidence]:
    prior, laws = torch.randn(4).softmax(0), torch.randn(4, 5).softmax(1)
    joint = prior[:, None] * laws
    yield equals("marginal of the code", marginal_of(joint, 0), prior, tol=1e-14)
    yield equals("marginal of the observation", marginal_of(joint, 1), prior @ laws, tol=1e-14)
    yield equals("observation given the code", conditional(joint, 1, given=0).T, laws, tol=1e-14)
    for i in range(5):
        found = bayes_posterior(prior, laws[:, i])
        yield equals("posterior of the code", found, joint[:, i] / (prior @ laws)[i], tol=1e-14)


def _location(power: float) -> Iterator[Evidence]:
    """On a grid: the product of prior and likelihood, normalised."""
    ns, c = np.unique(np.geomspace(10, 10_000, 13).astype(int)), 1.7
    gaps = []
    for n in ns:
        mean = float(torch.randn(()))  # of the observations, which are sufficient
        z = mean + torch.linspace(-12, 12, 2001) / math.sqrt(n) + torch.tensor([[0.0], [0.0]])
        energy = (z - torch.tensor([[0.0], [c]])).square() / 2 + int(n) * (z - mean).square() / 2
        p = (-energy).softmax(1)
        moments = (p * z).sum(1)
        gaps.append(float(moments[1] - moments[0]))
    wanted = c * (ns + 1.0) ** -power
    yield equals("influence of the prior, relative", np.array(gaps) / wanted, 1.0, tol=1e-6)


latent_variable_model.foil("the law at the mean code, not the integral", marginal="mean code")
latent_variable_model.foil("an influence that fades with the root", power=0.5)


Growth = Literal["power", "multiple"]


@claim(
    by="identity",
    sources=("C-299", "B-480", "E-294", "E-298"),
    budget=0.3,
    full={"draws": 400_000},
    short=r"p(x) = \mathbb E_{z \sim q}\bigl[p(x | z)\, p(z) / q(z)\bigr]",
)
def evidence_importance_form(ratio: bool = True, growth: Growth = "power", draws: int = 60_000):
    r"""The evidence as an importance-weighted integral.

    For every density $q$ with $q > 0$ wherever $p_\theta(x \mid z)\, p(z) > 0$: $p_\theta(x) =
    \mathbb E_{z \sim q}[p_\theta(x \mid z)\, p(z) / q(z)]$; the estimate from one draw has no
    variance exactly for $q = p_\theta(z \mid x)$. Draws from the prior are unbiased too, but their
    relative variance grows exponentially with the number of codes. (That the likelihood of a deep
    model cannot be maximised that way is quoted.)

    *Checked* for $x_j = z_j + 0.3\, \eta_j$ in independent coordinates, whose evidence is $\prod_j
    \mathcal N(x_j; 0, 1.09)$: quadrature of the weighted integral for three Gaussian $q$; the
    weights of `VAE` have this mean, are constant for the posterior and not for the others; under
    the prior their relative second moment for $m = 1, 2, 3$ codes is the product of $\mathcal N(x;
    0, 1 + \frac{\sigma^2}2) / \bigl(2 \sigma \sqrt\pi\, \mathcal N(x; 0, 1 + \sigma^2)^2\bigr)$, by
    the Gaussian integral of $p(x \mid z)^2 p(z)$, and so is what `log_prob` says of its error.

    Knobs:
        ratio: Whether the likelihood is weighted with $p(z) / q(z)$.
        growth: Whether the second moments of several codes multiply or add.
        draws: How many codes are drawn.
    """
    sigma, x = 0.3, torch.tensor([0.4, -0.9, 0.7]) + 0.1 * torch.randn(3)
    evidence = log_normal(x, 0.0, 1 + sigma**2)
    exact = x / (1 + sigma**2), torch.full((3,), sigma**2 / (1 + sigma**2))
    others = [(torch.zeros(3), torch.ones(3)), (0.6 * x, torch.full((3,), 0.2)), exact]
    for mean, variance in others:
        u, weights = trapezia(20.0, 0.02)
        z = mean + variance.sqrt() * u
        log_ratio = log_normal(z, 0.0, 1.0) - log_normal(z, mean, variance)
        fit = log_normal(x, z, sigma**2)
        integral = ((fit + log_ratio * ratio).exp() * weights[:, None]).sum(0)
        at = {"mean": float(mean[0]), "variance": float(variance[0])}
        yield equals("integral over the evidence", integral / evidence.exp(), 1.0, tol=1e-8, **at)
        vae = _independent(sigma, mean, variance)
        log_weights = vae.iwae_bound(x.expand(draws, 3), 1) - evidence.sum()
        spread = float(log_weights.std())
        if mean is exact[0]:
            yield equals("weights of the posterior", log_weights, 0.0, tol=1e-10)
        else:
            yield in_mean("weight over the evidence", log_weights.exp(), 1.0, **at)
            yield at_least("deviation of other log-weights", spread, 0.1, tol=0.0, **at)
    moments = log_normal(x, 0.0, 1 + sigma**2 / 2).exp() / (2 * sigma * math.pi**0.5)
    moments = moments / (2 * evidence).exp()
    for m in (1, 2, 3):
        vae, here = _independent(sigma, torch.zeros(m), torch.ones(m)), x[:m]
        wanted = float(moments[:m].prod() if growth == "power" else moments[:m].sum())
        squares = (2 * (vae.iwae_bound(here.expand(draws, m), 1) - evidence[:m].sum())).exp()
        name = "relative second moment under the prior"
        yield in_mean(name, squares, wanted, sigmas=6.0, m=m)  # one more for the skewness
    found = _independent(sigma, torch.zeros(1), torch.ones(1)).log_prob(x[:1, None], k=draws)
    own, slack = draws * found.standard_error.item() ** 2 + 1, _error(sigma, x[0], draws)
    name = "second moment in the standard error"
    wanted = float(moments[0])
    yield Evidence(name, "==", own * (1 - 1 / draws), wanted, 6 * slack, 1, {"m": 1}, sampled=True)


def _error(sigma: float, x: Tensor, k: int) -> float:
    """The standard error of the mean squared weight over the squared mean, to first order."""
    nodes, weights = trapezia()
    fit = log_normal(x, nodes[:, 0], sigma**2)
    one, two, three, four = ((j * fit).exp() @ weights for j in (1, 2, 3, 4))
    two, three, four = two / one**2, three / one**3, four / one**4
    variance = (four - two**2) - 4 * two * (three - two) + 4 * two**2 * (two - 1)
    return float(variance / k) ** 0.5


def _independent(sigma: float, mean: Tensor, variance: Tensor) -> VAE:
    told = Told(lambda x: (mean.expand(len(x), -1), variance.log().expand(len(x), -1)))
    return VAE(told, nn.Identity(), noise=sigma)


evidence_importance_form.foil("the likelihood averaged over q, without the ratio", ratio=False)
evidence_importance_form.foil(
    "second moments that add up",
    growth="multiple",
    refuted_by="relative second moment under the prior",
)
