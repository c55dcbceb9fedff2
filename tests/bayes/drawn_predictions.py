"""Calls of what draws weights and answers in this room."""

from typing import Any

import torch
from torch import Tensor, nn

from vademecum import bayes

X = torch.linspace(-1, 1, 60, dtype=torch.float64).reshape(20, 3)
Y = torch.arange(20) % 2
LAW = bayes.swag(X[:5].repeat(1, 2) * torch.arange(1.0, 7.0).double())


def linear() -> nn.Module:
    """A classifier that is always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Linear(3, 2, bias=False).double()


def by_laplace(generator: torch.Generator | None) -> Tensor:
    return bayes.laplace(linear(), X, Y, likelihood="categorical").sample(2, generator=generator)


CALLS: dict[str, Any] = {
    "Laplace.sample": by_laplace,
    "SWAG.sample": lambda g: LAW.sample(2, generator=g),
    "deep_ensemble": lambda g: (
        bayes.deep_ensemble(
            lambda: nn.Linear(3, 2).double(), X, Y, members=2, epochs=1, generator=g
        ).models
    ),
    "posterior_predictive": lambda g: bayes.posterior_predictive(
        LAW, linear(), X, likelihood="categorical", draws=3, generator=g
    ),
}
