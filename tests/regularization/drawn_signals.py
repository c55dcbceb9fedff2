"""Calls of what measures signals with random vectors and parameters."""

from typing import Any

import torch
from torch import nn

from vademecum import regularization

X = torch.linspace(-1, 1, 6).reshape(2, 3)


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))


CALLS: dict[str, Any] = {
    "signal_propagation": lambda g: regularization.signal_propagation(
        network(), X, draws=2, generator=g
    ),
}
