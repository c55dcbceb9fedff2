"""What operations need that join tensors, or take parts of them."""

from collections.abc import Callable
from numbers import Integral
from types import EllipsisType
from typing import Any

import torch

from vademecum.convolution.receptive._adjoint import Found, by_adjoint
from vademecum.convolution.receptive._needs import Need, Span, given, joined
from vademecum.models import Call, Value

__all__ = ["PARTS", "spelt_out"]


def _concatenated(call: Call, needs: list[Need | None]) -> Found:
    options = given(call, "tensors", "dim")
    parts, (need, *_) = options["tensors"], needs
    assert need is not None
    axis = options.get("dim", 0) % need.mask.ndim
    found, start = [], 0
    for part in parts:
        tensor = part.tensor if isinstance(part, Value) else part
        size = tensor.shape[axis] if tensor.ndim == need.mask.ndim else 0
        if isinstance(part, Value) and size:
            mask = need.mask
            mask = mask if mask.shape[axis] == 1 else mask.narrow(axis, start, size)
            found.append((part, Need(mask, _cut(need, axis, start, size))))
        start += size
    return [(value, n) for value, n in found if bool(n.mask.any())]


def _cut(need: Need, axis: int, start: int, size: int) -> dict[int, Span]:
    """The spans of a part of a tensor along an axis."""
    spans = dict(need.spans)
    if axis in spans:
        low, high, jump = spans[axis]
        spans[axis] = Span(low - start, high - start, jump)
        if not 0 <= low - start <= high - start < size:  # beside other parts, not beside padding
            del spans[axis]
    return spans


def _stacked(call: Call, needs: list[Need | None]) -> Found:
    options = given(call, "tensors", "dim")
    (need, *_) = needs
    assert need is not None
    axis, found = options.get("dim", 0) % need.mask.ndim, []
    for i, part in enumerate(options["tensors"]):
        if isinstance(part, Value):
            mask = need.mask.select(axis, i if need.mask.shape[axis] > 1 else 0)
            spans = {a - (a > axis): s for a, s in need.spans.items() if a != axis}
            found.append((part, Need(mask, spans)))
    return [(value, n) for value, n in found if bool(n.mask.any())]


def _split(call: Call, needs: list[Need | None]) -> Found:
    """Parts along an axis."""
    (x,) = call.tensors
    parts = [out.tensor.shape for out in call.outputs if out is not None]
    whole = x.tensor.shape
    different = [a for a in range(len(whole)) if any(p[a] != whole[a] for p in parts)]
    if not different:
        return [(x, need) for need in needs if need is not None]
    (axis,), start, found = different, 0, None
    for part, need in zip(parts, needs, strict=True):
        if need is not None:
            one = _placed(need, axis, start, part[axis], whole[axis])
            found = one if found is None else joined(found, one, whole)
        start += part[axis]
    return [] if found is None else [(x, found)]


def _placed(need: Need, axis: int, start: int, length: int, size: int) -> Need:
    """What is needed of a tensor of a size along an axis, for what is needed of a part of it."""
    long = list(need.mask.shape)
    room = list(long)
    long[axis], room[axis] = length, size
    mask = torch.zeros(room, dtype=torch.bool)
    mask.narrow(axis, start, length).copy_(need.mask.expand(long))
    spans = dict(need.spans)
    if axis in spans:
        low, high, jump = spans[axis]
        spans[axis] = Span(low + start, high + start, jump)
    return Need(mask, spans)


def _indexed(call: Call, needs: list[Need | None]) -> Found:
    """Entries at an index; slices keep what lies beside them thin."""
    (need, *_) = needs
    assert need is not None
    x, index = call.args[0], spelt_out(call)
    if index is None:
        return by_adjoint(call, needs)
    shape = x.tensor.shape
    kept = [i for i in index if not isinstance(i, Integral)]  # the axes of the output
    new = [o for o, i in enumerate(kept) if i is None]
    mask = need.mask.any(new) if new else need.mask
    outs = iter([o for o in range(len(kept)) if o not in new])
    room, spans, thin = [], {}, iter(mask.shape)
    for axis, i in enumerate(i for i in index if i is not None):
        if isinstance(i, Integral):
            room.append(shape[axis])
            continue
        length, out = next(thin), next(outs)
        room.append(length if i == slice(None) else shape[axis])
        if out in need.spans:
            start, _, step = i.indices(shape[axis])
            low, high, jump = need.spans[out]
            spans[axis] = Span(start + low * step, start + high * step, jump * step)
    found = torch.zeros(room, dtype=torch.bool)
    found[tuple(i for i in index if i is not None)] = mask
    return [(x, Need(found, spans))]


def spelt_out(call: Call) -> list[Any] | None:
    """The index of a call, with a slice for each axis that it leaves out.

    None if tensors, lists or truth values are in it, or what it is for does not depend on x.
    """
    x, index = call.args
    index = index if isinstance(index, tuple) else (index,)
    if not isinstance(x, Value) or not all(
        isinstance(i, slice | Integral | EllipsisType | None) and not isinstance(i, bool)
        for i in index
    ):
        return None
    given_ = sum(isinstance(i, slice | Integral) for i in index)
    at = index.index(Ellipsis) if Ellipsis in index else len(index)
    return [*index[:at], *[slice(None)] * (x.tensor.ndim - given_), *index[at + 1 :]]


PARTS: dict[str, Callable[[Call, list[Need | None]], Found]] = {
    **dict.fromkeys(("cat", "concat", "concatenate"), _concatenated),
    **dict.fromkeys(
        ("split", "split_with_sizes", "chunk", "tensor_split", "unsafe_chunk", "unsafe_split"),
        _split,
    ),
    "stack": _stacked,
    "getitem": _indexed,
}
"""What these operations need, by their names."""
