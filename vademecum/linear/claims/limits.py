"""Least squares seen otherwise: as a limit, and as a likelihood."""

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.distributions import Laplace, MultivariateNormal, Normal

from vademecum.claims import at_most, claim, equals
from vademecum.linear import RidgeRegression
from vademecum.linear.claims.least_squares import solution


@claim(
    by="identity",
    sources=("C-031",),
    budget=0.5,
    full={"sets": 100},
    short=r"X^+ = \lim_{\epsilon \downarrow 0} (X^\top X + \epsilon I)^{-1} X^\top",
)
def pseudo_inverse_limit(
    order: Literal["right", "wrong"] = "right",
    sigma: Callable[[Tensor], Tensor] = torch.min,
    sets: int = 3,
):
    r"""The pseudo-inverse as a ridge limit.

    For every matrix $X$, also when $X^\top X$ is singular,
    $X^+ = \lim_{\epsilon \downarrow 0} (X^\top X + \epsilon I)^{-1} X^\top$; the error in the
    spectral norm is exactly $\epsilon / (\sigma (\sigma^2 + \epsilon))$ with $\sigma$ the smallest
    non-zero singular value.

    *Proof.* On a singular vector, $\frac1\sigma - \frac\sigma{\sigma^2 + \epsilon} =
    \frac\epsilon{\sigma (\sigma^2 + \epsilon)}$, which falls in $\sigma$.

    Knobs:
        order: Whether $X^\top X$ stands in the inverse, or $X X^\top$.
        sigma: Which of the singular values counts.
        sets: How many designs of rank two are drawn.
    """
    for k in range(sets):
        s, n = ((4, 4), (5, 3), (3, 6))[k % 3]  # only square ones have a wrong order
        u, v = (torch.linalg.qr(torch.randn(size, 2)).Q for size in (s, n))
        values = torch.tensor([2.0, 1.0]) * (1 + k / 2)
        x = u * values @ v.T
        exact = v / values @ u.T
        found = solution(x, torch.eye(s)).T
        yield equals("pseudo-inverse from least squares", found, exact, s=s, n=n, set=k)
        for epsilon in (1e-2, 1e-3, 1e-4):
            unit = RidgeRegression(alphas=epsilon, fit_intercept=False)
            ridge = unit.fit(x, torch.eye(s)).coef_.T
            if order == "wrong" and s == n:
                ridge = torch.linalg.solve(x @ x.T + epsilon * torch.eye(s), x.T)
            gap, which = torch.linalg.matrix_norm(ridge - exact, 2), sigma(values)
            bound = epsilon / (which * (which**2 + epsilon))
            # Relative, since the error itself is as small as epsilon. Rounding is that of a system
            # with the condition max(values)**2 / epsilon, over the relative error epsilon / min**2.
            rounding = 2.3e-16 * float(values.max() * values.min()) ** 2 / epsilon**2
            at = {"tol": 1e-9 + rounding, "epsilon": epsilon, "set": k}
            yield equals("error over its formula", gap / bound, 1.0, **at)


pseudo_inverse_limit.foil(
    r"the factors in the wrong order, $(X X^\top + \epsilon I)^{-1} X^\top$, grow like "
    r"$1 / \epsilon$ unless the singular vectors agree",
    order="wrong",
)
pseudo_inverse_limit.foil("the smallest singular value counts, not the largest", sigma=torch.max)


@claim(
    by="identity",
    sources=("B-206", "C-035", "C-036"),
    budget=0.5,
    full={"weights": 2000},
    short=r"-\log p(y | X, w) = \tfrac1{2 \sigma^2} \|X w - y\|^2 + \tfrac s2 \log(2 \pi \sigma^2)",
)
def gaussian_likelihood(factor: float = 0.5, noise: Callable[..., Any] = Normal, weights: int = 20):
    r"""Least squares is Gaussian maximum likelihood.

    If $y_i = w^\top x_i + \epsilon_i$ with independent $\epsilon_i \sim \mathcal N(0, \sigma^2)$,
    then $-\log p(y \mid X, w) = \frac1{2 \sigma^2} \|X w - y\|^2 + \frac s2 \log(2 \pi \sigma^2)$,
    so maximum likelihood and least squares have the same minimisers; likewise
    $-\log \mathcal N(y; v, I) = \frac12 \|y - v\|^2 + \frac m2 \log 2 \pi$ for a vector output.

    *Proof.* The logarithm of the density, summed over independent observations.

    Knobs:
        factor: What $\|X w - y\|^2 / \sigma^2$ is multiplied by.
        noise: The law of the noise, of which a mean and a scale are set.
        weights: How many $w$ are drawn.
    """
    s, n = 12, 3
    x, y = torch.randn(s, n), torch.randn(s)
    for sigma in (0.3, 1.0, 2.0):
        w = torch.randn(weights, n)
        measured = -noise(w @ x.T, sigma).log_prob(y).sum(1)
        squares = (w @ x.T - y).square().sum(1)
        formula = factor / sigma**2 * squares
        offset = measured - formula
        scale = measured.abs().max()
        constant = s / 2 * math.log(2 * math.pi * sigma**2)
        rest = offset / scale
        name = "negative log-likelihood less the squares, over its largest"
        yield equals(name, rest, constant / scale, tol=1e-12, sigma=sigma)
        best = solution(x, y)
        top = -noise(x @ best, sigma).log_prob(y).sum()
        least = measured.min()
        name = "negative log-likelihood at the least-squares weights"
        yield at_most(name, top, least, sigma=sigma)
    for m in (1, 4):
        v, target = torch.randn(2, m)
        measured = -MultivariateNormal(v, torch.eye(m)).log_prob(target)
        formula = factor * (target - v).square().sum() + m / 2 * math.log(2 * math.pi)
        yield equals("negative log-likelihood of a vector", measured, formula, m=m)


gaussian_likelihood.foil(r"the factor $1 / \sigma^2$: the difference varies with $w$", factor=1.0)
gaussian_likelihood.foil("the squared loss does not fit Laplace noise", noise=Laplace)
