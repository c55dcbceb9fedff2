"""What posteriors predict: by integrals, by draws, and by draws that count unequally."""

import math
from collections.abc import Iterator
from typing import Literal

import torch
from scipy import stats
from torch import Tensor, nn

from vademecum.bayes import BayesianLinearRegression, importance_ensemble
from vademecum.bayes import posterior as energy_of
from vademecum.bayes import posterior_predictive as predictive
from vademecum.bayes.claims.posteriors import slope
from vademecum.claims import Evidence, claim, equals, in_mean


@claim(
    by="identity",
    sources=("C-259", "D-371"),
    budget=0.8,
    full={"draws": 100_000},
    short=r"\int p(y | x, \theta)\, p(\theta | S)\, d\theta;\ \text{linear: }"
    r" \mathcal N(x^\top m, \delta^2 + x^\top \Sigma x)",
)
def posterior_predictive(
    law: Literal["mixture", "average"] = "mixture",
    spread: float = 1.0,
    noise: float = 1.0,
    draws: int = 4_000,
):
    r"""The posterior predictive law, and its mean.

    $p(y \mid x, S) = \int p(y \mid x, \theta)\, p(\theta \mid S)\, d\theta$; its mean is the model
    average $\bar f(x) = \int f_\theta(x)\, p(\theta \mid S)\, d\theta$, a point prediction and not
    the law. For the linear model with Gaussian prior and noise it is $\mathcal N(x^\top m,\
    \delta^2 + x^\top \Sigma x)$.

    *Proof.* Of the last: answers are sums of independent normal numbers. Checked: the integral by
    quadrature for one weight, against the closed form and `BayesianLinearRegression`, and for more
    weights against the law of new and old answers together; `posterior_predictive` of draws of the
    posterior in its moments within five standard errors, and of masses 1/2 at $f = \pm 1$ exactly.

    Knobs:
        law: Whether the law is the mixture, or normal around the average with the noise alone.
        spread: The factor before $x^\top \Sigma x$.
        noise: The factor before $\delta^2$.
        draws: How many draws of the posterior.
    """
    for n, sigma, delta in ((4, 0.7, 1.2), (7, 2.0, 0.4)):
        X, y = torch.randn(n, 1), sigma * torch.randn(n)
        energy = energy_of(slope(), X, y[:, None], likelihood="gaussian", noise=delta, prior=sigma)
        exact = BayesianLinearRegression(noise=delta, prior=sigma, fit_intercept=False).fit(X, y)
        m, std = float(exact.coef_), float(exact.covariance_) ** 0.5
        grid = torch.linspace(m - 12 * std, m + 12 * std, 2001)
        mass = (-energy(grid[:, None])).softmax(0)
        for x in (0.6, -3.0):
            wide = math.sqrt(noise * delta**2 + spread * (x * std) ** 2)
            at = {"n": n, "x": x}
            answers = x * m + wide * torch.linspace(-4, 4, 9)
            each = stats.norm.pdf(answers.numpy()[:, None], x * grid.numpy(), delta)
            integral = (torch.from_numpy(each) * mass).sum(1)
            formula = stats.norm.pdf(answers.numpy(), x * m, wide)
            yield equals("density of an answer, by quadrature", integral, formula, **at)
            mean, found = exact.predict(torch.tensor([[x]]), return_std=True)
            yield equals("mean of BayesianLinearRegression", mean, x * (mass @ grid), **at)
            yield equals("its standard deviation", found, wide, **at)
    yield from _several_weights(spread, noise, draws)
    for gap, delta in ((1.0, 0.1), (2.0, 0.5)):
        two = torch.tensor([[-gap], [gap]])
        found = predictive(two, slope(), torch.ones(1, 1), torch.zeros(1, 1),
                           likelihood="gaussian", noise=delta)  # fmt: skip
        assert found.log_score is not None
        at = {"f": gap, "delta": delta}
        off = gap if law == "mixture" else 0.0
        density = float(stats.norm.logpdf(0.0, off, delta))
        yield equals("average of f and -f", found.mean, 0.0, **at)
        yield equals("log density of the answer 0", -found.log_score, density, **at)
        variance = noise * delta**2 + spread * off**2
        yield equals("variance of an answer", found.std.square(), variance, **at)


def _several_weights(spread: float, noise: float, draws: int) -> Iterator[Evidence]:
    n, d, sigma, delta = 6, 3, 1.3, 0.8
    X, y, x = torch.randn(n, d), torch.randn(n), torch.randn(5, d)
    joint = sigma**2 * torch.cat([X, x]) @ torch.cat([X, x]).T
    K, k = joint[:n, :n] + delta**2 * torch.eye(n), joint[n:, :n]
    mean = k @ torch.linalg.solve(K, y)
    own = (joint[n:, n:] - k @ torch.linalg.solve(K, k.T)).diagonal()
    exact = BayesianLinearRegression(noise=delta, prior=sigma, fit_intercept=False).fit(X, y)
    found, std = exact.predict(x, return_std=True)
    yield equals("mean given the other answers", found, mean, n=n, d=d)
    wanted = noise * delta**2 + spread * own
    yield equals("variance given the other answers", std.square(), wanted, n=n, d=d)
    L = torch.linalg.cholesky(exact.covariance_)
    theta = exact.coef_ + torch.randn(draws, d) @ L.T
    net = nn.Linear(d, 1, bias=False)
    answers = predictive(theta, net, x, likelihood="gaussian", noise=delta)
    f = theta @ x.T
    yield equals("model average of draws", answers.mean[:, 0], f.mean(0), d=d)
    variance = delta**2 + (f - f.mean(0)).square().mean(0)
    yield equals("variance over draws and noise", answers.std[:, 0].square(), variance, d=d)
    for i in range(len(x)):  # apart, since a draw's answers depend on each other
        off = f[:, i] - mean[i]
        yield in_mean("answers of draws", off, 0.0, i=i)
        yield in_mean("their squared deviations", off.square() / own[i], 1.0, i=i)


