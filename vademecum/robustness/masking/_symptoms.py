"""The symptoms of masked gradients, counted over examples; `signs` says which and why."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from vademecum.randomness import source
from vademecum.results import one_line
from vademecum.robustness._logits import Classifier, as_classifier, as_labels, rounding_gap
from vademecum.robustness._rows import in_portions
from vademecum.robustness._threat import Threat, per_example
from vademecum.robustness.attacks import Attack, fgsm, pgd, square
from vademecum.robustness.attacks._goals import Goal
from vademecum.robustness.masking._plain_network import PlainNetwork
from vademecum.robustness.uniform_draws import sample_ball

__all__ = ["Symptom", "counted"]

_TRIES = 300  # of the search without gradients
_SMALL = 1e-4  # what logits are multiplied by
_RESTARTS = 3  # of the ascent of the margin
_STEP = 0.5  # the longest, as a share of the radius
LIMITS = {
    "zero gradients": 0.05,
    "changing outputs": 0.0,
    "single step wins": 0.5,
    "unbounded attack fails": 0.1,
    "square wins": 0.5,
    "smaller logits help": 0.5,
    "loss falls": 0.05,
}
"""What the share of each symptom may be: observed on honest networks, it is well below."""


class Symptom(NamedTuple):
    """How often a symptom was seen."""

    name: str
    """Its name."""
    seen: int
    """In how many examples."""
    among: int
    """Among how many that could show it."""

    __repr__ = one_line


def counted(
    model: PlainNetwork,
    x: Tensor,
    y: Tensor,
    threat: Threat,
    *,
    memory: int | None,
    generator: torch.Generator | None,
) -> Iterator[Symptom]:
    """Count each symptom; those of attacks only where outputs do not change."""
    with as_classifier(model, x, y, steady=False) as logits:
        look = partial(in_portions, x=torch.arange(len(x), device=x.device), memory=memory)
        y = as_labels("y", y, x)
        flat = look(lambda rows: _flat(logits, x[rows], y[rows]))
        yield Symptom("zero gradients", int(flat.sum()), len(x))
        changing = look(lambda rows: _changing(logits, x[rows]))
        yield Symptom("changing outputs", int(changing.sum()), len(x))
        start, short = _steps(x, threat, generator)
        moved, falls = look(lambda rows: _falling(logits, start[rows], y[rows], short.rows(rows)))
    if not bool(changing.any()):
        yield from _attacked(model, x, y, threat, memory=memory, generator=generator)
    yield Symptom("loss falls", int(falls.sum()), int(moved.sum()))


def _attacked(
    model: PlainNetwork, x: Tensor, y: Tensor, threat: Threat, **knobs: Any
) -> Iterator[Symptom]:
    """What single steps, many steps, no limit, no gradients and other logits come to."""
    knobs |= {"norm": threat.norm, "box": threat.box}

    def fooled(attack: Any, radius: Any, rows: Tensor | slice = slice(None)) -> Tensor:
        found: Attack = attack(x=x[rows], y=y[rows], radius=radius[rows], **knobs)
        return found.fooled

    radius = threat.radius
    plain = fooled(partial(pgd, model), radius)
    many, rows = plain.clone(), (~plain).nonzero()[:, 0]
    if len(rows):
        climb = partial(pgd, model, loss="margin", restarts=_RESTARTS)
        many[rows] = fooled(climb, radius, rows)
    yield _rivals("single step wins", fooled(partial(fgsm, model), radius), many)
    climb = partial(pgd, model, loss="margin", random_start=False)
    free = fooled(climb, torch.full_like(radius, _reach(threat, x)))
    yield Symptom("unbounded attack fails", int((~free).sum()), len(x))
    yield _rivals("square wins", fooled(partial(square, model, steps=_TRIES), radius), many)
    small = PlainNetwork(model.model, model.preprocess, scale=_SMALL)
    yield _rivals("smaller logits help", fooled(partial(pgd, small), radius), plain)


def _rivals(name: str, one: Tensor, other: Tensor) -> Symptom:
    """Among the examples that only one of two attacks fooled, those that the first did."""
    return Symptom(name, int((one & ~other).sum()), int((one ^ other).sum()))


def _flat(logits: Classifier, x: Tensor, y: Tensor) -> Tensor:
    """Where the gradient of the cross-entropy is zero in every entry."""
    _, _, g = logits.gradient(x, lambda z: cross_entropy(z, y, reduction="none"))
    return (g == 0).flatten(1).all(1)


def _changing(logits: Classifier, x: Tensor) -> Tensor:
    """Where two passes differ by more than rounding."""
    one, other = logits(x), logits(x)
    return (one - other).abs().amax(1) > rounding_gap(one)


def _steps(x: Tensor, threat: Threat, generator: torch.Generator | None) -> tuple[Tensor, Threat]:
    """Random points of the balls, and steps of random length from there."""
    norm: Any = threat.norm
    drawn = sample_ball(len(x), x.shape[1:], norm=norm, radius=1.0, dtype=x.dtype,
                        device=x.device, generator=generator)  # fmt: skip
    start = threat.nearest(x, x + per_example(threat.radius, x) * drawn)
    share = torch.rand(len(x), **source(generator, x.device)).to(x)
    return start, threat._replace(radius=_STEP * share * threat.radius)


def _falling(logits: Classifier, x: Tensor, y: Tensor, short: Threat) -> tuple[Tensor, Tensor]:
    """Where the margin has a gradient, and where it falls in a step along it."""
    goal = Goal(y)
    _, before, g = logits.gradient(x, goal.margin)
    after = logits(short.nearest(x, x + per_example(short.radius, x) * short.step(g)))
    moved = (g != 0).flatten(1).any(1)
    return moved, moved & (goal.margin(after) < before - rounding_gap(after))


def _reach(threat: Threat, x: Tensor) -> float:
    """A radius within which every example has all of the box, or else all other examples."""
    if threat.box is not None and all(map(math.isfinite, threat.box)):
        side, d = threat.box[1] - threat.box[0], x[0].numel()
        return side if threat.norm == "linf" else side * math.sqrt(d)
    middle = x.mean(0, keepdim=True).expand_as(x)
    return 2 * float(threat.distance(middle, x).max()) + float(threat.radius.max())
