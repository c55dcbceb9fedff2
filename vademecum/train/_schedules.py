r"""How the learning rate goes: warm-up, a shape in the middle, and cool-down, as factors of it.

For $T$ steps in all, step $t$ (from 0) has the rate of the optimiser times

$$\min\!\Big(1, \frac{t + 1}{w}\Big) \cdot \min\!\Big(1, \frac{T - t}{c}\Big) \cdot
s\Big(\frac{t - w}{T - w}\Big), \qquad
s(u) = 1, \quad 1 - u \quad \text{or} \quad \tfrac12 (1 + \cos \pi u)$$

with $w$ steps of warm-up and $c$ of cool-down. torch's `LambdaLR` applies it; any other scheduler
of torch's can stand in its place.
"""

import math
from collections.abc import Callable
from functools import partial

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from vademecum.arguments import choice, number
from vademecum.train._training import Training

__all__ = ["SCHEDULES", "Schedule", "add_schedules"]

Schedule = str | Callable[[Optimizer], LRScheduler] | None

SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda u: 1.0,
    "linear": lambda u: 1.0 - u,
    "cosine": lambda u: (1 + math.cos(math.pi * u)) / 2,
}
"""The shapes by name, as functions from [0, 1] to [0, 1]."""

_UNKNOWN = 1_000
"""Steps that a warm-up given as a share is taken to have while the number of all is unknown."""


def add_schedules(
    training: Training, schedule: Schedule, *, warmup: float, cooldown: float
) -> None:
    """Give every player a scheduler, to be stepped after each step.

    Args:
        training: The run, which knows how many steps there will be.
        schedule: A name, a function that makes a scheduler of torch's, or None for a constant.
        warmup: How many steps the rate rises for; below 1, which share of all steps.
        cooldown: How many steps it falls to zero for at the end; below 1, which share of them.
    """
    number("warmup", warmup, low=0)
    number("cooldown", cooldown, low=0)
    if callable(schedule):
        if warmup or cooldown:
            raise ValueError(
                "warmup and cooldown must be 0 where schedule is a function, which decides on all,"
                f" got {warmup} and {cooldown}"
            )
        make = schedule
    else:
        shape = SCHEDULES[choice("schedule", schedule or "constant", tuple(SCHEDULES))]
        make = partial(
            LambdaLR, lr_lambda=lambda t: _factor(t, training.steps, warmup, cooldown, shape)
        )
    for player, optimizer in training.optimizers.items():
        training.schedules[player] = make(optimizer)


def _factor(
    t: int, T: int | None, warmup: float, cooldown: float, shape: Callable[[float], float]
) -> float:
    """What the rate is multiplied by in step t of T, which may be unknown yet."""
    w = warmup if warmup >= 1 or not warmup else warmup * T if T else _UNKNOWN
    rising = min(1.0, (t + 1) / w) if w else 1.0
    if T is None:
        return rising
    c = cooldown if cooldown >= 1 else cooldown * T
    falling = min(1.0, max(0.0, (T - t) / c)) if c else 1.0
    u = (t - w) / max(1.0, T - w)
    return rising * falling * shape(min(1.0, max(0.0, u)))
