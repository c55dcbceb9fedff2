"""Calls of what measures robustness with random numbers in this room."""

from functools import partial

import torch
from torch import nn

from vademecum import robustness

X = torch.linspace(0.05, 0.95, 48).reshape(16, 3).sin()
Y = torch.arange(16) % 3
SHORT = partial(robustness.pgd, steps=3)


def tanh(seed: int = 0) -> nn.Sequential:
    """A network that is always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, 20), nn.Tanh(), nn.Linear(20, 3))


class Rough(nn.Module):
    """A network whose loss falls along its gradient as often as it rises."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return tanh()(x + 0.05 * torch.sin(200 * x))


def labels() -> torch.Tensor:
    return tanh()(X).argmax(1)


CALLS = {
    "minimal_radius": lambda g: robustness.minimal_radius(
        tanh(), X, labels(), attack=SHORT, generator=g
    ),
    "robust_accuracy": lambda g: robustness.robust_accuracy(
        tanh(), X, labels(), radii=[0.3, 0.6], attack=SHORT, generator=g
    ),
    "transfer_matrix": lambda g: [
        robustness.transfer_matrix(
            [tanh(), tanh(1)], X, labels(), radius=0.3, attack=SHORT, generator=g
        )
        for _ in range(1 if g is None else 4)
    ],
    "average_robustness": lambda g: robustness.average_robustness(
        tanh(), X, attack=partial(_away, attack=robustness.deepfool), generator=g
    ),
    "gradient_masking": lambda g: robustness.gradient_masking(
        Rough(), X, labels(), radius=0.5, generator=g
    ),
}


def _away(model, x, y, *, attack, generator, **knobs):
    """An attack that begins at random, which `deepfool` does not."""
    moved = x + 0.01 * robustness.sample_ball(
        len(x), x.shape[1:], norm="l2", radius=1.0, generator=generator
    )
    return attack(model, moved.clamp(0, 1), y, generator=generator, **knobs)
