"""Calls of what draws noise, or probes with random vectors, in this room."""

import torch
from torch import nn

from vademecum import regularization

X = torch.linspace(-1, 1, 60, dtype=torch.float64).reshape(20, 3)


def tanh() -> nn.Sequential:
    """A network that is always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 40), nn.Tanh(), nn.Linear(40, 3)).double()


CALLS = {
    "input_noise": lambda g: regularization.input_noise(0.1, generator=g)(X),
    "weight_noise": lambda g: regularization.weight_noise(tanh(), 0.1, generator=g)(X),
    "input_noise_penalty": lambda g: regularization.input_noise_penalty(
        tanh(), X, X, std=0.1, applications=4, generator=g
    ),
    "weight_noise_penalty": lambda g: regularization.weight_noise_penalty(
        tanh(), X, X, std=0.1, applications=4, generator=g
    ),
    "weight_decay_effect": lambda g: regularization.weight_decay_effect(
        tanh(), X, X, decay=0.1, applications=8, generator=g
    ),
}
