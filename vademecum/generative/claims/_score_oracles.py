"""Densities on lines and planes with their scores, and smooth fields, that share no code with ours.

Densities are written out for complex numbers, so that the complex step gives exact derivatives.
"""

import math

import numpy as np
import torch
from numpy.polynomial.hermite_e import hermegauss
from torch import Tensor

from vademecum.claims import complex_step

__all__ = ["Field", "density", "grid_of", "hermite", "mixture", "score_of"]


def mixture(d: int, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, means and variances of a random mixture of round components, means in [-2, 2]."""
    weights = torch.rand(k) + 0.2
    return weights / weights.sum(), 4 * torch.rand(k, d) - 2, 0.6 + torch.rand(k)


def density(x: Tensor, weights: Tensor, means: Tensor, variances: Tensor) -> Tensor:
    """A mixture of round normal laws at points (n, d), also complex ones."""
    d = x.shape[1]
    away = x[:, None] - means
    spread = (2 * math.pi * variances) ** (d / 2)
    return (weights / spread * (-(away * away).sum(2) / (2 * variances)).exp()).sum(1)


def score_of(x: Tensor, weights: Tensor, means: Tensor, variances: Tensor) -> Tensor:
    """The gradient of its logarithm, one coordinate after the other, by the complex step."""
    units = torch.eye(x.shape[1])
    return torch.stack(
        [complex_step(lambda z: density(z, weights, means, variances).log(), x, e) for e in units],
        1,
    )


def grid_of(d: int, reach: float, every: float) -> tuple[Tensor, float]:
    """Points of an even grid in a cube, and the volume for each.

    For functions that vanish at its faces the sum is the integral up to what oscillates faster than
    the grid: for a normal factor of standard deviation s less than exp(-2 pi^2 s^2 / every^2).
    """
    line = torch.arange(-reach, reach + every / 2, every)
    return torch.cartesian_prod(*[line] * d).reshape(-1, d), every**d


def hermite(n: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights for means over a standard normal variable."""
    nodes, weights = hermegauss(n)
    return torch.tensor(nodes), torch.tensor(weights / np.sqrt(2 * np.pi))


class Field:
    """A random smooth field of d numbers in d variables, a sum of sines and a linear part."""

    def __init__(self, d: int, terms: int = 3):
        self.frequency, self.phase = 4 * torch.rand(terms, d) - 2, 6 * torch.rand(terms)
        self.size, self.linear = torch.randn(d, terms), torch.randn(d, d)

    def __call__(self, x: Tensor, t: Tensor | None = None) -> Tensor:
        """The vectors at points (n, d)."""
        return (x @ self.frequency.T + self.phase).sin() @ self.size.T + x @ self.linear.T

    def divergence(self, x: Tensor) -> Tensor:
        """The sum of the derivatives of each entry in its own variable, by its formula."""
        waves = (x @ self.frequency.T + self.phase).cos()
        return waves @ (self.size.T * self.frequency).sum(1) + self.linear.trace()
