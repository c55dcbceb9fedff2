r"""SWAG: a normal law from the weights that training passes through.

Of weights $\theta_1, \dots, \theta_T$ along a trajectory, with running means $\bar\theta_t$, it
takes the mean $\bar\theta_T$, the variances $s^2$ of the entries, and the last K deviations $d_t =
\theta_t - \bar\theta_t$ as the columns of $D$:

$$\theta = \bar\theta_T + \tfrac1{\sqrt2}\, s \odot \epsilon + \frac1{\sqrt{2 (K - 1)}} D\, \eta,
\qquad \epsilon \sim \mathcal N(0, I_P),\ \eta \sim \mathcal N(0, I_K),$$

so that the covariance is $\frac12 (\operatorname{diag} s^2 + \frac1{K - 1} D D^\top)$. The
trajectory is gone through once; nothing but mean, variances and K deviations is kept. A network
with batch normalisation needs its statistics anew at each draw (`posterior_predictive`).

References:
    Maddox, Garipov, Izmailov, Vetrov and Wilson, A simple baseline for Bayesian uncertainty in deep
    learning, NeurIPS, 2019.
"""

import math
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import floats, whole
from vademecum.gradients import functional
from vademecum.randomness import source
from vademecum.results import one_line

__all__ = ["SWAG", "swag"]


class SWAG(NamedTuple):
    """A normal law over weights, with a covariance of low rank beside a diagonal one.

    Example:
        >>> found = swag(torch.tensor([[0.0], [2.0]]))
        >>> found.covariance()  # (1 + 0 + 1) / 2
        tensor([[1.]])
    """

    mean: Float[Tensor, " P"]
    """The mean of the weights."""
    variance: Float[Tensor, " P"]
    """The variances of their entries along the trajectory."""
    deviations: Float[Tensor, " K P"]
    """The last deviations from the running mean, one in each row."""
    steps: int
    """The number of weights that the trajectory had."""

    __repr__ = one_line

    def sample(
        self, draws: int, *, generator: torch.Generator | None = None
    ) -> Float[Tensor, " draws P"]:
        """Draw weights.

        Args:
            draws: How many.
            generator: Where random numbers come from; torch's global generator by default.
        """
        whole("draws", draws, low=1)
        K, P = self.deviations.shape
        size, like = (draws, P + K), self.mean
        drawn = torch.randn(size, dtype=like.dtype, **source(generator, like.device)).to(like)
        own, shared = drawn.split([P, K], 1)
        moved = (own * self.variance.sqrt()) / math.sqrt(2)
        return self.mean + moved + shared @ self.deviations / math.sqrt(2 * max(K - 1, 1))

    def covariance(self) -> Float[Tensor, " P P"]:
        """The covariance, written out."""
        low = self.deviations.T @ self.deviations / max(len(self.deviations) - 1, 1)
        return (torch.diag(self.variance) + low) / 2


def swag(trajectory: Iterable[Tensor | nn.Module], *, rank: int = 20) -> SWAG:
    """Fit a normal law to the weights along a trajectory of training.

    Args:
        trajectory: Vectors of parameters (`functional(model).theta`), or networks as they are when
            their turn comes, such as a generator that trains for an epoch and yields the model; or
            a matrix with a vector in each row.
        rank: How many of the last deviations to keep.

    Raises:
        ValueError: If there are fewer than two weights, or they differ in size or are not finite.

    Example:
        >>> found = swag(torch.tensor([[1.0, 0.0], [3.0, 0.0], [5.0, 3.0]]), rank=2)
        >>> found.mean, found.variance  # of 1, 3, 5 and of 0, 0, 3
        (tensor([3., 1.]), tensor([2.6667, 2.0000]))
        >>> found.deviations  # (3, 0) - (2, 0) and (5, 3) - (3, 1)
        tensor([[1., 0.],
                [2., 2.]])
    """
    whole("rank", rank, low=1)
    kept: deque[Tensor] = deque(maxlen=rank)
    mean = squares = None
    steps = 0
    for item in trajectory:
        theta = functional(item).theta if isinstance(item, nn.Module) else item
        floats("trajectory", theta, ndim=1)
        if mean is None or squares is None:
            mean, squares = theta.detach().clone(), torch.zeros_like(theta)
        if theta.shape != mean.shape:
            raise ValueError(f"trajectory must be of {len(mean)} parameters, got {len(theta)}")
        steps += 1
        before = theta.detach() - mean
        mean = mean + before / steps
        after = theta.detach() - mean
        squares += before * after
        kept.append(after)
    if mean is None or squares is None or steps < 2:
        raise ValueError(f"trajectory must have two weights or more, got {steps}")
    return SWAG(mean, squares / steps, torch.stack(list(kept)), steps)
