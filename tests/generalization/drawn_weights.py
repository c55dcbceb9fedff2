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


def norms(generator: torch.Generator | None) -> Any:
    """Of a convolution whose norm is found by iteration."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv1d(2, 2, 3, padding=1), nn.Flatten(), nn.Linear(120, 2))
        x = torch.randn(4, 2, 60).double()
    return generalization.norm_bounds(net.double(), x, Y[:4], generator=generator)


CALLS: dict[str, Any] = {
    "norm_bounds": norms,
    "rademacher_complexity": lambda g: generalization.rademacher_complexity(
        X[:4].double(), draws=5, generator=g
    ),
    "StochasticNetwork": lambda g: generalization.StochasticNetwork(
        linear(), prior="init", generator=g
    )(X),
    "pac_bayes_certificate": lambda g: generalization.pac_bayes_certificate(
        linear(), X, Y, prior_epochs=1, posterior_epochs=1, passes=1, prior_scales=[0.5],
        generator=g,
    )[:3],
}  # fmt: skip
