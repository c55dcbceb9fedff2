"""Scores of noised data: what a network that removes noise learns, and where it cannot learn."""

import math

import numpy as np
import torch
from torch import Tensor

from vademecum import generative
from vademecum.claims import at_least, at_most, claim, equals, in_mean
from vademecum.generative import VESDE, VPSDE, MixtureScore, score_matching_loss
from vademecum.generative.claims._score_oracles import (
    Field,
    density,
    grid_of,
    hermite,
    mixture,
    score_of,
)


@claim(
    by="identity",
    sources=("A-398",),
    budget=1.0,
    short=r"\mathbb E\|\nabla \log p_\sigma - s\|^2 = \mathbb E\|s(\tilde x)"
    r" + (\tilde x - x) / \sigma^2\|^2 + C",
)
def denoising_score_matching(power: int = 2, fields: int = 20, n: int = 20_000):
    r"""Noise-conditional (denoising) score matching.

    A score network is trained for several noise levels, $\sum_i \lambda(i)\, \mathbb
    E_{p_{\sigma_i}} \|\nabla \log p_{\sigma_i}(x) - s_\theta(x, i)\|^2$, where $p_\sigma$ is the
    data law convolved with $\mathcal N(0, \sigma^2 I)$. Up to a constant this equals the regression
    $\mathbb E \big\|s_\theta(\tilde x, i) + \frac{\tilde x - x}{\sigma_i^2}\big\|^2$ over clean $x$
    and noisy $\tilde x = x + \sigma_i \epsilon$.

    Checked for a law of five random points and three levels, level by level, so for any weights
    $\lambda$: the regression by Gauss's nodes over $\epsilon$ and the other side by a sum over a
    grid differ by the same number for every random field, which is the gap of the second moments;
    the minimiser $\mathbb E[(x - \tilde x) / \sigma^2 \mid \tilde x]$ by Bayes' rule is the score
    by the complex step. The room's denoising loss, plain and times $\sigma^2$, has the regression
    for its mean, on a line and, for normal data in three dimensions, in closed form (five standard
    errors).

    Knobs:
        power: The power of $\sigma$ under $\tilde x - x$.
        fields: How many random fields are tried.
        n: How many noises are drawn.
    """
    points, mass = 6 * torch.rand(5, 1) - 3, torch.full((5,), 0.2)
    z, w = hermite(90)
    for i, sigma in enumerate((0.6, 1.0, 1.7)):
        law = mass, points, torch.full((5,), sigma**2)
        x, cell = grid_of(1, 22.0, 0.05)
        weights, true = density(x, *law) * cell, score_of(x, *law)
        seen = points + sigma * z  # (5, nodes): clean points by rows
        target = -(seen - points) / sigma**power
        near = (-((x - points[:, 0]) ** 2) / (2 * sigma**2)).exp()
        near = near / near.sum(1, keepdim=True)
        best = (near * (points[:, 0] - x) / sigma**power).sum(1, keepdim=True)
        alive = weights > 1e-12
        yield equals("minimiser of the regression", best[alive], true[alive], tol=1e-9, sigma=sigma)
        wanted = 1 / sigma**2 - (weights * true[:, 0] ** 2).sum()
        for j in range(fields):
            field = Field(1)
            right = ((field(seen.reshape(-1, 1)).view_as(seen) - target) ** 2 @ w) @ mass
            left = (weights * (true - field(x))[:, 0] ** 2).sum()
            yield equals("regression minus explicit loss", right - left, wanted, tol=1e-8,
                         sigma=sigma)  # fmt: skip
            if j == 0:
                clean = points[torch.arange(n) % 5]
                yield from _drawn(field, clean, sigma, i, float(right))
    yield from _normal_data(n)


