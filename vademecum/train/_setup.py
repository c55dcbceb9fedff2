"""Setting up a run from what `fit` was asked for: its length, its averages, what it reads."""

from collections.abc import Callable, Generator, Mapping
from itertools import tee
from typing import Any

import torch
from torch import nn

from vademecum.arguments import number, whole
from vademecum.errors import UsageError
from vademecum.optimization import PolyakAveraging
from vademecum.regularization import EarlyStopping
from vademecum.train._batches import Source
from vademecum.train._order import Order
from vademecum.train._training import Training
from vademecum.train._turns import MicroBatch
from vademecum.train.noise import ExampleNoise, example_noise

__all__ = [
    "add_averages", "asked_for", "length", "micro_batches", "place_of", "stopping_for",
]  # fmt: skip


_DECISIVE = (
    "batch_size", "steps", "epochs", "minutes", "warmup", "cooldown", "accumulate", "clip",
    "precision", "average", "evaluate_every", "score", "maximize", "patience", "seed",
)  # fmt: skip
_NEVER = 2**31  # evaluations without an improvement, where nobody has lost patience


def length(
    steps: int | None, epochs: int | None, minutes: float | None, per_epoch: int
) -> int | None:
    """How many steps there will be, or None where that is a matter of minutes.

    Raises:
        UsageError: If not exactly one of the three is given.

    Example:
        >>> length(None, 3, None, per_epoch=10)
        30
    """
    given = {"steps": steps, "epochs": epochs, "minutes": minutes}
    given = {name: value for name, value in given.items() if value is not None}
    if len(given) != 1:
        words = " and ".join(f"{name}={value}" for name, value in given.items()) or "none"
        raise UsageError(f"exactly one of steps, epochs and minutes must be given, got {words}")
    if minutes is not None:
        number("minutes", minutes, above=0)
        return None
    if epochs is not None:
        return whole("epochs", epochs, low=1) * per_epoch
    return whole("steps", steps, low=1)


def asked_for(given: Mapping[str, Any]) -> dict[str, Any]:
    """What of `fit`'s arguments decides on the weights that come out, as JSON has it."""
    schedule = given["schedule"]
    plain = schedule if schedule is None or isinstance(schedule, str) else "a function"
    return {**{name: given[name] for name in _DECISIVE}, "schedule": plain}


def place_of(objective: nn.Module) -> torch.device:
    """Where an objective is.

    Raises:
        ValueError: If it is no module, or has no parameters.
    """
    if not isinstance(objective, nn.Module):
        raise ValueError(f"objective must be an nn.Module, got {type(objective).__name__}")
    first = next(objective.parameters(), None)
    if first is None:
        raise ValueError(f"objective must have parameters, got {type(objective).__name__} without")
    return first.device


def add_averages(training: Training, average: float | str | None) -> None:
    """Average each player's parameters: with a decay, uniformly, or not at all."""
    if average is None:
        return
    if isinstance(average, str) and average != "uniform":
        raise ValueError(f"average must be a decay, 'uniform' or None, got {average!r}")
    options: Any = {"kind": "uniform"}
    if not isinstance(average, str):
        options = {"kind": "exponential", "decay": number("average", average, low=0, below=1)}
    for player, optimizer in training.optimizers.items():
        training.averages[player] = PolyakAveraging(optimizer, **options)


def stopping_for(
    score: str | None, patience: int | None, *, maximize: bool, evaluates: bool
) -> EarlyStopping | None:
    """What remembers the best weights, if there is a score.

    Raises:
        ValueError: If there is a score without evaluations, or patience without a score.
    """
    if score is not None and not evaluates:
        raise ValueError(f"evaluate must be given where there is a score, got {score!r} alone")
    if score is None:
        if patience is not None:
            raise ValueError(f"score must be given where there is patience, got {patience} alone")
        return None
    return EarlyStopping(_NEVER if patience is None else patience, maximize=maximize)


def micro_batches(
    source: Source,
    order: Order,
    training: Training,
    augment: Callable[[Any, ExampleNoise], Any] | None,
) -> Generator[list[MicroBatch]]:
    """The micro-batches of each step, from the next one on."""
    ahead, parts = tee(order.all_parts(training.step, training.steps))  # workers read ahead
    found: list[MicroBatch] = []
    place = place_of(training.objective)
    for part, batch in zip(parts, source.batches(ahead), strict=False):
        if augment is not None:
            batch = augment(batch, example_noise(order.seed, part.epoch, part.examples.to(place)))
        found.append((part, batch))
        if part.last:
            yield found
            found = []
