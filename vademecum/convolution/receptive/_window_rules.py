"""What convolutions, pooling, padding and interpolation need of their inputs."""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vademecum.convolution.receptive._adjoint import Found, by_adjoint
from vademecum.convolution.receptive._needs import Need, Span, given, mixed, span_of, whole
from vademecum.convolution.receptive._windows import Window, slid
from vademecum.models import Call, Value

__all__ = ["WINDOWS"]


def _each(value: Any, n: int) -> list[Any]:
    """One number for each axis."""
    if isinstance(value, Sequence):
        return list(value) * (n if len(value) == 1 else 1)
    return [value] * n


def _first(call: Call, needs: list[Need | None]) -> tuple[Value, Need, tuple[Any, Any]]:
    """The input, what is needed of the first output, and both shapes."""
    (x, *_), (need, *_) = call.tensors, needs
    assert need is not None
    assert call.outputs[0] is not None
    return x, need, (x.tensor.shape, call.outputs[0].tensor.shape)


def _convolution(call: Call, needs: list[Need | None], *, transposed: bool) -> Found:
    names = ["input", "weight", "bias", "stride", "padding"]
    names += ["output_padding", "groups", "dilation"] if transposed else ["dilation", "groups"]
    options = given(call, *names)
    weight = options["weight"]
    if isinstance(weight, Value):
        return [(value, whole(value)) for value in call.tensors]
    x, need, shapes = _first(call, needs)
    n = weight.ndim - 2
    channels = x.tensor.ndim - n - 1
    stride, dilation = (_each(options.get(k, 1), n) for k in ("stride", "dilation"))
    taps, padding = weight.shape[2:], options.get("padding", 0)
    if padding == "same":
        padding = [d * (k - 1) // 2 for d, k in zip(dilation, taps, strict=True)]
    padding = _each(0 if padding == "valid" else padding, n)
    windows = {
        channels + 1 + i: Window(taps[i], stride[i], padding[i], dilation[i], transposed)
        for i in range(n)
    }
    need = _through_groups(need, channels, options.get("groups", 1), shapes)
    return [(x, slid(need, windows, shapes))]


def _through_groups(need: Need, axis: int, groups: int, shapes: tuple[Any, Any]) -> Need:
    """All channels of the groups in which one is needed."""
    if groups == 1 or need.mask.shape[axis] == 1:
        return mixed(need, [axis])
    mask = need.mask.unflatten(axis, (groups, -1)).any(axis + 1)
    return Need(mask.repeat_interleave(shapes[0][axis] // groups, axis), need.spans)


def _pool(call: Call, needs: list[Need | None], *, axes: int, names: tuple[str, ...]) -> Found:
    options = given(call, "input", *names)
    needs = [need for need in needs if need is not None]
    x, need, shapes = _first(call, needs)
    taps = _each(options["kernel_size"], axes)
    stride = options.get("stride")
    stride = taps if stride is None or stride == [] else _each(stride, axes)
    padding, dilation = (
        _each(options.get(k, v), axes) for k, v in (("padding", 0), ("dilation", 1))
    )
    start = x.tensor.ndim - axes
    windows = {start + i: Window(taps[i], stride[i], padding[i], dilation[i]) for i in range(axes)}
    return [(x, slid(need, windows, shapes))]


def _adaptive(call: Call, needs: list[Need | None], *, axes: int) -> Found:
    """Output $o$ of $m$ sees the inputs from $o n / m$ to $(o + 1) n / m$, rounded outwards."""
    x, need, (before, after) = _first(call, [need for need in needs if need is not None])
    mask, spans = need.mask, dict(need.spans)
    for axis in range(x.tensor.ndim - axes, x.tensor.ndim):
        n, m = before[axis], after[axis]
        places = [(o * n // m, -(-(o + 1) * n // m)) for o in range(m)]
        if n == m:
            continue
        matrix = torch.zeros(m, n, dtype=torch.bool)
        for o, (low, high) in enumerate(places):
            matrix[o, low:high] = True
        span = span_of(need, axis, m)
        if n % m == 0 and m > 1:  # equal windows
            spans[axis] = Window(n // m, n // m).moved(span)
        else:
            edges = places[min(max(span.low, 0), m - 1)][0], places[min(span.high, m - 1)][1] - 1
            spans[axis] = Span(*edges, span.jump * Fraction(n, m) if m > 1 else Fraction(0))
        mask = _by_matrix(mask, axis, matrix)
    return [(x, Need(mask, spans))]


def _by_matrix(mask: Tensor, axis: int, matrix: Tensor) -> Tensor:
    """The inputs that a matrix of (output, input) ties to the outputs in a mask, along an axis."""
    line = mask.movedim(axis, -1)
    line = line.expand(*line.shape[:-1], len(matrix))
    return (line.float() @ matrix.float() > 0).movedim(-1, axis)


def _pad(call: Call, needs: list[Need | None]) -> Found:
    options = given(call, "input", "pad", "mode", "value")
    x, need, (_, after) = _first(call, needs)
    sides = list(options["pad"])
    spans = dict(need.spans)
    for i, left in enumerate(sides[::2]):
        axis = x.tensor.ndim - 1 - i
        if left or sides[2 * i + 1]:
            low, high, jump = span_of(need, axis, after[axis])
            spans[axis] = Span(low - left, high - left, jump)
    mask = by_adjoint(call, [need], thin=x.tensor.ndim - len(sides) // 2)[0][1].mask
    return [(x, Need(mask, spans))]


def _interpolate(call: Call, needs: list[Need | None], *, names: tuple[str, ...]) -> Found:
    options = given(call, "input", *names)
    mode = {"upsample_bilinear": "bilinear"}.get(call.name) or options.get("mode", "nearest")
    corners = bool(options.get("align_corners")) or call.name == "upsample_bilinear"
    x, need, (before, after) = _first(call, needs)
    factor, spans = options.get("scale_factor"), dict(need.spans)
    factor = None if factor is None or options.get("recompute_scale_factor") else factor
    factors = _each(factor, x.tensor.ndim - 2)
    for axis in range(2, x.tensor.ndim):
        n, m = before[axis], after[axis]
        span = span_of(need, axis, m)
        scale = Fraction(factors[axis - 2]).limit_denominator(10**6) if factor else Fraction(m, n)
        if options.get("antialias") or mode == "area" or (corners and m == 1):
            spans.pop(axis, None)
            continue
        step = Fraction(n - 1, m - 1) if corners else 1 / scale
        low, high = (_reach(mode, o, step, corners) for o in (span.low, span.high))
        spans[axis] = Span(low[0], high[1], span.jump * step)
    mask = by_adjoint(call, [need], thin=2)[0][1].mask
    found = Need(mask, spans)
    return [(x, found)]


def _reach(mode: str, o: int, step: Fraction, corners: bool) -> tuple[int, int]:
    """The first and the last input that an output is made of."""
    if mode == "nearest":
        return math.floor(o * step), math.floor(o * step)
    at = o * step if corners else (o + Fraction(1, 2)) * step - Fraction(1, 2)
    if mode == "nearest-exact":
        place = math.floor((o + Fraction(1, 2)) * step)
        return place, place
    low, high = math.floor(at), math.ceil(at)
    if mode == "bicubic" and low != high:
        return low - 1, high + 1
    return low, high


def _shuffled(call: Call, needs: list[Need | None], *, up: bool) -> Found:
    """Channels that become positions, or positions that become channels."""
    x, need, (_, after) = _first(call, needs)
    name = "upscale_factor" if up else "downscale_factor"
    factor, ndim, spans = given(call, "input", name)[name], x.tensor.ndim, {}
    for axis in (ndim - 2, ndim - 1):
        low, high, jump = span_of(need, axis, after[axis])
        if up:
            spans[axis] = Span(low // factor, high // factor, jump / factor)
        else:
            spans[axis] = Span(low * factor, (high + 1) * factor - 1, jump * factor)
    return [(x, Need(by_adjoint(call, [need])[0][1].mask, spans))]


_MAX = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
_AVERAGE = ("kernel_size", "stride", "padding", "ceil_mode")
_POWER = ("norm_type", "kernel_size", "stride", "ceil_mode")
_RESIZE = ("size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias")
WINDOWS = {
    **{f"conv{i}d": partial(_convolution, transposed=False) for i in (1, 2, 3)},
    **{f"conv_transpose{i}d": partial(_convolution, transposed=True) for i in (1, 2, 3)},
    **{
        f"max_pool{i}d{end}": partial(_pool, axes=i, names=_MAX)
        for i in (1, 2, 3)
        for end in ("", "_with_indices")
    },
    **{f"avg_pool{i}d": partial(_pool, axes=i, names=_AVERAGE) for i in (1, 2, 3)},
    **{f"lp_pool{i}d": partial(_pool, axes=i, names=_POWER) for i in (1, 2, 3)},
    **{
        f"adaptive_{kind}_pool{i}d{end}": partial(_adaptive, axes=i)
        for i in (1, 2, 3)
        for kind, end in (("avg", ""), ("max", ""), ("max", "_with_indices"))
    },
    "pad": _pad,
    "pixel_shuffle": partial(_shuffled, up=True),
    "pixel_unshuffle": partial(_shuffled, up=False),
    **dict.fromkeys(("interpolate", "upsample"), partial(_interpolate, names=_RESIZE)),
    **dict.fromkeys(
        ("upsample_nearest", "upsample_bilinear"),
        partial(_interpolate, names=("size", "scale_factor")),
    ),
}
"""What these operations need, by their names."""
