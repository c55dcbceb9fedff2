"""What examples say of their factors: posterior mean and covariance in factor analysis."""

import math
from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.foundations import gaussian_condition
from vademecum.generative.claims._planted_factors import by_quadrature, nearby, planted, tame


def conditioned(x: Tensor, W: Tensor, noise: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """The law of the factors by conditioning the joint normal law of factors and features."""
    n, m = W.shape
    top = torch.cat([torch.eye(m), W.T], 1)
    joint = torch.cat([top, torch.cat([W, W @ W.T + noise.diag()], 1)])
    centre = torch.cat([torch.zeros(m), mean])
    return gaussian_condition(centre, joint, range(m, m + n), x)


MEANS = {
    "W'(WW' + S)^-1": lambda W, S: W.T @ torch.linalg.inv(W @ W.T + S),
    "Woodbury": lambda W, S: _woodbury(W, S) @ W.T @ torch.linalg.inv(S),
    "pseudo-inverse": lambda W, S: torch.linalg.pinv(W),
    "noise not inverted": lambda W, S: _woodbury(W, S) @ W.T @ S,
}


def _woodbury(W: Tensor, S: Tensor) -> Tensor:
    return torch.linalg.inv(torch.eye(W.shape[1]) + W.T @ torch.linalg.inv(S) @ W)


@claim(
    by="identity",
    sources=("A-343", "B-475", "C-296", "D-412"),
    budget=0.4,
    short=r"\mathbb E[z | x] = W^\top A^{-1} (x - \mu) = (I + W^\top \Sigma^{-1} W)^{-1} W^\top"
    r" \Sigma^{-1} (x - \mu)",
)
def factor_posterior_mean(
    formula: Literal["Woodbury", "pseudo-inverse", "noise not inverted"] = "Woodbury",
    centred: bool = True,
):
    r"""The posterior mean of the factors.

    $\mathbb E[z \mid x] = W^\top (W W^\top + \Sigma)^{-1} (x - \mu) = (I + W^\top \Sigma^{-1}
    W)^{-1} W^\top \Sigma^{-1} (x - \mu)$; the second form inverts a matrix of $m \times m$ only.

    *Checked* for both forms and `FactorAnalysis` against the conditional law of the joint normal
    law, with fewer, as many and more factors than features, and with a feature missing; with one
    and two factors also against quadrature of $\int z\, p(z \mid x)\, dz$.

    Knobs:
        formula: What is called the second form.
        centred: Whether the mean is subtracted.
    """
    for n, m in ((7, 3), (3, 3), (2, 4), (3, 1), (2, 2)):
        W, noise, mean = tame(n, m)
        x = nearby(mean, 6)
        shift = x - mean if centred else x
        exact, _ = conditioned(x, W, noise, mean)
        at = {"n": n, "m": m}
        if n + m < 5:
            wanted = by_quadrature(x, W, noise, mean)[1]
            yield equals("posterior mean by quadrature", exact, wanted, tol=1e-8, **at)
        for name in ("W'(WW' + S)^-1", formula):
            found = shift @ MEANS[name](W, noise.diag()).T
            which = "first" if name != formula else "second"
            yield equals(f"posterior mean by the {which} form", found, exact, **at)
        found = planted(W, noise, mean).transform(x)
        yield equals("posterior mean of the model", found, exact, **at)
        x[:, 0] = math.nan
        exact, spread = conditioned(x[:, 1:], W[1:], noise[1:], mean[1:])
        found = planted(W, noise, mean).posterior(x)
        yield equals("posterior mean without the first feature", found.mean, exact, **at)
        yield equals("posterior covariance without it", found.covariance, spread, **at)


factor_posterior_mean.foil("no shrinkage by the noise", formula="pseudo-inverse")
factor_posterior_mean.foil("the noise not inverted", formula="noise not inverted")
factor_posterior_mean.foil("the mean not subtracted", centred=False)

SPREADS = {
    "inverted noise": lambda W, S: _woodbury(W, S),
    "noise not inverted": lambda W, S: torch.linalg.inv(torch.eye(W.shape[1]) + W.T @ S @ W),
    "no noise": lambda W, S: torch.linalg.inv(torch.eye(W.shape[1]) + W.T @ W),
}


@claim(
    by="identity",
    sources=("A-344", "B-476", "D-413"),
    budget=0.4,
    short=r"\mathrm{Cov}[z | x] = I - W^\top (W W^\top + \Sigma)^{-1} W = (I + W^\top \Sigma^{-1}"
    r" W)^{-1}",
)
def factor_posterior_covariance(
    formula: Literal["inverted noise", "noise not inverted", "no noise"] = "inverted noise",
):
    r"""The posterior covariance of the factors.

    $\mathrm{Cov}[z \mid x] = I - W^\top (W W^\top + \Sigma)^{-1} W = (I + W^\top \Sigma^{-1}
    W)^{-1}$, the same for every $x$, with eigenvalues in $(0, 1]$: between $(1 + s_1^2 /
    \sigma_{\min}^2)^{-1}$ and $(1 + s_m^2 / \sigma_{\max}^2)^{-1}$, with the largest and the least
    singular value of $W$, so that 1 occurs iff a direction of the factors has no loading.

    *Checked* for both forms and `FactorAnalysis` against the Schur complement of the joint
    covariance, with fewer, as many and more factors than features; with one and two factors also
    against quadrature at three different $x$; where one of three rows lacks a feature, each has its
    own.

    Knobs:
        formula: What is called the second form.
    """
    for n, m in ((7, 3), (3, 3), (2, 4), (3, 1), (2, 2)):
        W, noise, mean = tame(n, m)
        x = nearby(mean, 3)
        _, exact = conditioned(x, W, noise, mean)
        at = {"n": n, "m": m}
        model = planted(W, noise, mean)
        gain = W.T @ torch.linalg.solve(W @ W.T + noise.diag(), W)
        yield equals("covariance by the first form", torch.eye(m) - gain, exact, **at)
        second = SPREADS[formula](W, noise.diag())
        yield equals("covariance by the second form", second, exact, **at)
        found = model.posterior(x).covariance
        yield equals("covariance of the model", found, exact, **at)
        values = torch.linalg.eigvalsh(found)
        s = torch.linalg.eigvalsh(W.T @ W).clamp(min=0)
        yield at_least("eigenvalues", values, 1 / (1 + s[-1] / noise.min()), **at)
        yield at_most("eigenvalues", values, 1 / (1 + s[0] / noise.max()), **at)
        if m > n:
            yield equals("largest eigenvalue, of a direction without loading", values[-1], 1, **at)
        if n + m < 5:
            spreads = by_quadrature(x, W, noise, mean)[2]
            yield equals("covariance by quadrature at three x", spreads, exact, tol=1e-8, **at)
        x[0, 0] = math.nan
        _, less = conditioned(x[:, 1:], W[1:], noise[1:], mean[1:])
        found = model.posterior(x).covariance
        wanted = torch.stack([less, exact, exact])
        yield equals("covariance where one row lacks its first feature", found, wanted, **at)


factor_posterior_covariance.foil("the noise not inverted", formula="noise not inverted")
factor_posterior_covariance.foil("the noise left out", formula="no noise")
