"""Calls that move units about and change none: pooling, cutting, flattening, turning axes.

Each is a function of the call and of where its input has the units: where its output has them, or
None if they are no longer apart.
"""

from collections.abc import Callable
from math import prod
from typing import Any

from vademecum.models.tracing import Call
from vademecum.models.units._groups import Units

__all__ = ["MOVES", "given"]

_POOLS = {
    f"{kind}_pool{k}d": k
    for kind in ("max", "avg", "lp", "adaptive_avg", "adaptive_max")
    for k in (1, 2, 3)
}


def given(call: Call, *names: str) -> list[Any]:
    """Arguments by their names, in the order in which a function takes them."""
    found = dict(zip(names, call.args, strict=False)) | call.kwargs
    return [found.get(name) for name in names]


def _pooled(call: Call, before: Units) -> Units | None:
    axis = call.tensors[0].tensor.ndim - _POOLS[call.name] - 1
    return before if before[1:] == (axis, 1) else None


def _resized(call: Call, before: Units) -> Units | None:
    return before if before[1:] == (1, 1) else None


def _padded(call: Call, before: Units) -> Units | None:
    value, pad, _, filling = given(call, "input", "pad", "mode", "value")
    apart = len(pad) // 2 < value.tensor.ndim - before.axis
    return before if apart and not filling else None


def _cut(call: Call, before: Units) -> Units | None:
    """Along other axes than that of the units, and new axes."""
    index = call.args[1] if isinstance(call.args[1], tuple) else (call.args[1],)
    old = new = 0
    for each in index:
        if each is None:
            new += 1
        elif not isinstance(each, int | slice) or (old == before.axis and each != slice(None)):
            return None
        elif old == before.axis:
            break
        else:
            old, new = old + 1, new + isinstance(each, slice)
    return before._replace(axis=new + before.axis - old)


def _averaged(call: Call, before: Units) -> Units | None:
    value, dims, keepdim = given(call, "input", "dim", "keepdim")
    dims = [dims] if isinstance(dims, int) else dims
    if before.repeat != 1 or not dims:
        return None
    dims = {dim % value.tensor.ndim for dim in dims}
    if before.axis in dims:
        return None
    gone = 0 if keepdim else sum(dim < before.axis for dim in dims)
    return before._replace(axis=before.axis - gone)


def _reshaped(call: Call, before: Units) -> Units | None:
    """Of (..., units, positions) to (..., units times positions), or of axes before the units."""
    out = call.outputs[0]
    if out is None:
        return None
    old, new = call.tensors[0].tensor.shape, out.tensor.shape
    ahead, behind = old[: before.axis], old[before.axis :]
    if old == new:
        return before
    if new[:-1] == ahead:
        return Units(before.group, len(ahead), before.repeat * prod(behind[1:]))
    if len(behind) == 1 and new[-1:] == behind:
        return Units(before.group, len(new) - 1, before.repeat)
    together = before.repeat == 1 and new[: before.axis + 1] == old[: before.axis + 1]
    return before if together else None


def _swapped(call: Call, before: Units) -> Units | None:
    value, one, other = given(call, "input", "dim0", "dim1")
    order = list(range(value.tensor.ndim))
    order[one], order[other] = order[other], order[one]
    return before._replace(axis=order.index(before.axis))


def _turned(call: Call, before: Units) -> Units | None:
    value, *order = call.args
    order = list(order[0]) if order and isinstance(order[0], tuple | list) else order
    if len(order) != value.tensor.ndim:  # by name
        return None
    return before._replace(axis=[axis % len(order) for axis in order].index(before.axis))


MOVES: dict[str, Callable[[Call, Units], Units | None]] = {
    **dict.fromkeys(_POOLS, _pooled),
    **dict.fromkeys(("flatten", "view", "reshape"), _reshaped),
    **dict.fromkeys(("mean", "sum"), _averaged),
    **{"interpolate": _resized, "pad": _padded, "getitem": _cut},
    **{"transpose": _swapped, "permute": _turned},
}
"""The functions by the names of the calls."""