def _drawn(field: Field, clean: Tensor, sigma: float, level: int, wanted: float):
    """The room's loss, of a model that is told the level."""
    told = []

    def model(x: Tensor, t: Tensor) -> Tensor:
        told.append(t)
        return field(x)

    t = torch.full((len(clean),), level)
    known = {"std": sigma, "reduction": "none"}
    plain = score_matching_loss(model, clean, t, weighting="none", **known)
    yield in_mean("denoising loss over noises", plain, wanted, sigma=sigma)
    scaled = score_matching_loss(model, clean, t, **known)
    yield in_mean("the same times the variance", scaled, sigma**2 * wanted, sigma=sigma)
    yield equals("level that the model is told", torch.stack(told), level, sigma=sigma)


def _normal_data(n: int):
    """For data N(0, a I) and s = -b x the mean is d (b^2 (a + sigma^2) - 2 b + 1 / sigma^2)."""
    a, b, d = 1.5, 0.8, 3
    clean = math.sqrt(a) * torch.randn(n, d)
    sigma = torch.tensor([0.7, 1.4])[torch.arange(n) % 2]
    losses = score_matching_loss(lambda x: -b * x, clean, std=sigma, weighting="none",
                                 reduction="none")  # fmt: skip
    for k, s in enumerate((0.7, 1.4)):
        wanted = d * (b**2 * (a + s**2) - 2 * b + 1 / s**2)
        yield in_mean("loss of normal data in space", losses[k::2], wanted, sigma=s)


denoising_score_matching.foil(
    "one power of the noise's size missing", refuted_by="minimiser of the regression", power=1
)
denoising_score_matching.foil(
    "one power too many", refuted_by="regression minus explicit loss", power=3
)


@claim(
    by="fit",
    sources=("A-397",),
    budget=0.5,
    short=r"\text{a fitted score errs where } p(x) \approx 0:\ \text{there errors cost nothing}",
)
def low_density_scores(by_density: bool = True, noise: float = 2.0):
    r"""Learned scores are unreliable where data is scarce.

    The score matching loss weighs errors by $p(x)$, so between well separated modes a fitted score
    can be far off at almost no cost; adding noise of several sizes fills the gaps.

    Checked for $\frac12 \mathcal N(-3, v) + \frac12 \mathcal N(3, v)$ with random $v$ between
    $\frac14$ and $\frac12$ and polynomials of degrees 3 to 9, fitted by weighted least squares to
    the exact score, which is what score matching does with unlimited data: the mean squared error
    on $|x| < \frac12$ exceeds that on $\big||x| - 3\big| < \frac12$ more than a hundredfold for
    every degree, although the loss falls with the degree; for data with noise of standard deviation
    2 the same ratio is below 3. (Observed over all such $v$: at least 178, and at most 2.6.) That
    networks behave alike is quoted.

    Knobs:
        by_density: Whether errors weigh $p(x)$, and not alike on $[-5, 5]$.
        noise: The standard deviation of the noise that fills the gap.
    """
    v = float(0.25 + 0.25 * torch.rand(()))
    process = VESDE(sigma_min=1.0, sigma_max=3.0)
    law = torch.full((2,), 0.5), torch.tensor([[-3.0], [3.0]]), torch.full((2,), v)
    exact = MixtureScore(*law, process=process, predicts="score")
    x = torch.linspace(-8, 8, 2001)[:, None]
    for size in (0.0, noise):
        t = torch.tensor(0.5 * math.log(size**2 + 1) / math.log(3))  # sigma(t)^2 - 1 = size^2
        weights = exact.log_prob(x, t=t).exp() if by_density else (x[:, 0].abs() <= 5).double()
        weights = weights / weights.sum()
        ratios, losses = [], []
        for degree in range(3, 10):
            fitted = _polynomial(x[:, 0] / 8, exact.score(x, t)[:, 0], weights, degree)
            found = generative.fisher_divergence(lambda _, s=fitted: s[:, None], x,
                                                 exact.score(x, t), weights=weights)  # fmt: skip
            losses.append(float(found.value))
            error = (fitted - exact.score(x, t)[:, 0]) ** 2
            gap, mode = x[:, 0].abs() < 0.5, (x[:, 0].abs() - 3).abs() < 0.5
            ratios.append(float(error[gap].mean() / error[mode].mean()))
        if size == 0:
            yield at_least("error between the modes over that at them", ratios, 100.0)
            falling = np.array(losses)[[2, 4, 6]] / np.array(losses)[[0, 2, 4]]
            yield at_most("loss over that with two powers less", falling, 0.8)
        else:
            yield at_most("the same ratio with noise", ratios, 3.0)


