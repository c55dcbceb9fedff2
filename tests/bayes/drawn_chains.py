"""Calls of what draws chains in this room."""

from typing import Any

import torch
from torch import Tensor, nn

from vademecum import bayes

START = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3)
KNOBS: dict[str, Any] = {"kernel": "hmc", "draws": 3, "warmup": 2}


def ball(theta: Tensor) -> Tensor:
    return theta.square().sum(1) / 2


def part(generator: torch.Generator | None) -> Any:
    """An energy from a part of the data."""
    x = torch.linspace(-1, 1, 60, dtype=torch.float64).reshape(20, 3)
    model = nn.Linear(3, 1, bias=False).double()
    energy = bayes.posterior(model, x, x[:, :1], likelihood="gaussian", batch=5)
    return energy.estimate(START, generator=generator)


CALLS = {
    "mh_step": lambda g: bayes.mh_step(ball, START, eta=1.0, generator=g),
    "hmc_step": lambda g: bayes.hmc_step(ball, START, eta=0.5, leapfrogs=2, generator=g),
    "mala_step": lambda g: bayes.mala_step(ball, START, eta=0.5, generator=g),
    "ula_step": lambda g: bayes.ula_step(ball, START, eta=0.5, generator=g),
    "sgld_step": lambda g: bayes.sgld_step(ball, START, eta=0.5, generator=g),
    "sghmc_step": lambda g: bayes.sghmc_step(ball, START, eta=0.5, generator=g),
    "sample": lambda g: bayes.sample(ball, START, generator=g, **KNOBS),
}
