"""Diffusions of three steps whose paths can be enumerated, or are normal."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.foundations import gaussian_condition, gaussian_kl
from vademecum.generative import NoiseSchedule

__all__ = ["BETAS", "Chain", "Paths", "over_paths"]

BETAS = (0.2, 0.5, 0.4)
"""How much noise each of the three steps adds."""
"""The variances of the noise that the steps add."""


def laws(*shape: int) -> Tensor:
    """Random laws along the last axis, none with a tiny entry."""
    return (1.5 * torch.randn(*shape)).softmax(-1)


class Paths(NamedTuple):
    """Diffusions of three states in three steps, many at once; axes: model, x0, x1, x2, x3."""

    data: Tensor
    """The law of x0."""
    forward: tuple[Tensor, ...]
    """Of x1 given x0, of x2 given x1, of x3 given x2."""
    prior: Tensor
    """The model's law of x3."""
    back: tuple[Tensor, ...]
    """The model's laws of x0 given x1, of x1 given x2, of x2 given x3: the given one first."""

    @classmethod
    def drawn(cls, models: int) -> "Paths":
        """Random ones."""
        three = [tuple(laws(models, 3, 3) for _ in range(3)) for _ in range(2)]
        return cls(laws(models, 3), three[0], laws(models, 3), three[1])

    @property
    def q(self) -> Tensor:
        """Of x1, x2, x3 given x0."""
        return torch.einsum("nab,nbc,ncd->nabcd", *self.forward)

    @property
    def p(self) -> Tensor:
        """The model's law of all four."""
        return torch.einsum("nba,ncb,ndc,nd->nabcd", *self.back, self.prior)

    def reversed_exactly(self) -> "Paths":
        """The model that runs the diffusion of the data backwards."""
        marginals = [self.data]
        for kernel in self.forward:
            marginals.append(torch.einsum("na,nab->nb", marginals[-1], kernel))
        back = tuple(
            (kernel * before[:, :, None]).mT / after[:, :, None]
            for kernel, before, after in zip(self.forward, marginals, marginals[1:], strict=False)
        )
        return self._replace(prior=marginals[-1], back=back)


def over_paths(values: Tensor) -> Tensor:
    """The sum over x1, x2, x3."""
    return values.sum((2, 3, 4))


class Chain(NamedTuple):
    """A normal diffusion of three steps in 1-D, and a model with linear means that is wrong."""

    schedule: NoiseSchedule
    slope: float
    shift: float
    variances: tuple[float, ...]

    @classmethod
    def drawn(cls) -> "Chain":
        """A random one."""
        slope, shift = (0.2 + 0.5 * torch.rand(2)).tolist()
        return cls(NoiseSchedule(list(BETAS)), slope, shift, (0.3, 0.15, 0.6))

    def noise(self, x: Tensor, t: Tensor) -> Tensor:
        """What the model predicts."""
        return self.slope * x + self.shift

    def mean(self, t: int) -> tuple[float, float]:
        """Factor and constant of the model's mean at step t, from what noise says of the data."""
        left = [math.prod(1 - b for b in BETAS[:i]) for i in (t - 1, t)]
        beta, noise = BETAS[t - 1], math.sqrt(1 - left[1])
        clean = math.sqrt(left[0]) * beta / (1 - left[1]) / math.sqrt(left[1])
        factor = math.sqrt(1 - beta) * (1 - left[0]) / (1 - left[1])
        return factor + clean * (1 - noise * self.slope), -clean * noise * self.shift

    def joint(self) -> tuple[Tensor, Tensor]:
        """Mean and covariance of x0, x1, x2, x3 under the model: each is linear in the next."""
        mean, cov = torch.zeros(4), torch.zeros(4, 4)
        cov[3, 3] = 1.0
        for t in (3, 2, 1):
            factor, constant = self.mean(t)
            mean[t - 1] = factor * mean[t] + constant
            cov[t - 1, t:] = cov[t:, t - 1] = factor * cov[t, t:]
            cov[t - 1, t - 1] = factor**2 * cov[t, t] + self.variances[t - 1]
        return mean, cov

    def given(self, x0: float) -> tuple[Tensor, Tensor]:
        """Mean and covariance of x1, x2, x3 given x0 under the diffusion."""
        left = [math.prod(1 - b for b in BETAS[:i]) for i in range(4)]
        mean, cov = torch.tensor([math.sqrt(a) * x0 for a in left[1:]]), torch.zeros(3, 3)
        for s in (1, 2, 3):
            for t in range(s, 4):
                entry = math.sqrt(left[t] / left[s]) * (1 - left[s])
                cov[s - 1, t - 1] = cov[t - 1, s - 1] = entry
        return mean, cov

    def evidence(self, x0: float) -> tuple[float, float, float]:
        """Log-density of x0 under the model, and divergences from the diffusion to it and back."""
        mean, cov = self.joint()
        log_p = -((x0 - mean[0]) ** 2) / (2 * cov[0, 0]) - torch.log(2 * math.pi * cov[0, 0]) / 2
        path, truth = gaussian_condition(mean, cov, [0], torch.tensor([x0])), self.given(x0)
        ways = gaussian_kl(*truth, *path), gaussian_kl(*path, *truth)
        return float(log_p), float(ways[0]), float(ways[1])
