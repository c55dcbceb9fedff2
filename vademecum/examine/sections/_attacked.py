"""What is attacked, with which examples, and how far inputs may change.

For an attack an answer is wrong beyond rounding alone, so that of equal scores each is a right one.
Here the first of them is the answer, as everywhere in a dossier: what is wrong needs no change.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.examine._costs import called
from vademecum.examine._study import Study
from vademecum.examine.sections._fresh import Examples
from vademecum.foundations import clopper_pearson
from vademecum.models import evaluation
from vademecum.robustness import RobustAccuracy

__all__ = ["Ball", "Subject", "ball_of", "erring"]

_MANY = 256  # examples that are attacked at most, fewer of large networks


class Ball(NamedTuple):
    """How inputs may change."""

    box: tuple[float, float] | None
    unit: float
    words: str

    def radius(self, steps: int) -> float:
        return steps * self.unit / 255


class Subject(NamedTuple):
    """What is attacked, with what, and how far."""

    study: Study
    model: nn.Module
    ball: Ball
    examples: Examples

    @property
    def most(self) -> int:
        """How many examples are attacked."""
        return min(self.study.planned(_MANY), self.examples.n)

    def some(self, m: int) -> tuple[Tensor, Tensor]:
        x, y = self.examples.take(m)
        return x, y.long()

    @torch.no_grad()
    def right(self, m: int) -> Tensor:
        """Which of the first m it answers right as they are."""
        (x, y), size = self.some(m), self.study.batch
        with evaluation(self.model):
            parts = [x[i : i + size].clone() for i in range(0, m, size)]  # some work in place
            answers = [called(self.model, part).argmax(1) for part in parts]
        return torch.cat(answers) == y

    def knobs(self, name: str) -> dict[str, Any]:
        draw = self.study.generator(name)
        return {"box": self.ball.box, "memory": self.study.memory, "generator": draw}


def erring(found: RobustAccuracy, right: Tensor) -> RobustAccuracy:
    """The same, where examples that are not right need no change to be wrong."""
    distance = found.distance.where(right, 0.0)
    survived = (distance[:, None] > found.radii).sum(0)
    low, high = clopper_pearson(survived, len(right))
    return RobustAccuracy(found.radii, survived.double() / len(right), low, high, distance)


def ball_of(x: Tensor) -> Ball:
    """The range from 0 to 1 where inputs fill it, else four of their standard deviations."""
    low, high = (float(end) for end in torch.aminmax(x.detach()))
    if low >= 0 and 0.5 < high <= 1:
        return Ball((0.0, 1.0), 1.0, "of the range from 0 to 1")
    unit = 4 * float(x.detach().double().std())
    if not unit:
        return Ball(None, 1.0, "of 1, as all entries of the inputs are equal")
    return Ball(None, unit, "of four standard deviations of the inputs")
