"""Functions that a traced network may call, as steps of `vademecum.approximation.piecewise._maps`.

A call in a network's forward code has tensors that depend on the input, and constants. It is affine
in the former if it only moves or averages entries, adds, or multiplies by constants; it has kinks
if it is one of the functional forms of the known activations. Everything else is refused.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.approximation.piecewise._maps import (
    Affine,
    Largest,
    PiecewiseMap,
    clip,
    kinks,
)
from vademecum.approximation.piecewise._modules import module_maps

__all__ = ["FunctionCall", "call_maps"]

MOVES = {
    "flatten", "view", "reshape", "permute", "transpose", "movedim", "squeeze", "unsqueeze",
    "unflatten", "contiguous", "clone", "detach", "cat", "concat", "concatenate", "stack",
    "mean", "sum", "getitem", "narrow", "select", "repeat", "expand", "t", "avg_pool1d",
    "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d",
    "adaptive_avg_pool3d", "pixel_shuffle", "pixel_unshuffle",
}  # fmt: skip
MODULES = {
    "relu": nn.ReLU, "relu6": nn.ReLU6, "hardtanh": nn.Hardtanh, "leaky_relu": nn.LeakyReLU,
    "hardsigmoid": nn.Hardsigmoid, "softshrink": nn.Softshrink, "max_pool1d": nn.MaxPool1d,
    "max_pool2d": nn.MaxPool2d, "max_pool3d": nn.MaxPool3d,
    "adaptive_max_pool1d": nn.AdaptiveMaxPool1d, "adaptive_max_pool2d": nn.AdaptiveMaxPool2d,
}  # fmt: skip
ADD, MULTIPLY = ("add", "iadd", "sub", "isub"), ("mul", "imul", "truediv", "itruediv", "div")
WEIGHTED = ("linear", "conv1d", "conv2d", "conv3d")


@dataclass(frozen=True)
class FunctionCall:
    """A call in a network's code: the value of each argument, and which of them are tensors."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    places: list[int]  # of the positional arguments that depend on the network's input
    bind: Callable[..., Callable[..., Tensor]]
    """`bind(change)` is the call as a function of its tensors, its constants changed."""


def call_maps(name: str, call: FunctionCall, x: list[Tensor]) -> list[PiecewiseMap] | None:
    """The steps of a call whose tensors have the values `x`; None if it is not one of those known.

    Args:
        name: What the function or method is called.
        call: The call.
        x: Values of the tensors among its arguments.
    """
    options = {k: v for k, v in call.kwargs.items() if k != "inplace"}
    if name in MODULES and call.places == [0]:
        like = MODULES[name](*call.args[1:], **options) if name != "relu" else nn.ReLU()
        return module_maps(like, x[0])
    if name in ("clamp", "clip") and call.places == [0]:
        return _clamp(*call.args[1:], x=x[0], **options)
    if name == "dropout":
        active = call.kwargs.get("training", (*call.args, True, True)[2])
        return None if active else [Affine(lambda h: h, None, lambda h: h)]
    if name in ("abs", "absolute"):
        return [kinks(x[0], [0], [-1, 1])]
    if name in ("maximum", "minimum", "amax", "amin"):
        return _extreme(name, call, x)
    if name == "prelu":
        return _prelu(call, x)
    return _affine(name, call, x)


def _affine(name: str, call: FunctionCall, x: list[Tensor]) -> list[PiecewiseMap] | None:
    whole = call.bind()
    if name in MOVES:
        return [Affine(whole, None, whole)]
    if name == "neg":
        return [Affine(whole, None, lambda r: r)]
    if name in ADD and not call.kwargs:
        constant = len(call.places) < 2
        offset = whole(*(torch.zeros_like(t[:1]) for t in x)) if constant else None
        bare = call.bind(_zero)
        return [Affine(bare, offset, _total if "sub" in name else bare)]
    product = name in MULTIPLY or name in ("matmul", "mm")
    if product and not call.kwargs and (call.places == [0] or (call.places == [1] and "m" in name)):
        return [Affine(whole, None, call.bind(abs))]  # with one factor constant
    if name in WEIGHTED and call.places == [0] and len(call.args) > 1:
        return _weighted(call, x[0])
    if name == "pad" and call.places == [0]:
        offset = whole(torch.zeros_like(x[0][:1]))
        return [Affine(lambda h: whole(h) - offset, offset, lambda h: whole(h) - offset)]
    return None


def _total(*r: Tensor) -> Tensor:
    return torch.stack(torch.broadcast_tensors(*r)).sum(0)


def _zero(c: Any) -> Any:
    return torch.zeros_like(c) if isinstance(c, Tensor) else None if c is None else 0


def _weighted(call: FunctionCall, x: Tensor) -> list[PiecewiseMap]:
    weight = call.args[1]
    bias = call.kwargs.get("bias", call.args[2] if len(call.args) > 2 else None)
    bare = call.bind(lambda c: _zero(c) if c is bias else c)
    absolute = call.bind(lambda c: weight.abs() if c is weight else _zero(c) if c is bias else c)
    return [Affine(bare, None if bias is None else call.bind()(torch.zeros_like(x[:1])), absolute)]


def _extreme(name: str, call: FunctionCall, x: list[Tensor]) -> list[PiecewiseMap] | None:
    """The maximum or minimum of two branches, or along an axis."""
    sign = -1 if "min" in name else 1
    if name in ("maximum", "minimum"):
        if len(call.places) != 2:
            return None
        gather = lambda *h: sign * torch.stack(torch.broadcast_tensors(*h), -1)  # noqa: E731
    else:
        axes = call.kwargs.get("dim", call.args[1] if len(call.args) > 1 else None)
        if not isinstance(axes, int) or axes % x[0].ndim == 0 or call.kwargs.get("keepdim"):
            return None
        gather = lambda h: sign * h.movedim(axes, -1)  # noqa: E731
    units: list[PiecewiseMap] = [Affine(gather, None, lambda *r: sign * gather(*r)), Largest()]
    return units if sign > 0 else [*units, Affine(torch.neg, None, lambda r: r)]


def _clamp(min: Any = None, max: Any = None, *, x: Tensor) -> list[PiecewiseMap] | None:
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        return None
    return clip(x, -math.inf if min is None else min, math.inf if max is None else max)


def _prelu(call: FunctionCall, x: list[Tensor]) -> list[PiecewiseMap] | None:
    weight = call.args[1] if len(call.args) > 1 else call.kwargs.get("weight")
    if not isinstance(weight, Tensor) or call.places != [0]:
        return None
    slope = weight.view(-1, *[1] * (x[0].ndim - 2)) if weight.numel() > 1 else weight
    return [kinks(x[0], [0], [slope, 1])]
