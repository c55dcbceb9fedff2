"""Factor analysis as a law: the marginal, rotations of the factors, the mean."""

import math
from typing import Literal

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from vademecum.claims import at_most, claim, equals
from vademecum.generative.claims._planted_factors import (
    by_quadrature,
    drawn,
    fitted,
    nearby,
    planted,
    tame,
)

MARGINALS = {
    "loadings and noise": lambda W, noise: W @ W.T + noise.diag(),
    "transposed": lambda W, noise: W.T @ W + noise.diag(),
    "without noise": lambda W, noise: W @ W.T,
}


@claim(
    by="identity",
    sources=("A-339", "A-340", "A-341", "B-472", "B-473", "C-294", "C-295", "D-402", "D-406",
             "D-407", "D-408", "D-409", "E-244"),
    budget=0.6,
    full={"draws": 400_000},
    short=r"x = \mu + W z + \eta \sim \mathcal N(\mu, W W^\top + \Sigma), \quad z \sim"
    r" \mathcal N(0, I_m)",
)  # fmt: skip
def factor_analysis(
    marginal: Literal["loadings and noise", "transposed", "without noise"] = "loadings and noise",
    draws: int = 40_000,
):
    r"""Linear factor analysis, and the law of what is observed.

    Factors $z \sim \mathcal N(0, I_m)$, observations $x = \mu + W z + \eta \in \mathbb R^n$ with
    noise $\eta \sim \mathcal N(0, \Sigma)$ independent of $z$ and $\Sigma =
    \mathrm{diag}(\sigma_1^2, \dots, \sigma_n^2)$, so that all correlation comes from the factors.
    Integrating $z$ out gives $x \sim \mathcal N(\mu, W W^\top + \Sigma)$.

    *Checked* for `FactorAnalysis`: its log-density against sums over a grid of factors of products
    of univariate densities, with one and two factors, and for none; that of some features where
    others are missing; draws, whose moments lie within 6 standard errors (an alarm at a rate of $2
    \cdot 10^{-9}$ for each of 26).

    Knobs:
        marginal: What is called the covariance of $x$.
        draws: How many draws are made.
    """
    for n, m in ((2, 2), (3, 1)):
        W, noise, mean = tame(n, m)
        model, A = planted(W, noise, mean), MARGINALS[marginal](W, noise)
        at = {"n": n, "m": m}
        yield equals("covariance of the model", model.get_covariance(), A, **at)
        x = nearby(mean, 20)
        exact = by_quadrature(x, W, noise, mean)[0]
        law = stats.multivariate_normal(mean.numpy(), A.numpy())  # pyright: ignore
        yield equals("log-density by quadrature", exact, law.logpdf(x.numpy()), **at)
        yield equals("log-density of the model", model.score_samples(x), exact, **at)
    for n, m in ((2, 2), (4, 1)):
        W, noise, mean = drawn(n, m)
        y = planted(W, noise, mean).sample(draws)
        A = MARGINALS[marginal](W, noise) if n == m else W @ W.T + noise.diag()
        error = (A.diagonal() / draws).sqrt()
        off = ((y.mean(0) - mean) / error).abs()
        yield at_most("error of means of draws, in standard errors", off, 6.0, n=n, m=m)
        deviation = ((A.diagonal()[:, None] * A.diagonal() + A**2) / draws).sqrt()
        off = (((y - mean).T @ (y - mean) / draws - A) / deviation).abs()
        yield at_most("error of covariances of draws, in standard errors", off, 6.0, n=n, m=m)
    W, noise, mean = drawn(5, 0)
    alone = stats.norm.logpdf(mean + 1, mean, noise.sqrt()).sum()
    found = planted(W, noise, mean).score_samples(mean[None] + 1)
    yield equals("log-density without factors, and of independent features", found, alone, n=5)
    W, noise, mean = drawn(4, 2)
    x, there = mean + torch.randn(4, 4), torch.tensor([0, 2])
    x[:, [1, 3]] = math.nan
    block = MARGINALS[marginal](W[there], noise[there]).numpy()
    law = stats.multivariate_normal(mean[there].numpy(), block)  # pyright: ignore
    found = planted(W, noise, mean).score_samples(x)
    yield equals("log-density of two of four features", found, law.logpdf(x[:, there]), n=4, m=2)


factor_analysis.foil("the product the other way round", marginal="transposed")
factor_analysis.foil("loadings without the noise", marginal="without noise")


def orthogonal(m: int, kind: str) -> Tensor:
    """A rotation, a reflection or a permutation of all factors."""
    if kind == "permutation":
        return torch.eye(m).roll(1, 0)
    Q = torch.linalg.qr(torch.randn(m, m)).Q
    Q[:, 0] *= Q.det().sign()
    if kind == "reflection":
        Q[:, 0] *= -1
    return Q


