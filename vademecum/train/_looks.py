"""What happens after a step without a trace in training: evaluations, and the pace of a run.

An evaluation sees the averaged weights if there are any, in evaluation mode, with random numbers of
its own. Weights, modes and random numbers are given back, so training goes on bit by bit as if
nobody had looked.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from statistics import median
from time import monotonic
from typing import Any

import torch
from torch import nn

from vademecum.arguments import whole
from vademecum.models import resting
from vademecum.optimization import averaged
from vademecum.randomness import own_randomness
from vademecum.train._order import seed_for
from vademecum.train._ranks import Ranks
from vademecum.train._training import Training
from vademecum.train._turns import Means

__all__ = ["Evaluation", "Pace", "take_final_weights", "with_averages"]

MEASURED = 50
"""Steps, since the start or since minutes were changed, whose time tells how many there will be."""


@contextmanager
def with_averages(training: Training) -> Iterator[None]:
    """Let the objective hold the averages of its parameters for a while, where there are any."""
    with ExitStack() as stack:
        for averaging in training.averages.values():
            if averaging.weight:
                stack.enter_context(averaged(training.objective, by=averaging))
        yield


@torch.no_grad()
def take_final_weights(training: Training, stopped: str) -> None:
    """Leave the best weights in the objective, or the averages, unless the run is to go on."""
    if stopped == "patience" and training.stopping is not None:
        if training.stopping.best_step:  # no score at all was a number otherwise
            training.stopping.restore(training.objective)
    elif stopped == "finished" and training.averages:
        with with_averages(training):
            shown = [p.clone() for p in training.objective.parameters()]
        for p, mean in zip(training.objective.parameters(), shown, strict=True):
            p.copy_(mean)


class Evaluation:
    """Evaluates every so many steps, and after the last one.

    Args:
        evaluate: A function of the objective that gives numbers by name.
        every: How many steps there are from one evaluation to the next; an epoch by default.
        score: The number by which the best weights are chosen.
        means: The processes, which all evaluate, and go by what the first one finds.
    """

    def __init__(
        self,
        evaluate: Callable[[nn.Module], Mapping[str, float]],
        every: int | None,
        score: str | None,
        means: Means,
    ):
        self._evaluate, self._score, self._means = evaluate, score, means
        self._every = every if every is None else whole("evaluate_every", every, low=1)

    def __call__(self, training: Training) -> dict[str, float]:
        """Evaluate if it is time."""
        if training.step % (self._every or training.per_epoch) and not training.finished:
            return {}
        objective, seed = training.objective, seed_for(training.seed, "evaluation")
        with with_averages(training), resting(objective), own_randomness(seed), torch.no_grad():
            found = self._means.sharing.inside(lambda: self._evaluate(objective))
            scores = training.scores = self._agreed(_numbers(found))
            if training.stopping is not None:
                training.stopping(self._chosen(scores), objective)
        return {f"score.{name}": x for name, x in scores.items()}

    def _agreed(self, scores: dict[str, float]) -> dict[str, float]:
        return dict(zip(scores, self._means.ranks.first([*scores.values()]), strict=True))

    def _chosen(self, scores: dict[str, float]) -> float:
        if self._score not in scores:
            raise ValueError(
                f"score must be one of what evaluate gives, {', '.join(scores) or 'nothing'}, got"
                f" {self._score!r}"
            )
        return scores[self._score]


def _numbers(found: Any) -> dict[str, float]:
    if not isinstance(found, Mapping):
        raise ValueError(f"evaluate must give numbers by name, got {type(found).__name__}")
    return {str(name): float(x) for name, x in found.items()}


class Pace:
    """Fixes the number of steps that fit into some minutes, once, from the time of the first ones.

    Args:
        minutes: How long the run may take.
        ranks: The processes, which go by the clock of the first one.
    """

    def __init__(self, minutes: float, ranks: Ranks):
        self._seconds, self._ranks = 60 * minutes, ranks
        self._times = [monotonic()]

    def __call__(self, training: Training) -> dict[str, float]:
        """Take the time of a step; say how many there will be when that is known."""
        if training.steps is not None:
            return {}
        self._times.append(monotonic())
        if len(self._times) <= MEASURED:
            return {}
        each = median(b - a for a, b in pairwise(self._times))
        left = self._seconds - (self._times[-1] - self._times[0])
        (more,) = self._ranks.first([max(0, math.floor(left / max(each, 1e-9)))])
        training.steps = training.step + int(more)
        return {"steps": training.steps}
