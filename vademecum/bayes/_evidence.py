r"""The evidence of a Gaussian approximation, and the prior of largest evidence.

For the prior $\mathcal N(0, \sigma^2 I)$, weights of squared norm $R$ and curvatures $\lambda_j$

$$\log p(S) = \log p(S \mid \hat\theta) - \frac R{2 \sigma^2} - \frac12 \sum_j \log(1 + \sigma^2
\lambda_j).$$

With $\tau = \sigma^{-2}$ its derivative in $\tau$ vanishes where $R = \sum_j \lambda_j / (\tau
(\lambda_j + \tau))$; the right side falls from infinity to zero, so that there is one maximum.
"""

import math

import torch
from torch import Tensor

__all__ = ["best_prior", "log_evidence"]


def log_evidence(log_likelihood: float, size: float, values: Tensor, prior: float) -> float:
    """The logarithm of the evidence, for weights of squared norm `size`."""
    bends = float(torch.log1p(prior**2 * values).sum())
    return log_likelihood - size / (2 * prior**2) - bends / 2


def best_prior(size: float, values: Tensor) -> float:
    """The standard deviation of the prior that maximises the evidence, by bisection.

    Raises:
        ValueError: If the weights or all curvatures are zero, so that there is no maximum.
    """
    top = float(values.max())
    if not (size > 0 and top > 0):
        raise ValueError(
            "prior must be a number where weights or curvatures are all zero: the evidence has no"
            " maximum"
        )
    # the sum is between top / (tau (top + tau)) and sum / tau^2
    low = math.log(min(1 / size, top) / 4)
    high = math.log(math.sqrt(float(values.sum()) / size)) + 1
    low = min(low, high - 1)
    for _ in range(200):
        middle = (low + high) / 2
        tau = math.exp(middle)
        if float((values / (values + tau)).sum()) / tau > size:
            low = middle
        else:
            high = middle
        if high - low < 1e-14 * max(1, abs(middle)):
            break
    return math.exp(-(low + high) / 4)
