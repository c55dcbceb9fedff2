r"""Linear Gaussian models in closed form, and bounds of a `VAE` without chance.

The reconstruction of a `VAE` is estimated from one draw of the code. An encoder without variance
tells the decoder's law which code to take, so that Gauss-Hermite quadrature over codes gives the
bound itself, from what the part computes.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from vademecum.generative import VAE

__all__ = [
    "Linear", "Told", "exact_elbo", "exact_reconstruction", "hermite", "linear_vae",
    "log_likelihood", "log_normal", "posterior", "random_encoder", "random_model",
    "reconstruction_at", "trapezia",
]  # fmt: skip

_NOTHING = -1e4  # a log-variance whose exponential is zero


class Linear(NamedTuple):
    r"""The model $x = W z + b + \sigma \eta$."""

    W: Tensor
    b: Tensor
    sigma: float


class Told(nn.Module):
    """An encoder that returns the means and log-variances which a function gives."""

    def __init__(self, told: Callable[[Tensor], tuple[Tensor, Tensor]]):
        super().__init__()
        self.told = told

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What it was told."""
        return self.told(x)


def hermite(points: int, m: int) -> tuple[Tensor, Tensor]:
    """Nodes (points^m, m) and weights for the mean over m standard normal numbers."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(points)
    axes, w = torch.tensor(nodes), torch.tensor(weights / weights.sum())
    grid = torch.cartesian_prod(*[axes] * m).reshape(-1, m)
    return grid, torch.cartesian_prod(*[w] * m).reshape(-1, m).prod(1)


def trapezia(width: float = 12.0, step: float = 0.05) -> tuple[Tensor, Tensor]:
    """Nodes (n, 1) and weights for the mean over one standard normal number.

    The rule of trapezia is exact to rounding for functions that are analytic within some steps of
    the line, as networks of hyperbolic tangents with weights of size one are.
    """
    u = torch.arange(-width, width + step, step)
    return u[:, None], (-(u**2) / 2).exp() * (step / math.sqrt(2 * math.pi))


def reconstruction_at(vae: VAE, x: Tensor, z: Tensor) -> Tensor:
    """The log-likelihood of each example at a code, by the part's own law."""
    told = Told(lambda _: (z, torch.full_like(z, _NOTHING)))
    other = VAE(told, vae.decoder, likelihood=vae.likelihood)  # pyright: ignore
    other.law = vae.law
    return other.elbo(x).reconstruction


def exact_reconstruction(
    vae: VAE,
    x: Tensor,
    rule: tuple[Tensor, Tensor] | None = None,
    *,
    root: Tensor | None = None,
) -> Tensor:
    r"""$\mathbb E_q[\log p(x \mid z)]$ of each example by a rule; exact for quadratic functions.

    With a `root` (m, m) codes have the covariance of the root in place of the encoder's.
    """
    mean, log_variance = vae.encode(x)
    nodes, weights = hermite(3, mean.shape[1]) if rule is None else rule
    moved = nodes[:, None]
    step = moved * (log_variance / 2).exp() if root is None else moved @ root.T
    rows = x.expand(len(nodes), *x.shape).flatten(0, 1)
    found = reconstruction_at(vae, rows, (mean + step).flatten(0, 1))
    return weights @ found.reshape(len(nodes), len(x))


def exact_elbo(
    vae: VAE, x: Tensor, rule: tuple[Tensor, Tensor] | None = None, *, beta: float = 1.0
) -> Tensor:
    """The evidence lower bound of each example, or that with a weight of the divergence."""
    return exact_reconstruction(vae, x, rule) - beta * vae.elbo(x).kl


def linear_vae(model: Linear, A: Tensor, a: Tensor, log_variance: Tensor) -> VAE:
    """The model as a `VAE`, whose codes have the means A x + a and fixed variances."""
    W, b, sigma = model
    d, m = W.shape
    encoder, decoder = nn.Linear(d, 2 * m), nn.Linear(m, d)
    with torch.no_grad():
        decoder.weight.copy_(W)
        decoder.bias.copy_(b)
        encoder.weight.copy_(torch.cat([A, torch.zeros(m, d)]))
        encoder.bias.copy_(torch.cat([a, log_variance]))
    return VAE(encoder, decoder, noise=sigma)


def posterior(model: Linear) -> tuple[Tensor, Tensor, Tensor]:
    r"""A and a of the posterior mean A x + a, and the posterior precision $\Lambda$."""
    W, b, sigma = model
    precision = torch.eye(W.shape[1]) + W.T @ W / sigma**2
    A = torch.linalg.solve(precision, W.T) / sigma**2
    return A, -A @ b, precision


def log_likelihood(model: Linear, x: Tensor) -> Tensor:
    """The log-density of each example, by SciPy."""
    W, b, sigma = model
    cov = W @ W.T + sigma**2 * torch.eye(len(b))
    law: Any = stats.multivariate_normal(b.numpy(), cov.numpy())  # pyright: ignore
    return torch.as_tensor(np.atleast_1d(law.logpdf(x.numpy())))


def log_normal(x: Tensor, mean: Tensor | float, variance: Tensor | float) -> Tensor:
    """The logarithms of normal densities, entry by entry."""
    variance = torch.as_tensor(variance)
    return -((x - mean).square() / variance + (2 * math.pi * variance).log()) / 2


def random_model(d: int, m: int) -> Linear:
    """A model with loadings of size one."""
    return Linear(torch.randn(d, m), torch.randn(d), float(0.5 + torch.rand(())))


def random_encoder(model: Linear) -> VAE:
    """The model with an encoder that knows nothing of its posterior."""
    d, m = model.W.shape
    return linear_vae(model, torch.randn(m, d) / d, torch.randn(m) / 2, torch.randn(m))
