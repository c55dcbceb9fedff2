"""Calls of what draws noise in a diffusion."""

import torch
from torch import Tensor

from vademecum import generative

SCHEDULE = generative.NoiseSchedule([0.2, 0.4, 0.6])
X = torch.linspace(-1, 1, 12).reshape(6, 2)


def halved(x: Tensor, t: Tensor) -> Tensor:
    return x / 2


class Half(torch.nn.Module):
    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return x / 2


MODEL = generative.DDPM(Half(), (2,), schedule=SCHEDULE)
CALLS = {
    "ddpm_sample": lambda g: generative.ddpm_sample(halved, (3, 2), schedule=SCHEDULE, generator=g),
    "ddim_sample": lambda g: generative.ddim_sample(
        halved, (3, 2), schedule=SCHEDULE, steps=2, generator=g
    ),
    "diffusion_bound": lambda g: generative.diffusion_bound(
        halved, X, schedule=SCHEDULE, generator=g
    ),
    "DDPM.loss": lambda g: MODEL.loss(X, generator=g),
    "DDPM.sample": lambda g: MODEL.sample(3, generator=g),
    "DDPM.bound": lambda g: MODEL.bound(X, generator=g),
}