@claim(
    by="identity",
    sources=("A-342", "B-474", "D-411", "E-261"),
    budget=0.2,
    short=r"p(x; W Q) = p(x; W), \quad \mathbb E_{W Q}[z | x] = Q^\top \mathbb E_W[z | x]"
    r" \quad (Q \in O(m))",
)
def factor_rotation(shear: float = 0.0, transposed: bool = True):
    r"""Factors are determined up to rotations and reflections only.

    For every orthogonal $Q \in O(m)$, $(W Q)(W Q)^\top = W W^\top$: the likelihood of $W Q$ is that
    of $W$, and the posterior means of the factors turn into $Q^\top \mathbb E[z \mid x]$. So no
    coordinate of $z$ has a meaning that the data could give it.

    *Checked* for `FactorAnalysis` with rotations, reflections and permutations of two and three
    factors: the log-density of every example, the posterior.

    Knobs:
        shear: A shear, of determinant one, by which $Q$ is multiplied.
        transposed: Whether posterior means turn by $Q^\top$, or by $Q$.
    """
    for n, m in ((6, 2), (5, 3)):
        W, noise, mean = drawn(n, m)
        x = mean + 2 * torch.randn(30, n)
        first = planted(W, noise, mean)
        for kind in ("rotation", "reflection", "permutation"):
            bent = torch.eye(m)
            bent[0, 1] = shear
            Q = orthogonal(m, kind) @ bent
            second = planted(W @ Q, noise, mean)
            at = {"n": n, "m": m, "Q": kind}
            same = first.score_samples(x)
            yield equals("log-density of WQ and of W", second.score_samples(x), same, **at)
            turned = first.transform(x) @ (Q if transposed else Q.T)
            yield equals("posterior mean of WQ", second.transform(x), turned, **at)
            spread = Q.T @ first.posterior(x).covariance @ Q
            yield equals("posterior covariance of WQ", second.posterior(x).covariance, spread, **at)


factor_rotation.foil("any matrix of determinant one", shear=0.2)
factor_rotation.foil("posterior means that turn the other way", transposed=False)


CENTRES = {
    "mean": lambda x: fitted(x, 1).mean_,
    "median": lambda x: x.median(0).values,
    "divisor s - 1": lambda x: x.sum(0) / (len(x) - 1),
}


@claim(
    by="identity",
    sources=("D-410", "A-345", "B-477"),
    budget=0.4,
    short=r"\arg\max_\mu p(S | \mu, W, \Sigma) = \tfrac1s \textstyle\sum_i x_i \quad"
    r" \forall\, W, \Sigma",
)
def factor_mle_mean(estimate: Literal["mean", "median", "divisor s - 1"] = "mean", models: int = 5):
    r"""The most likely mean in factor analysis is the sample's.

    Whatever $W$ and $\Sigma$, the likelihood of $s$ examples is largest over $\mu$ at $\bar x =
    \frac1s \sum_i x_i$: at $\bar x + \delta$ the log-likelihood is less by $\frac s2 \delta^\top (W
    W^\top + \Sigma)^{-1} \delta$. That no other parameter of the general model has an explicit
    estimate is quoted.

    *Checked* on skewed examples for the mean that `FactorAnalysis` fits: its value, and the fall of
    the log-density of models with random loadings and noise, in both directions.

    Knobs:
        estimate: What is called the most likely mean.
        models: How many pairs of loadings and noise are tried.
    """
    for s, n in ((40, 3), (15, 4)):
        x = torch.randn(n).exp() * torch.empty(s, n).exponential_()
        hat = CENTRES[estimate](x)
        exact = np.array([math.fsum(column) / s for column in x.T.tolist()])
        yield equals("estimate of the mean", hat, exact, s=s, n=n)
        for k in range(models):
            W, noise, _ = drawn(n, 1 + k % 2)
            delta = torch.randn(n)
            top, *moved = (
                planted(W, noise, hat + shift).score_samples(x).sum()
                for shift in (0 * delta, delta, -delta)
            )
            quadratic = s / 2 * delta @ torch.linalg.solve(W @ W.T + noise.diag(), delta)
            for sign, other in zip((1, -1), moved, strict=True):
                yield equals("fall of the log-likelihood", top - other, quadratic,
                             s=s, n=n, sign=sign)  # fmt: skip


factor_mle_mean.foil("the median of skewed examples", estimate="median")
factor_mle_mean.foil("the sum divided by s - 1", estimate="divisor s - 1")
