"""Calls of what draws random orders and scales of units."""

from typing import Any

import torch
from torch import nn

from vademecum import regularization

X = torch.linspace(-1, 1, 6).reshape(2, 3)


def units() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 40), nn.ReLU(), nn.Linear(40, 1))


CALLS: dict[str, Any] = {
    "permute_units": lambda g: regularization.permute_units(units(), X, generator=g),
    "rescale_units": lambda g: regularization.rescale_units(units(), X, generator=g),
}
