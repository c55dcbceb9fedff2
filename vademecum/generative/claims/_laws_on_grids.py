r"""Densities as laws on a fine grid, and the Gaussian that comes nearest to one.

The trapezoidal rule with a step $h$ integrates a Gaussian of deviation $\sigma$ up to a relative
error of $2 e^{-2 \pi^2 \sigma^2 / h^2}$: for $h \le \sigma / 2$ below $10^{-33}$. So sums over the
grid are integrals, as long as the laws end within it.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["best_gaussian", "gaussian", "gaussian_mixture", "minimise"]

Divergence = Callable[[Tensor, Tensor], Tensor]


def gaussian(x: Tensor, mean: Tensor | float, variance: Tensor | float) -> Tensor:
    """The law of a Gaussian on a grid, which sums to one."""
    return (-((x - mean) ** 2) / (2 * variance)).softmax(0)


def gaussian_mixture(x: Tensor, weights: Tensor, means: Tensor, variances: Tensor) -> Tensor:
    """The law of a mixture on a grid."""
    logs = -((x[:, None] - means) ** 2) / (2 * variances) + (weights / variances.sqrt()).log()
    return logs.logsumexp(1).softmax(0)


def minimise(loss: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """A local minimum, down from a point by Newton's method, until gradients are below 1e-10.

    Second derivatives are differences of gradients; errors in them cost a step more, and move no
    minimum. Along directions of negative curvature it goes down, too; steps are halved until they
    descend.
    """
    theta, value, slope = start, *_with_slope(loss, start)
    for _ in range(60):
        if not slope.abs().max() >= 1e-10:  # or where there is none
            break
        nearby = (theta + 1e-5 * sign * unit for unit in torch.eye(len(theta)) for sign in (1, -1))
        slopes = torch.stack([_with_slope(loss, point)[1] for point in nearby])
        hessian = (slopes[::2] - slopes[1::2]) / 2e-5
        spectrum, axes = torch.linalg.eigh((hessian + hessian.T) / 2)
        step = axes @ ((axes.T @ slope) / spectrum.abs().clamp(min=1e-3))
        step = step / step.abs().max().clamp(min=1)
        while not (there := loss(theta - step)) <= value and step.abs().max() > 1e-13:
            step = step / 2
        if there > value:  # rounding is all that is left
            break
        theta = theta - step
        value, slope = _with_slope(loss, theta)
    return theta


def _with_slope(loss: Callable[[Tensor], Tensor], theta: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        theta = theta.clone().requires_grad_()
        value = loss(theta)
        (slope,) = torch.autograd.grad(value, theta)
    return value.detach(), slope


def best_gaussian(
    divergence: Divergence, p: Tensor, x: Tensor, mean: float, variance: float
) -> tuple[float, float, float]:
    """The mean and variance at which the divergence of p and a Gaussian is least, and its value.

    A local minimum, down from the mean and variance given.
    """

    def loss(theta: Tensor) -> Tensor:
        return divergence(p, gaussian(x, theta[0], theta[1].exp()))

    found = minimise(loss, torch.tensor([mean, math.log(variance)]))
    return float(found[0]), float(found[1].exp()), float(loss(found))
