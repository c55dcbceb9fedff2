"""Calls of what draws noise, starts and probes in this room's smoothing and training."""

import torch
from torch import nn

from vademecum import robustness

X = torch.arange(12).reshape(4, 3) / 255
WIDE = torch.linspace(-1, 1, 180).reshape(2, 90)
Y = torch.tensor([0, 1, 1, 0])


def linear(d: int, k: int) -> nn.Linear:
    """A network that is always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Linear(d, k, bias=False)


CALLS = {
    "randomized_smoothing": lambda g: robustness.randomized_smoothing(
        linear(3, 2), X, sigma=0.5, n=200, generator=g
    ),
    "adversarial_loss": lambda g: robustness.adversarial_loss(
        linear(3, 2), X, Y, radius=0.1, steps=1, step_size=0.01, generator=g
    ),
    "jacobian_spectral_norm": lambda g: robustness.jacobian_spectral_norm(
        linear(90, 80), WIDE, tol=0.5, generator=g
    ),
    "spectral_regularizer": lambda g: robustness.spectral_regularizer(
        linear(90, 80).double(), WIDE.double(), generator=g
    ),
}
