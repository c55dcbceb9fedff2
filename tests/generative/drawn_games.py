"""Calls of what draws codes for a generator; the network itself is also called `generator`."""

from typing import Any

import torch
from torch import nn

from vademecum.generative import GAN


def game() -> GAN:
    """Two players that are always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return GAN(nn.Linear(2, 3), nn.Linear(3, 1), latent_dim=2, constraint="gradient-penalty")


def sampled(generator: Any) -> Any:
    return game().sample(4, generator=generator)


CALLS = {
    "GAN": sampled,
    "GAN.sample": sampled,
    "GAN.losses": lambda g: game().losses(torch.ones(4, 3), generator=g),
}