posterior_predictive.foil("the variance of the best weights alone", spread=0.0)
posterior_predictive.foil("the variance without noise", noise=0.0)
posterior_predictive.erratum(
    "C-259",
    printed=r"Predictive distribution: $\bar f(x) = \int f(\theta)(x)\, p(\theta | S)\, d\theta$",
    right=r"$p(y \mid x, S) = \int p(y \mid x, \theta)\, p(\theta \mid S)\, d\theta$, whose mean is"
    r" $\bar f(x)$",
    why=r"The formula is the mean of the predictive law, a point. With mass 1/2 at $f = \pm 1$ and"
    r" noise 0.1 the average is 0, where the log density is -48.6, and not 1.38 as around it.",
    weight="soft",
    refuted_by="log density of the answer 0",
    law="average",
)


@claim(
    by="identity",
    sources=("C-260",),
    budget=0.8,
    full={"draws": 400_000},
    short=r"\bar f = \sum_j w_j f_{\theta_j} / \sum_j w_j,\quad w_j = e^{-E(\theta_j)} /"
    r" \rho(\theta_j),\quad \theta_j \sim \rho",
)
def importance_weighted_ensemble(
    weights: Literal["own", "uniform", "posterior"] = "own", draws: int = 20_000
):
    r"""Bayesian ensembles by self-normalised importance weights.

    $\bar f^{(n)}(x) = \sum_j w_j f_{\theta_j}(x) / \sum_j w_j$ with $w_j = e^{-E(\theta_j)} /
    \rho(\theta_j)$ for draws $\theta_j \sim \rho$ tends to the posterior's mean prediction: the
    weights are $e^{-E}$ for uniform draws, the likelihood for draws from the prior, and equal for
    draws from the posterior.

    *Checked* for $f_\theta = \theta$, a Gaussian prior and one observation, whose posterior mean is
    $y \sigma^2 / (\sigma^2 + \delta^2)$: limits as ratios of integrals with the weights of
    `importance_ensemble`, for the three laws; the evidence as the mean weight of draws from the
    prior; averages over random draws by `posterior_predictive` within five standard errors of the
    linearised ratio, which is its mean up to terms of the order $1/n$.

    Knobs:
        weights: The law by which weights are made: that of the draws, or another one.
        draws: How many random draws.
    """
    for y, sigma, delta in ((1.0, 1.0, 1.0), (2.0, 1.5, 0.5)):
        one, at = torch.ones(1, 1), {"y": y, "sigma": sigma, "delta": delta}
        energy = energy_of(slope(), one, y * one, likelihood="gaussian", noise=delta, prior=sigma)
        mean = y * sigma**2 / (sigma**2 + delta**2)

        def prior(t: Tensor, sigma: float = sigma) -> Tensor:
            return torch.from_numpy(stats.norm.logpdf(t[:, 0].numpy(), scale=sigma))

        grid = torch.linspace(-12 * sigma, 12 * sigma, 4001)[:, None]
        laws = {"uniform": "uniform", "prior": prior, "posterior": "posterior"}
        rho = {"uniform": torch.ones(4001), "prior": prior(grid).exp(),
               "posterior": (-energy(grid)).exp()}  # fmt: skip
        for name, own in laws.items():
            found = importance_ensemble(energy, grid, law=own if weights == "own" else weights)
            mass = found.log_weights.exp() * rho[name]
            limit = (mass @ grid[:, 0]) / mass.sum()
            yield equals(f"limit for draws from the {name} law", limit, mean, **at)
        theta = sigma * torch.randn(draws, 1)
        found = importance_ensemble(energy, theta, law=prior if weights == "own" else weights)
        answers = predictive(found, slope(), one, likelihood="gaussian", noise=delta)
        share = found.log_weights.exp()
        yield equals("average over the ensemble", answers.mean[0, 0], share @ theta[:, 0], **at)
        yield equals("draws they are worth", found.effective, 1 / float(share @ share), **at)
        yield in_mean("weighted deviation of draws from the prior",
                      draws * share * (theta[:, 0] - mean), 0.0, **at)  # fmt: skip
        log_p = stats.norm.logpdf(y, 0, math.hypot(sigma, delta))
        missing = math.log(2 * math.pi * sigma * delta)  # what the energy leaves out
        ratio = draws * share * math.exp(found.log_evidence - missing - log_p)
        yield in_mean("weights over the evidence", ratio, 1.0, **at)


importance_weighted_ensemble.foil("equal weights whatever the law", weights="posterior")
importance_weighted_ensemble.erratum(
    "C-260",
    printed=r"$\bar f^{(n)}(x) = \frac{\sum_{j=1}^n \exp[-E(\theta_j)]\, f(\theta_j)(x)}"
    r"{\sum_{j=1}^n \exp[-E(\theta_j)]}$",
    right=r"weights $e^{-E(\theta_j)} / \rho(\theta_j)$ for draws $\theta_j \sim \rho$",
    why=r"The law of the $\theta_j$ is not stated, and the weights are right for uniform draws"
    r" alone; for draws from the prior the prior counts twice: with $f = \theta$, prior"
    r" $\mathcal N(0, 1)$, $y = 1$ and noise 1 the limit is 1/3 instead of 1/2.",
    weight="soft",
    refuted_by="limit for draws from the prior law",
    weights="uniform",
)
