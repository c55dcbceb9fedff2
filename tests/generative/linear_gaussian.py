"""The linear Gaussian model $x = W z + b + \\sigma \\eta$, all of it in closed form."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from vademecum.generative import VAE


class Model(NamedTuple):
    """Loadings (d, m), a mean (d,) and a standard deviation, in double precision."""

    W: Tensor
    b: Tensor
    sigma: float

    def log_prob(self, x: Tensor) -> Tensor:
        cov = self.W @ self.W.T + self.sigma**2 * torch.eye(len(self.b)).double()
        return MultivariateNormal(self.b, cov).log_prob(x)

    def posterior(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The means (n, m), and the covariance (m, m)."""
        precision = torch.eye(self.W.shape[1]).double() + self.W.T @ self.W / self.sigma**2
        cov = torch.linalg.inv(precision)
        return (x - self.b) @ self.W @ cov / self.sigma**2, cov

    def elbo(self, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """The bound for a diagonal Gaussian, term by term."""
        rest = (x - self.b - mean @ self.W.T).square().sum(1)
        rest = rest + (variance * self.W.square().sum(0)).sum(1)
        d = len(self.b)
        fit = -rest / (2 * self.sigma**2) - d / 2 * math.log(2 * math.pi * self.sigma**2)
        own = Normal(mean, variance.sqrt())
        return fit - kl_divergence(own, Normal(torch.zeros_like(mean), 1.0)).sum(1)

    def vae(self, *, mean: Tensor | None = None, log_variance: Tensor | None = None) -> VAE:
        """This model, with its posterior's means and diagonal as encoder, or others."""
        W, b, sigma = self
        d, m = W.shape
        encoder, decoder = nn.Linear(d, 2 * m).double(), nn.Linear(m, d).double()
        cov = self.posterior(torch.zeros(1, d).double())[1]
        A = cov @ W.T / sigma**2 if mean is None else mean
        spread = cov.diagonal().log() if log_variance is None else log_variance
        with torch.no_grad():
            decoder.weight.copy_(W)
            decoder.bias.copy_(b)
            encoder.weight.copy_(torch.cat([A, torch.zeros(m, d).double()]))
            encoder.bias.copy_(torch.cat([-A @ b, spread]))
        return VAE(encoder, decoder, noise=sigma)


def drawn(d: int, m: int, *, orthogonal: bool = False, sigma: float = 0.7) -> Model:
    """A random model; with orthogonal columns its posterior has independent coordinates."""
    W = torch.randn(d, m).double()
    if orthogonal:
        W = torch.linalg.qr(W).Q * torch.linspace(2.0, 0.6, m).double()
    return Model(W, torch.randn(d).double(), sigma)


def hermite(points: int = 120) -> tuple[Tensor, Tensor]:
    """Nodes and logarithms of weights for the mean of a function of a standard normal number."""
    import numpy as np

    nodes, weights = np.polynomial.hermite_e.hermegauss(points)
    return torch.tensor(nodes), torch.tensor(weights).log() - math.log(2 * math.pi) / 2
