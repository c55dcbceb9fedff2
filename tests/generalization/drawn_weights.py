"""Calls of what draws weights in this room."""

from typing import Any

import torch
from torch import nn

from vademecum import generalization

X = torch.linspace(-1, 1, 60).reshape(20, 3)
Y = torch.arange(20) % 2


def linear() -> nn.Module:
    """A classifier that is always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Linear(3, 2)


CALLS: dict[str, Any] = {
    "StochasticNetwork": lambda g: generalization.StochasticNetwork(
        linear(), prior="init", generator=g
    )(X),
    "pac_bayes_certificate": lambda g: generalization.pac_bayes_certificate(
        linear(), X, Y, prior_epochs=1, posterior_epochs=1, passes=1, prior_scales=[0.5],
        generator=g,
    )[:3],
}  # fmt: skip
