r"""Singular values of products of many random square matrices.

For $L$ independent Gaussian $n \times n$ matrices with entries of variance $1 / n$, $n \to \infty$,
the squared singular values $x$ of the product follow the law of Fuss and Catalan,

$$x = \frac{\sin^{L+1} ((L + 1) \varphi)}{\sin \varphi\, \sin^L (L \varphi)}, \qquad
\rho(x) = \frac{\sin^2 \varphi\, \sin^{L-1} (L \varphi)}{\pi \sin^L ((L + 1) \varphi)}, \qquad
0 < \varphi < \frac{\pi}{L + 1},$$

with mean 1, variance $L$ and the largest $x = (L + 1)^{L + 1} / L^L$. Orthogonal matrices leave all
at 1. With a diagonal of slopes $\phi'$ after each matrix the variance over the squared mean is
$L (\mu_2 / \mu_1^2 - 1 - s)$, $\mu_k = \mathbb{E} \phi'^{2 k}$, with $s = -1$ for Gaussian matrices
and 0 for orthogonal ones (Pennington, Schoenholz and Ganguli, Resurrecting the sigmoid in deep
learning through dynamical isometry, NeurIPS, 2017).
"""

import math

import torch
from torch import Tensor

__all__ = ["gaussian_quantiles", "spreads"]

_GRID = 4001


def gaussian_quantiles(layers: int, shares: Tensor) -> Tensor:
    """The squared singular values below which shares of them lie, for a product of Gaussians."""
    # phi runs down from its end, where x = 0; powers crowd the points where x changes fastest
    t = torch.linspace(0, 1, _GRID, dtype=torch.float64)
    phi = math.pi / (layers + 1) * (1 - t.square()).clamp(1e-9, 1 - 1e-12)
    top, low = torch.sin((layers + 1) * phi), torch.sin(layers * phi)
    log_x = (layers + 1) * top.log() - phi.sin().log() - layers * low.log()
    log_density = 2 * phi.sin().log() + (layers - 1) * low.log() - layers * top.log()
    mass = torch.exp(log_density + log_x) / math.pi  # per unit of log x
    steps = (mass[1:] + mass[:-1]) / 2 * log_x.diff()
    below = torch.cat([torch.zeros(1, dtype=torch.float64), steps.cumsum(0)])
    below = below / below[-1]
    place = torch.searchsorted(below, shares.double().clamp(0, 1)).clamp(1, _GRID - 1)
    width = (below[place] - below[place - 1]).clamp(min=1e-300)
    part = (shares.double() - below[place - 1]) / width
    return torch.exp(log_x[place - 1] + part.clamp(0, 1) * (log_x[place] - log_x[place - 1]))


def spreads(layers: int, slopes: int, ratio: float) -> tuple[float, float]:
    """The variance over the squared mean, with Gaussian and with orthogonal matrices.

    Args:
        layers: How many matrices there are.
        slopes: How many diagonals of slopes.
        ratio: The fourth moment of a slope over the square of the second.
    """
    return layers + slopes * (ratio - 1), slopes * (ratio - 1)
