r"""Symmetries that apply to an input, and how far a network is from them.

| inputs | what moves |
|---|---|
| images (n, c, h, w) | shifts around the edge, mirror images, quarter turns of squares |
| signals (n, c, T) of a network that convolves in one dimension | shifts around the end, reversal |
| sequences (n, T) of tokens, (n, T, d) of vectors | permutations of the positions |
| graphs | permutations of the nodes |

Outputs move along where they have the same points, on the same grid or one that is coarser by a
whole number (then shifts are multiples of it); else they should stay as they are.
"""

from collections.abc import Callable, Iterator
from math import hypot, sqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.examine._study import Study
from vademecum.examine.dossier import Measurement
from vademecum.geometry import (
    EquivarianceError,
    Group,
    ImageAction,
    PointAction,
    equivariance_error,
    invariance_error,
)
from vademecum.geometry.groups.actions import default_action
from vademecum.models import named_tensors

__all__ = ["Symmetry", "applicable", "measured"]

_ALL, _DRAWN = 32, 16  # elements that are all tried, and how many are drawn of more


class Symmetry(NamedTuple):
    """A group that can move the inputs, and the outputs with them."""

    name: str
    words: str
    group: Group
    action: Any
    out_action: Any
    """How outputs move; None where they should stay."""


class _Shift:
    """Shifts by multiples of a stride, around the end of an axis."""

    exact = examples = True

    def __init__(self, axis: int, stride: int):
        self.axis, self.stride = axis, stride

    def __call__(self, g: int, x: Tensor) -> Tensor:
        return x.roll(g * self.stride, self.axis)


def applicable(study: Study, x: Any, z: Any) -> list[Symmetry]:
    """The symmetries that make sense for such inputs and outputs."""
    if not isinstance(z, Tensor):
        return []
    if study.n is None:
        return _of_graphs(x, z)
    tensor = x if isinstance(x, Tensor) else None
    if tensor is not None and tensor.is_floating_point() and tensor.ndim == 4:
        return _of_images(tensor, z)
    if tensor is not None and tensor.is_floating_point() and tensor.ndim == 3 and _convolves(study):
        return _along(tensor, z, 2, "the end")
    return _of_positions(x, z)


def _of_images(x: Tensor, z: Tensor) -> list[Symmetry]:
    found = _along(x, z, 3, "the edge")
    if x.shape[2] == x.shape[3] > 1 and (z.ndim < 4 or z.shape[2] == z.shape[3]):
        turns = ImageAction(Group.cyclic(4))
        out = turns if z.ndim == 4 else None
        found.append(Symmetry("turn", "quarter turns", Group.cyclic(4), turns, out))
    return found


def _along(x: Tensor, z: Tensor, axis: int, end: str) -> list[Symmetry]:
    """Shifts and reversal along an axis."""
    length, has = x.shape[axis], z.ndim == x.ndim
    points = z.shape[axis] if has else length
    if length < 2 or (has and (points < 2 or length % points)):
        return []
    stride = length // points
    shifts, out = _Shift(axis, stride), _Shift(axis, 1) if has else None
    found = [Symmetry("shift", f"shifts around {end}", Group.cyclic(points), shifts, out)]
    flips = _reversal(length, axis)
    mirrored = _reversal(points, axis)[1] if has else None
    return [*found, Symmetry("flip", "mirror images", flips[0], flips[1], mirrored)]


def _reversal(length: int, axis: int) -> tuple[Group, PointAction]:
    group = Group.from_permutations([torch.arange(length - 1, -1, -1)])
    return group, PointAction(group, axis=axis)


def _of_positions(x: Any, z: Tensor) -> list[Symmetry]:
    """Permutations of tokens or of vectors in a row."""
    tensors = [t for _, t in named_tensors(x)]
    rows = [t for t in tensors if t.ndim == 3 or (t.ndim == 2 and not t.is_floating_point())]
    lengths = {t.shape[1] for t in tensors if t.ndim > 1}
    if not rows or len(lengths) != 1 or (length := lengths.pop()) < 2:
        return []
    group = Group.symmetric(length)
    action = PointAction(group)
    out = action if z.ndim > 2 and z.shape[1] == length else None
    return [Symmetry("permutation", "permutations of the positions", group, action, out)]


def _of_graphs(x: Any, z: Tensor) -> list[Symmetry]:
    first = x[0] if isinstance(x, tuple) else x.get("x") if isinstance(x, dict) else None
    if not isinstance(first, Tensor) or first.ndim < 2:
        return []
    group = Group.symmetric(len(first))
    action = default_action(group, x)
    if type(action).__name__ != "GraphAction":
        return []
    out = PointAction(group, axis=0) if len(z) == len(first) else None
    return [Symmetry("permutation", "permutations of the nodes", group, action, out)]


def _convolves(study: Study) -> bool:
    return any(isinstance(module, nn.Conv1d) for module in study.model.modules())


def _standard_error(values: Tensor) -> float | None:
    """That of a mean, or None of a single number."""
    return float(values.std()) / sqrt(len(values)) if len(values) > 1 else None


def measured(study: Study, symmetry: Symmetry, x: Any) -> Iterator[Measurement | EquivarianceError]:
    """How far the network is from a symmetry, on some examples."""
    draw = study.generator(f"{symmetry.name} of geometry")
    samples = None if symmetry.group.order <= _ALL else _DRAWN
    kind: Callable[..., EquivarianceError] = invariance_error
    given: dict[str, Any] = {"group": symmetry.group, "action": symmetry.action}
    if symmetry.out_action is not None:
        kind, given["out_action"] = equivariance_error, symmetry.out_action
    found = kind(study.network, x, samples=samples, generator=draw, **given)
    moved = [i for i, g in enumerate(found.elements) if g != symmetry.group.identity]
    errors = found.errors[moved].double()
    each = errors.mean(0)
    spread = _standard_error(each)
    if len(errors) > 1 and (len(each) == 1 or samples is not None):
        spread = hypot(spread or 0.0, _standard_error(errors.mean(1)) or 0.0)
    stay = "of outputs that should stay as they are" if symmetry.out_action is None else (
        "of outputs that should move along")  # fmt: skip
    over = "n examples" if len(each) > 1 else f"one input, moved {len(errors)} times"
    over += f", {len(errors)} moves that were drawn" if samples and len(each) > 1 else ""
    how = f"mean relative change {stay}, under {symmetry.words}; {over}, error of their mean"
    alone = tuple(each.tolist()) if len(each) > 1 else ()
    value = float(each.mean())
    yield Measurement(f"{symmetry.name}_error", value, spread, "", len(each), how, alone)
    yield found
