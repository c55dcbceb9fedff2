"""Calls of what draws directions, batches and masks in the landscape of a loss."""

from typing import Any

import torch
from torch import nn

from vademecum import generalization

X = torch.linspace(-1, 1, 60, dtype=torch.float64).reshape(20, 3)
Y = (X[:, 0] > 0).long()


def network(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, 30), nn.Tanh(), nn.Linear(30, 2)).double()


CALLS: dict[str, Any] = {
    "loss_plane": lambda g: generalization.loss_plane(network(), X, Y, points=3, generator=g),
    "lottery_ticket": lambda g: generalization.lottery_ticket(
        network(), X, Y, updates=3, prunings=1, batch=5, generator=g
    ),
    "mode_connectivity": lambda g: generalization.mode_connectivity(
        network(), network(1), X, Y, path="curve", updates=3, points=3, generator=g
    ),
    "sharpness_measures": lambda g: generalization.sharpness_measures(network(), X, Y, generator=g),
}
