r"""The edge of chaos: variances of weights and biases at which signals and gradients both last.

At a fixed point $q$ of the variance $\chi = \sigma_w^2 \mathbb{E} \phi'(u)^2 = 1$ asks for

$$\sigma_w^2 = \frac{1}{\mathbb{E} \phi'(u)^2}, \qquad
\sigma_b^2 = q - \sigma_w^2\, \mathbb{E} \phi(u)^2, \qquad u \sim \mathcal{N}(0, q),$$

so that $q$ runs along the line, wherever $\sigma_b^2 \ge 0$. For ReLU the line is one point, $(2,
0)$. As exact as `vademecum.expectations`; tests lead the points back through `mean_field`.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vademecum.arguments import floats
from vademecum.expectations import GaussianExpectations
from vademecum.results import one_line

__all__ = ["CriticalLine", "critical_line"]


class CriticalLine(NamedTuple):
    """Points on the edge of chaos.

    Example:
        >>> critical_line(torch.erf, torch.tensor([0.0, 1.0])).weight_variance  # pi sqrt(1+4q) / 4
        tensor([0.7854, 1.7562])
    """

    variance: Float[Tensor, " points"]
    """The fixed point of the pre-activations' variance."""
    weight_variance: Float[Tensor, " points"]
    """The variance of a weight, times the number of inputs."""
    bias_variance: Float[Tensor, " points"]
    """The variance of a bias."""
    attracting: Bool[Tensor, " points"]
    """Whether variances nearby approach the fixed point, or at least stay."""

    __repr__ = one_line


def critical_line(
    activation: Any, variance: Float[Tensor, " points"] | None = None
) -> CriticalLine:
    """Where an activation keeps signals and gradients: chi = 1.

    Args:
        activation: The activation: any function of tensors, entry by entry, or a module.
        variance: The variances of pre-activations to look at; by default 41 between 0.0001 and 100,
            evenly in their logarithm. Those that would need a negative variance of biases are left
            out.

    Returns:
        A `CriticalLine`, as long as there are such variances.

    References:
        Schoenholz, Gilmer, Ganguli and Sohl-Dickstein, Deep information propagation, ICLR, 2017.
        Hayou, Doucet and Rousseau, On the impact of the activation function on deep neural networks
        training, ICML, 2019.

    Example:
        >>> line = critical_line(torch.relu)
        >>> line.weight_variance.unique(), line.bias_variance.unique()
        (tensor([2.], dtype=torch.float64), tensor([0.], dtype=torch.float64))
    """
    if variance is None:
        variance = torch.logspace(-4, 2, 41, dtype=torch.float64)
    q = floats("variance", variance, ndim=1)
    integrals = GaussianExpectations(activation)
    slope, square = integrals.slope(q), integrals.square(q)
    weights = 1 / slope
    biases = q - weights * square
    biases = torch.where(biases.abs() <= 8 * torch.finfo(q.dtype).eps * q, 0.0, biases)
    kept = (biases >= 0) & torch.isfinite(weights)
    q, weights, biases = q.detach()[kept], weights.detach()[kept], biases.detach()[kept]
    return CriticalLine(q, weights, biases, _attracting(integrals, q, weights))


def _attracting(integrals: GaussianExpectations, q: Tensor, weights: Tensor) -> Tensor:
    if not len(q):
        return q > 0
    at = q.clamp(min=1e-12).requires_grad_()
    (rate,) = torch.autograd.grad(integrals.square(at).sum(), at)
    return (weights * rate).abs() <= 1 + 1e-6
