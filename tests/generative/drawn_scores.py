"""Calls of what draws with scores in this room, in continuous time."""

from typing import Any

import torch
from torch import Tensor

from vademecum import generative

X = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3)
PROCESS = generative.VPSDE()
LEVELS = torch.tensor([0.9, 0.3])


def score(x: Tensor, t: Tensor | None = None) -> Tensor:
    return -x - x.sin().roll(1, 1)


def mixture() -> Any:
    half = torch.tensor([0.5, 0.5], dtype=torch.float64)
    return generative.MixtureScore(half, X[:2], half, process=PROCESS)


CALLS = {
    "DiffusionSDE.sample_prior": lambda g: PROCESS.sample_prior((4, 3), generator=g),
    "VPSDE.sample_prior": lambda g: PROCESS.sample_prior((4, 3), generator=g),
    "VESDE.sample_prior": lambda g: generative.VESDE().sample_prior((4, 3), generator=g),
    "MixtureScore.sample": lambda g: mixture().sample(5, generator=g),
    "annealed_langevin": lambda g: generative.annealed_langevin(
        score, X, process=PROCESS, levels=LEVELS, per_level=2, generator=g
    ),
    "log_likelihood": lambda g: generative.log_likelihood(
        score, X, process=PROCESS, start=0.5, probes=3, tol=1e-3, generator=g
    ),
    "reverse_sde_sample": lambda g: generative.reverse_sde_sample(
        score, (4, 3), process=PROCESS, steps=3, corrector=1, generator=g
    ),
    "score_matching_loss": lambda g: generative.score_matching_loss(
        score, X, method="sliced", projections=2, generator=g
    ),
}
