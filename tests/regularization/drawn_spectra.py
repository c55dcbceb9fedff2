"""Calls that draw kernels, and probes of a Jacobian."""

import torch
from torch import nn

from vademecum import regularization


def smoothing() -> nn.Module:
    """A layer whose Jacobian is not diagonal: signs of probes would not show in its spectrum."""
    with torch.random.fork_rng():
        layer = nn.Conv1d(1, 1, 3, padding=1)
    layer.weight.data = torch.tensor([[[0.2, 0.7, -0.4]]])
    return layer


CALLS = {
    "delta_orthogonal_": lambda g: regularization.delta_orthogonal_(
        torch.empty(3, 3, 1), generator=g
    ),
    "dynamical_isometry": lambda g: regularization.dynamical_isometry(
        smoothing(), torch.ones(1, 1, 2001), probes=2, steps=3, generator=g
    ),
}