def _polynomial(x: Tensor, y: Tensor, weights: Tensor, degree: int) -> Tensor:
    basis = np.polynomial.chebyshev.chebvander(x.numpy(), degree)
    root = np.sqrt(weights.numpy())
    found = np.linalg.lstsq(basis * root[:, None], y.numpy() * root, rcond=None)[0]
    return torch.tensor(basis @ found)


low_density_scores.foil(
    "errors that weigh alike everywhere", by_density=False,
    refuted_by="error between the modes over that at them",
)  # fmt: skip
low_density_scores.foil(
    "noise too small to fill the gap", refuted_by="the same ratio with noise", noise=0.2
)


@claim(
    by="identity",
    sources=("C-333",),
    budget=0.5,
    short=r"\nabla_x \log p_t(x) = -\mathbb E[\epsilon \mid x_t = x] / \sqrt{1 - \bar\alpha_t}",
)
def noise_is_score(root: bool = True, sign: int = -1):
    r"""Noise prediction is a score (Tweedie).

    For $x_t = \sqrt{\bar\alpha_t}\, x_0 + \sqrt{1 - \bar\alpha_t}\, \epsilon$ the marginal
    satisfies $\nabla_x \log p_t(x) = -\mathbb E[\epsilon \mid x_t = x] / \sqrt{1 - \bar\alpha_t}$,
    so a perfectly trained predictor gives the score $-\epsilon_\theta(x, t) / \sqrt{1 -
    \bar\alpha_t}$.

    Checked for random mixtures on a line and in a plane at $\bar\alpha = 0.1, 0.5, 0.9$: the
    conditional mean of the noise by Bayes' rule on a grid of $\epsilon$, and the noise that
    `MixtureScore` predicts, both against the score of the noised mixture by the complex step.

    Knobs:
        root: Whether one divides by the root of $1 - \bar\alpha_t$, and not by that itself.
        sign: The sign.
    """
    process = VPSDE(beta_min=4.0, beta_max=4.0)  # for which alpha_bar = exp(-4 t)
    for d in (1, 2):
        weights, means, variances = mixture(d, 3)
        exact = MixtureScore(weights, means, variances, process=process, predicts="noise")
        for bar in (0.1, 0.5, 0.9):
            x = 1.5 * torch.randn(12, d)
            s, e = math.sqrt(bar), math.sqrt(1 - bar)
            law = weights, s * means, bar * variances + 1 - bar
            true, at = score_of(x, *law), {"d": d, "alpha_bar": bar}
            over = sign / e if root else sign / e**2
            noise, _ = grid_of(d, 9.0, 0.05 if d == 1 else 0.2)
            found = torch.stack([_mean_noise(one, noise, s, e, weights, means, variances)
                                 for one in x])  # fmt: skip
            yield equals("mean noise by Bayes, as a score", over * found, true, tol=1e-8, **at)
            t = torch.full((12,), -math.log(bar) / 4)
            yield equals("predicted noise, as a score", over * exact(x, t), true, tol=1e-9, **at)


def _mean_noise(
    x: Tensor, noise: Tensor, s: float, e: float, weights: Tensor, means: Tensor, variances: Tensor
) -> Tensor:
    """The mean of the noise that turned some clean example into x, over a grid of noises."""
    likely = density((x - e * noise) / s, weights, means, variances)
    likely = likely * (-(noise**2).sum(1) / 2).exp()
    return (likely[:, None] * noise).sum(0) / likely.sum()


noise_is_score.foil(
    "division by the variance", refuted_by="predicted noise, as a score", root=False
)
noise_is_score.foil("a plus sign", refuted_by="mean noise by Bayes, as a score", sign=1)
