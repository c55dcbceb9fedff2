"""Calls that make units: scalar functions with kinks, and maxima.

A minimum is a maximum with its signs changed, pooling a maximum over windows. The rules have the
form of those for affine calls.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vademecum.approximation.piecewise._affine_rules import Rule, constant, same
from vademecum.approximation.piecewise._maps import Affine, Largest, PiecewiseMap, kinks
from vademecum.models import Call, Value

__all__ = ["UNITS"]

Maps = list[PiecewiseMap]


def _relu(call: Call, out: Value, input: Any, inplace: bool = False) -> Maps:
    return [kinks(out.tensor, [0], [0, 1])]


def _leaky_relu(
    call: Call, out: Value, input: Any, negative_slope: float = 0.01, inplace: bool = False
) -> Maps:
    return [kinks(out.tensor, [0], [negative_slope, 1])]


def _rrelu(
    call: Call, out: Value, input: Any, lower: float = 1 / 8, upper: float = 1 / 3,
    training: bool = False, inplace: bool = False,
) -> Maps | None:  # fmt: skip
    return None if training else [kinks(out.tensor, [0], [(lower + upper) / 2, 1])]


def _prelu(call: Call, out: Value, input: Any, weight: Any) -> Maps | None:
    if call.places != 1:
        return None
    slope = weight.detach()
    if slope.numel() > 1:
        slope = slope.view(-1, *[1] * (out.tensor.ndim - 2))
    return [kinks(out.tensor, [0], [slope, 1])]


def _absolute(call: Call, out: Value, input: Any) -> Maps:
    return [kinks(out.tensor, [0], [-1, 1])]


def _threshold(
    call: Call, out: Value, input: Any, threshold: float, value: float, inplace: bool = False
) -> Maps:
    if value != threshold:
        raise ValueError(f"must not jump, got {value} up to the threshold {threshold}")
    return [kinks(out.tensor, [value], [0, 1], [value, 0])]


def _hardsigmoid(call: Call, out: Value, input: Any, inplace: bool = False) -> Maps:
    return [kinks(out.tensor, [-3, 3], [0, 1 / 6, 0], [0, 0.5, 1])]


def _softshrink(call: Call, out: Value, input: Any, lambd: float = 0.5) -> Maps:
    return [kinks(out.tensor, [-lambd, lambd], [1, 0, 1], [lambd, 0, -lambd])]


def _relu6(call: Call, out: Value, input: Any, inplace: bool = False) -> Maps | None:
    return _clamp(call, out, input, 0.0, 6.0)


def _hardtanh(
    call: Call, out: Value, input: Any, min_val: float = -1.0, max_val: float = 1.0,
    inplace: bool = False,
) -> Maps | None:  # fmt: skip
    return _clamp(call, out, input, min_val, max_val)


def _clamp_max(call: Call, out: Value, input: Any, max: Any) -> Maps | None:
    return _clamp(call, out, input, max=max)


def _clamp(call: Call, out: Value, input: Any, min: Any = None, max: Any = None) -> Maps | None:
    """The identity between two ends; one that is infinite is no threshold."""
    if not isinstance(input, Value) or call.places != 1:
        return None
    low, high = (None if _endless(end) else _of_one(end, out) for end in (min, max))
    if low is not None and high is not None and not _below(low, high):
        ends = (end.tolist() if isinstance(end, Tensor) else end for end in (low, high))
        raise ValueError("must have a lower end below the upper one, got {} and {}".format(*ends))
    thresholds, slopes, intercepts = [], [1], [0]
    if low is not None:
        thresholds, slopes, intercepts = [low], [0, 1], [low, 0]
    if high is not None:
        thresholds, slopes, intercepts = [*thresholds, high], [*slopes, 0], [*intercepts, high]
    before = _broadened(input, out)
    if not thresholds:
        return before or [Affine(same, None, same, lambda rows: [rows])]
    return [*before, kinks(out.tensor, thresholds, slopes, intercepts)]


def _endless(end: Any) -> bool:
    return end is None or (not isinstance(end, Tensor | tuple) and math.isinf(end))


def _of_one(end: Any, out: Value) -> Any:
    """A constant for one example."""
    c = constant(end)
    return c[0] if isinstance(c, Tensor) and c.ndim == out.tensor.ndim else c


def _below(low: Any, high: Any) -> bool:
    return bool((torch.as_tensor(low) < torch.as_tensor(high)).all())


def _broadened(input: Value, out: Value) -> Maps:
    shape = out.tensor.shape[1:]
    if input.tensor.shape[1:] == shape:
        return []

    def expand(h: Tensor) -> Tensor:
        return h.expand(len(h), *shape)

    return [Affine(expand, None, expand)]


def _larger(call: Call, out: Value, input: Any, other: Any, *, sign: int = 1) -> Maps | None:
    """The larger of two tensors, one of which may be constant."""
    if call.places == 1:
        x, c = (input, other) if isinstance(input, Value) else (other, input)
        return _clamp(call, out, x, c) if sign > 0 else _clamp(call, out, x, None, c)
    if len(call.tensors) != 2:
        return None

    def gather(*h: Tensor) -> Tensor:
        return sign * torch.stack(torch.broadcast_tensors(*h), -1)

    return _largest(gather, sign)


def _smaller(call: Call, out: Value, input: Any, other: Any) -> Maps | None:
    return _larger(call, out, input, other, sign=-1)


def _max(
    call: Call, out: Value, input: Any, dim: Any = None, keepdim: bool = False, *, sign: int = 1,
    other: Any = None,
) -> Maps | None:  # fmt: skip
    """`max` with another tensor or along an axis, where it gives indices too."""
    second = dim if other is None else other
    if isinstance(second, Value | tuple | Tensor):
        return _larger(call, out, input, second, sign=sign)
    if out is not call.outputs[0]:
        return None
    return _amax(call, out, input, dim, keepdim, sign=sign)


def _min(call: Call, out: Value, *args: Any, **options: Any) -> Maps | None:
    return _max(call, out, *args, **options, sign=-1)


def _amax(
    call: Call, out: Value, input: Any, dim: Any = (), keepdim: bool = False, *, sign: int = 1
) -> Maps | None:
    """The largest entry along axes."""
    ndim, dims = input.tensor.ndim, dim if isinstance(dim, Sequence) else [dim]
    axes = sorted(d % ndim for d in dims if isinstance(d, int))
    if not axes or 0 in axes:
        return None
    rest = [d for d in range(ndim) if d not in axes]

    def gather(h: Tensor) -> Tensor:
        return sign * h.permute(*rest, *axes).flatten(len(rest))

    maps = _largest(gather, sign)
    if keepdim:
        kept, bare = out.tensor.shape[1:], [input.tensor.shape[d] for d in rest[1:]]

        def widen(h: Tensor) -> Tensor:
            return h.view(len(h), *kept)

        maps.append(Affine(widen, None, widen, lambda rows: [rows.view(*rows.shape[:2], *bare)]))
    return maps


def _amin(call: Call, out: Value, *args: Any, **options: Any) -> Maps | None:
    return _amax(call, out, *args, **options, sign=-1)


def _largest(gather: Any, sign: int) -> Maps:
    """The largest, or with a sign the smallest, of what a function gathers along the last axis."""
    maps: Maps = [Affine(gather, None, lambda *r: sign * gather(*r)), Largest()]
    if sign < 0:
        maps.append(Affine(torch.neg, None, same, lambda rows: [-rows]))
    return maps


def _max_pool(
    call: Call, out: Value, input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
    dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Maps | None:  # fmt: skip
    if out is not call.outputs[0]:
        return None
    axes = int(call.name.removesuffix("_with_indices")[-2])
    each = [_per_axis(v, axes) for v in (kernel_size, stride or kernel_size, padding, dilation)]
    windows = [
        torch.arange(n)[:, None] * step - pad + torch.arange(k) * wide
        for n, k, step, pad, wide in zip(out.tensor.shape[-axes:], *each, strict=True)
    ]
    return _pool(input.tensor, windows)


def _adaptive_max_pool(call: Call, out: Value, input: Any, *args: Any, **options: Any) -> Any:
    if out is not call.outputs[0]:
        return None
    axes, windows = int(call.name.removesuffix("_with_indices")[-2]), []
    for n, m in zip(input.tensor.shape[-axes:], out.tensor.shape[-axes:], strict=True):
        start = torch.arange(m) * n // m
        end = -(-(torch.arange(m) + 1) * n // m)
        window = start[:, None] + torch.arange(int((end - start).max()))
        windows.append(torch.where(window < end[:, None], window, -1))
    return _pool(input.tensor, windows)


def _pool(x: Tensor, windows: list[Tensor]) -> Maps:
    """The maximum over windows; entries outside the image are replaced by one that is inside."""
    axes, table = len(windows), torch.zeros((1, 1), dtype=torch.long)
    for window, n in zip(windows, x.shape[-axes:], strict=True):
        inside = (window >= 0) & (window < n)
        window = torch.where(inside, window, window.gather(1, inside.long().argmax(1)[:, None]))
        table = table[:, None, :, None] * n + window[None, :, None, :]
        table = table.flatten(0, 1).flatten(1)
    shape = [len(window) for window in windows]
    index = table.flatten().to(x.device)

    def gather(h: Tensor) -> Tensor:
        return h.flatten(-axes).index_select(-1, index).unflatten(-1, (*shape, table.shape[1]))

    return [Affine(gather, None, gather), Largest()]


def _per_axis(value: Any, axes: int) -> tuple[int, ...]:
    value = tuple(value) if isinstance(value, tuple | list) else (value,)
    return value * axes if len(value) == 1 else value


POOLS = [f"max_pool{i}d{end}" for i in (1, 2, 3) for end in ("", "_with_indices")]
UNITS: dict[str, Rule] = {
    **dict.fromkeys(("abs", "absolute"), _absolute),
    **dict.fromkeys(("clamp", "clip", "clamp_min"), _clamp),
    **dict.fromkeys(("maximum", "fmax"), _larger),
    **dict.fromkeys(("minimum", "fmin"), _smaller),
    **dict.fromkeys(POOLS, _max_pool),
    **dict.fromkeys((f"adaptive_{pool}" for pool in POOLS), _adaptive_max_pool),
    "clamp_max": _clamp_max,
    "relu": _relu,
    "relu6": _relu6,
    "hardtanh": _hardtanh,
    "leaky_relu": _leaky_relu,
    "rrelu": _rrelu,
    "prelu": _prelu,
    "threshold": _threshold,
    "hardsigmoid": _hardsigmoid,
    "softshrink": _softshrink,
    "max": _max,
    "min": _min,
    "amax": _amax,
    "amin": _amin,
}
"""Rules by the names of calls."""
