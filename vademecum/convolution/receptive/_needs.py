r"""What is needed of a tensor: a mask of its entries, and spans that padding does not cut.

A mask has as many axes as its tensor; an axis of length 1 stands for entries that are alike all
along it, so that channels, which are mostly needed all or none, cost nothing. A span is the extent
$[\mathrm{low}, \mathrm{high}]$ along an axis, of positions that may lie in the padding, and the
jump, by which it moves when the unit moves by one. Where an operation has windows, spans go through
it by its formula, otherwise they are the extent of the mask.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vademecum.models import Call, Value

__all__ = [
    "Need",
    "Span",
    "given",
    "joined",
    "matched",
    "mixed",
    "only",
    "span_of",
    "thinned",
    "whole",
]


class Span(NamedTuple):
    """The extent along an axis, and by how much it moves with the unit."""

    low: int
    high: int
    jump: Fraction


class Need(NamedTuple):
    """What is needed of a tensor."""

    mask: Tensor
    spans: dict[int, Span]


def whole(value: Value) -> Need:
    """All of a tensor."""
    return Need(torch.ones((1,) * value.tensor.ndim, dtype=torch.bool), {})


def only(needs: list[Need | None]) -> Need:
    """What is needed of the first output of which anything is."""
    return next(need for need in needs if need is not None)


def span_of(need: Need, axis: int, size: int) -> Span:
    """The span along an axis of a tensor that is that long; of the mask where there is no other."""
    if axis in need.spans:
        return need.spans[axis]
    others = [a for a in range(need.mask.ndim) if a != axis]
    line = need.mask.any(others) if others else need.mask
    places = line.expand(size).nonzero()
    return Span(int(places[0]), int(places[-1]), Fraction(0))


def joined(one: Need, other: Need, shape: Sequence[int]) -> Need:
    """What either needs of a tensor of a shape."""
    spans = {}
    for axis in one.spans.keys() | other.spans.keys():
        a, b = span_of(one, axis, shape[axis]), span_of(other, axis, shape[axis])
        jump = min((a.low, a.jump), (b.low, b.jump))[1]  # of what comes first, so does the start
        spans[axis] = Span(min(a.low, b.low), max(a.high, b.high), jump)
    return Need(one.mask | other.mask, spans)


def mixed(need: Need, axes: Iterable[int]) -> Need:
    """Everything along some axes, wherever anything is needed."""
    ndim = need.mask.ndim
    over = sorted({a % ndim for a in axes})
    mask = need.mask.any(over, keepdim=True) if over else need.mask
    return Need(mask, {a: s for a, s in need.spans.items() if a not in over})


def matched(need: Need, shape: Sequence[int]) -> Need:
    """What is needed of a tensor that was broadcast to the needed one."""
    mask, spans = need
    extra = mask.ndim - len(shape)
    if extra > 0:
        mask = mask.any(tuple(range(extra)))
    spans = {a - extra: s for a, s in spans.items() if a >= extra}
    short = [a for a, n in enumerate(shape) if n == 1]
    if short:
        mask = mask.any(short, keepdim=True)
    return Need(mask, {a: s for a, s in spans.items() if a not in short})


def thinned(mask: Tensor) -> Tensor:
    """The mask with axes of length 1 where all entries are alike."""
    for axis in range(mask.ndim):
        if mask.shape[axis] > 1:
            first = mask.narrow(axis, 0, 1)
            if bool((mask == first).all()):
                mask = first
    return mask


def given(call: Call, *names: str) -> dict[str, Any]:
    """The arguments of a call by their names, as far as they were given; `axis` is called `dim`."""
    named = {_SPELT.get(name, name): a for name, a in call.kwargs.items()}
    return {**dict(zip(names, call.args, strict=False)), **named}


_SPELT = {"axis": "dim", "keepdims": "keepdim"}  # NumPy's names, which torch takes as well
