"""Normal data under a diffusion: the exact predictor, and variances of chains in closed form."""

from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.generative import DDPM, NoiseSchedule

__all__ = ["Exact", "abrupt", "ending_variance", "random_betas", "steps_back"]


class Exact(nn.Module):
    """The expected noise in data N(0, v0), E[eps x_t] / E[x_t^2] times x_t, times a factor."""

    def __init__(self, betas: Tensor, v0: float, *, factor: float = 1.0):
        super().__init__()
        left = torch.cat([betas.new_ones(1), (1 - betas).cumprod(0)])
        self.slope = factor * (1 - left).sqrt() / (left * v0 + 1 - left)

    def forward(self, x: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
        """The noise."""
        return self.slope.to(x)[t].view(-1, *[1] * (x.ndim - 1)) * x


def steps_back(
    schedule: NoiseSchedule, network: nn.Module, variance: Literal["small", "large"] = "small"
) -> tuple[Tensor, Tensor]:
    """The factor and the variance of each step back, t = 1, ..., T, that a DDPM has in 1-D."""
    T = schedule.T
    model = DDPM(network, (1,), schedule=schedule, variance=variance)
    law = model.reverse(torch.ones(T, 1), torch.arange(1, T + 1))
    return law.mean[:, 0].detach(), law.variance.expand(T, 1)[:, 0].detach()


def ending_variance(
    gains: Tensor, spreads: Tensor, start: float = 1.0, *, last: bool = False
) -> float:
    """The variance at the end of a linear chain that begins with a variance.

    What step t adds is multiplied by the squared factors of all steps after it; the last adds
    nothing unless that is asked for.
    """
    after = torch.cat([gains.new_ones(1), gains.square().cumprod(0)])
    added = spreads if last else torch.cat([spreads.new_zeros(1), spreads[1:]])
    return float(after[-1] * start + (after[:-1] * added).sum())


def random_betas(T: int, most: float = 0.9) -> Tensor:
    """Betas between a hundredth of the largest and the largest, of all sizes."""
    return most * torch.exp(-4.6 * torch.rand(T))


def abrupt(T: int) -> Tensor:
    """Betas of 1e-4 but for one step in the middle, which takes nearly all that is there."""
    betas = torch.full((T,), 1e-4)
    betas[T // 2] = 0.9999
    return betas
