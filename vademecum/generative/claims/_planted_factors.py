"""Models with given factors, and examples whose covariance is known exactly."""

import math
import warnings
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from vademecum.generative import FactorAnalysis

__all__ = [
    "by_quadrature", "drawn", "fitted", "likelihood", "nearby", "planted", "tame",
    "with_covariance",
]  # fmt: skip


def planted(W: Tensor, noise: Tensor, mean: Tensor | None = None) -> FactorAnalysis:
    """The fitted model whose parameters these are."""
    d, k = W.shape
    model = FactorAnalysis(k)
    model.n_features_in_ = d
    model.mean_ = torch.zeros(d) if mean is None else mean
    model.components_, model.noise_variance_ = W.T, noise
    return model


def fitted(x: Tensor, k: int, **options: Any) -> FactorAnalysis:
    """Factor analysis of the examples; noise that falls to its least value gives no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FactorAnalysis(k, **options).fit(x)


def drawn(d: int, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random loadings, noise variances between 1/5 and 1, and a mean."""
    return torch.randn(d, k), 0.2 + 0.8 * torch.rand(d), torch.randn(d)


def with_covariance(S: Tensor) -> Tensor:
    """Examples with mean zero and exactly this covariance, by pairs along its eigenvectors."""
    values, vectors = np.linalg.eigh(S.numpy())
    half = torch.from_numpy(vectors * np.sqrt(len(values) * values)).T
    return torch.cat([half, -half])


def likelihood(S: Tensor, A: Tensor) -> Tensor:
    r"""The mean log-likelihood $-\frac12 (d \log 2 \pi + \log \det A + \mathrm{Tr}(S A^{-1}))$.

    An analytic function of A, for the complex step.
    """
    d = A.shape[-1]
    inverse = torch.linalg.inv(A)
    trace = torch.einsum("ij,...ji->...", S.to(A.dtype), inverse)
    return -(d * math.log(2 * math.pi) + torch.linalg.det(A).log() + trace) / 2


def tame(d: int, m: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random loadings of at most 2, noise variances between 1/5 and 1, and a mean."""
    W, noise, mean = drawn(d, m)
    return W.clamp(-2, 2), noise, mean


def nearby(mean: Tensor, count: int) -> Tensor:
    """Random rows, none further than 2 from the mean in a feature."""
    return mean + (4 * torch.rand(count, len(mean)) - 2)


def by_quadrature(
    x: Tensor, W: Tensor, noise: Tensor, mean: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    r"""The log-density of each row, and mean and covariance of its factors, by sums over a grid.

    From the definition: $p(x, z)$ is a product of univariate normal densities. The sum with steps h
    errs like $e^{-2 \pi^2 s^2 / h^2}$ for a law of width s. For the parameters of `tame` the
    precision of the factors is at most $1 + 4 \cdot 3 / 0.2 = 61$ for one and three features, 81
    for two and two, so it errs by less than $10^{-50}$ at h = 0.05, $10^{-10}$ at 0.1. Means of
    factors of `nearby` rows are at most 4, so that less than $10^{-11}$ lies beyond 9.
    """
    m, h = W.shape[1], 0.05 if W.shape[1] == 1 else 0.1
    line = torch.arange(-9, 9 + h / 2, h)
    z = torch.cartesian_prod(*[line] * m).view(-1, m)
    prior = stats.norm.logpdf(z.numpy()).sum(1)
    centres, deviations = (mean + z @ W.T).numpy(), noise.sqrt().numpy()
    rows = []
    for row in x.numpy():
        log = torch.from_numpy(stats.norm.logpdf(row, centres, deviations).sum(1) + prior)
        p = log.softmax(0)
        centre = p @ z
        spread = (p[:, None] * (z - centre)).T @ (z - centre)
        rows.append((log.logsumexp(0) + m * math.log(h), centre, spread))
    density, centre, spread = (torch.stack(part) for part in zip(*rows, strict=True))
    return density, centre, spread
