"""Calls of what looks for steep pairs and attacks what is not certified, with random numbers."""

from functools import partial

import torch
from torch import nn

from vademecum import robustness

X = torch.linspace(0.05, 0.95, 12).reshape(4, 3)


def tanh() -> nn.Sequential:
    """A network that is always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 20), nn.Tanh(), nn.Linear(20, 3))


class Noted:
    """An attack that keeps what its generator drew."""

    def __init__(self):
        self.drawn: list[torch.Tensor] = []

    def __call__(self, *args, generator=None, **knobs):
        self.drawn.append(torch.rand(3, generator=generator))
        return robustness.pgd(*args, generator=generator, **knobs, steps=2)


def certified(generator: torch.Generator | None):
    attack = Noted()
    y = tanh()(X).argmax(1)
    knobs = {"norm": "linf", "radius": 0.9, "box": None, "attack": attack}
    robustness.certified_accuracy(tanh(), X, y, generator=generator, **knobs)
    return attack.drawn


CALLS = {
    "lipschitz": partial(
        lambda generator: robustness.lipschitz(tanh(), norm="l2", generator=generator)
    ),
    "certified_accuracy": certified,
}
