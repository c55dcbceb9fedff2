"""Calls of attacks, and of what they begin with, that draw random numbers in this room."""

import torch
from torch import nn

from vademecum import robustness

X = torch.linspace(0.05, 0.95, 24, dtype=torch.float64).reshape(6, 4).sin()


def tanh() -> nn.Sequential:
    """A network that is always the same, and has the labels right by far."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 10), nn.Tanh(), nn.Linear(10, 4)).double()


def labels() -> torch.Tensor:
    """The classes that it gives."""
    return tanh()(X).argmax(1)


def few(name: str, generator: torch.Generator | None, **knobs: int) -> robustness.Attack:
    """An attack of a radius at which it fools nobody, so that results are where it ended."""
    f = getattr(robustness, name)
    return f(tanh(), X, labels(), norm="l2", radius=0.01, generator=generator, **knobs)


CALLS = {
    "sample_ball": lambda g: robustness.sample_ball(3, (2,), norm="l1", radius=1.0, generator=g),
    "fgsm": lambda g: few("fgsm", g),
    "pgd": lambda g: few("pgd", g, steps=1),
    "apgd": lambda g: few("apgd", g, steps=2),
    "deepfool": lambda g: few("deepfool", g),
    "square": lambda g: few("square", g, steps=3),
    "auto_attack": lambda g: few("auto_attack", g, steps=2, square_steps=2),
}
