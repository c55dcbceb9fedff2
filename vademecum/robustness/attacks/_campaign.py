r"""What every attack does around its search: from a model and examples to a result that is true.

1. The arguments are checked, and the model becomes a function of the inputs alone.
2. Examples that the model has wrong already, or that must not be changed at all, stay as they are.
3. The search proposes a point for each of the others.
4. These are brought into ball and box exactly (and onto the grid of pixels), and the model is asked
   once more: what it says of the tensor that is returned counts, nothing else.

Portions of the batch go through one after the other, as many examples at a time as `memory` allows.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.arguments import whole
from vademecum.arrays import portions
from vademecum.models import bytes_each
from vademecum.randomness import source
from vademecum.results import one_line
from vademecum.robustness._logits import Classifier, Preprocess, as_classifier, as_labels, finite
from vademecum.robustness._threat import Threat, as_threat
from vademecum.robustness.attacks._goals import Goal, enough_classes
from vademecum.robustness.attacks._pixel_grid import on_grid, snapped
from vademecum.robustness.attacks.found import Attack

__all__ = ["Battle", "Proposal", "Search", "Terms", "campaign"]

_COPIES = 12  # of the inputs that a search keeps, in the worst case (apgd)


class Battle(NamedTuple):
    """What a search works with: examples that the model has right."""

    logits: Classifier
    """The model."""
    x: Tensor
    """The examples."""
    goal: Goal
    """What is wanted of their logits."""
    threat: Threat
    """What may be done to them."""
    generator: torch.Generator
    """Where random numbers come from, on the device of the examples."""
    whose: Tensor
    """Their places in the portion, so that random numbers do not depend on who else is left."""
    n: int
    """How many examples the portion has."""
    slope: Tensor | None
    """The gradient of the loss at `x`, where the search asked for it."""
    quantum: float | None
    """The spacing of the grid on which results must lie."""

    __repr__ = one_line

    def rows(self, index: Tensor) -> "Battle":
        """The same for some of the examples."""
        return self._replace(
            x=self.x[index], goal=self.goal.rows(index), threat=self.threat.rows(index),
            whose=self.whose[index], slope=None if self.slope is None else self.slope[index],
        )  # fmt: skip

    def settled(self, rows: Tensor | slice, z: Tensor) -> Tensor:
        """Points of some of the examples as they would be returned, on the grid if there is one."""
        if self.quantum is None:
            return z
        x0, threat = self.x[rows], self.threat.rows(rows)
        return snapped(threat, x0, threat.project(x0, z), self.quantum)


class Proposal(NamedTuple):
    """What a search found."""

    x: Tensor
    """A point for each example."""
    steps: Tensor
    """How many steps it made."""
    queries: Tensor
    """How often it asked the model."""
    fooled: Tensor
    """Whether the point fooled the model when it was asked."""

    __repr__ = one_line


Search = Callable[[Battle], Proposal]
"""What proposes a point for each example."""


class Terms(NamedTuple):
    """The arguments that all attacks share."""

    norm: str
    """The norm of the ball."""
    radius: float | Tensor
    """Its radius, or one for each example."""
    box: tuple[float, float] | None
    """The least and the largest value of an entry."""
    target: Tensor | None
    """The classes that examples shall be taken for."""
    preprocess: Preprocess
    """What lies between inputs and model."""
    quantum: float | None
    """The spacing of the grid that results keep to."""
    memory: int | None
    """The bytes to use at most."""
    generator: torch.Generator | None
    """Where random numbers come from."""

    __repr__ = one_line


def campaign(
    search: Search,
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    terms: Terms,
    *,
    norms: tuple[str, ...],
    loss: str = "ce",
    slope: bool = False,
    infinite: bool = False,
    aimed: bool = False,
    copies: int = 1,
) -> Attack:
    """Attack examples by a search.

    Args:
        search: What proposes points for examples.
        model: The module.
        x: The inputs.
        y: Their labels.
        terms: The arguments that all attacks share.
        norms: Those that the search knows.
        loss: What it climbs.
        slope: Whether it begins with the gradient at the inputs.
        infinite: Whether the radius may be infinite.
        aimed: Whether it aims at classes, target or not.
        copies: How many points of an example it may look at at once.
    """
    threat = as_threat(x, terms.norm, terms.radius, terms.box, norms=norms, infinite=infinite)
    quantum = on_grid(terms.quantum, x)
    drawn = torch.randint(2**62, (), **source(terms.generator, "cpu"))
    generator = torch.Generator(x.device).manual_seed(int(drawn))
    x = x.detach()
    with as_classifier(model, x, y, terms.preprocess) as logits:
        goal = _goal(logits, x, y, terms.target)
        enough_classes(loss, logits.classes, targeted=aimed or goal.target is not None)
        parts = []
        for here in _portions(logits, x, goal, loss, terms.memory, copies):
            part = x[here]
            whose = torch.arange(len(part), device=x.device)
            battle = Battle(logits, part, goal.rows(here), threat.rows(here), generator, whose,
                            len(part), None, quantum)  # fmt: skip
            parts.append(_fight(search, battle, loss if slope else None))
    return Attack(*(torch.cat(field) for field in zip(*parts, strict=True)))


def _fight(search: Search, all_: Battle, loss: str | None) -> Attack:
    """Attack the examples of a portion that the model has right, and that have room."""
    logits, x, goal, threat = all_[:4]
    if loss is None:
        z, slope = logits(x), None
    else:
        z, _, slope = logits.gradient(x, lambda z: goal.loss(z, loss))
    fooled = goal.reached(finite(z, "the inputs"))
    logits.insist_on_company(x, z)
    steps, queries = torch.zeros_like(goal.y), torch.ones_like(goal.y)
    left = (~fooled & (threat.radius > 0)).nonzero()[:, 0]
    if len(left) == 0:
        return Attack(x.clone(), fooled, threat.distance(x, x), steps, queries)
    few = all_._replace(slope=slope).rows(left)
    found = search(few)
    points = few.settled(slice(None), few.threat.project(few.x, found.x))
    fooled[left] = few.goal.reached(finite(logits(points), "what the attack found"))
    steps[left], queries[left] = found.steps, found.queries + 2
    result = x.clone()
    result[left] = points
    return Attack(result, fooled, threat.distance(x, result), steps, queries)


def _goal(logits: Classifier, x: Tensor, y: Tensor, target: Any) -> Goal:
    y = y.long()
    if target is None:
        return Goal(y)
    target = as_labels("target", target, x, logits.classes)
    if bool((target == y).any()):
        at = int((target == y).nonzero()[0, 0])
        raise ValueError(f"target must differ from y, got {int(y[at])} for both at {at}")
    return Goal(y, target)


def _portions(
    logits: Classifier, x: Tensor, goal: Goal, loss: str, memory: int | None, copies: int
) -> list[slice]:
    if memory is None:
        return [slice(0, len(x))]
    whole("memory", memory, low=1)

    def work(x: Tensor) -> Any:
        return logits.gradient(x, lambda z: goal.rows(slice(len(x))).loss(z, loss))

    taken = bytes_each(work, x)
    each = copies * (
        taken.each + _COPIES * x[0].numel() * 8
    )  # exact distances are in double precision
    if memory < taken.fixed + each:
        raise ValueError(
            f"memory must be >= {taken.fixed + each} bytes for one example, got {memory}"
        )
    return portions(len(x), each=each, memory=memory - taken.fixed)
