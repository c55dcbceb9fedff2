"""Calls of torch in a network's code as maps of moments, where theory knows them.

Weights are constants: whatever is differentiated in is a signal. A rule is given the arguments of a
call and what it gave, and returns the map with the signals that it maps, or None.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.regularization.signal._gaussian_signals import closed_form
from vademecum.regularization.signal._maps import (
    Activation,
    Affine,
    Joined,
    LayerMap,
    Pooled,
    Sum,
    squares,
)
from vademecum.regularization.signal._measured_moments import Measured
from vademecum.regularization.signal._norm_rules import (
    alpha_dropout,
    batch_norm,
    dropout,
    group_norm,
    instance_norm,
    layer_norm,
    rms_norm,
)
from vademecum.regularization.signal._weight_rules import (
    addmm,
    convolution,
    linear,
    product,
    transposed_convolution,
)

__all__ = ["ACTIVATIONS", "MOVES", "Measure", "Rule", "rule_for"]

Measure = Callable[[Tensor], Measured]
"""Sums of moments of a signal."""
Rule = tuple[LayerMap, list[Tensor]]
"""A map, and the signals that it maps."""

ACTIVATIONS = {
    "relu", "relu6", "leaky_relu", "prelu", "rrelu", "elu", "selu", "celu", "gelu", "silu", "mish",
    "softplus", "sigmoid", "logsigmoid", "tanh", "hardtanh", "hardswish", "hardsigmoid", "softsign",
    "tanhshrink", "softshrink", "hardshrink", "threshold", "sin", "cos", "abs", "erf", "square",
    "atan", "arctan",
}  # fmt: skip
"""Functions of each entry."""
MOVES = {
    "view", "reshape", "flatten", "unflatten", "transpose", "permute", "contiguous", "clone", "to",
    "float", "double", "half", "bfloat16", "type", "type_as", "squeeze", "unsqueeze", "swapaxes",
    "swapdims", "movedim", "moveaxis", "roll", "flip", "getitem", "chunk", "split", "unbind",
    "narrow", "select", "t", "T", "mT", "tensor_split", "view_as", "reshape_as", "cuda", "cpu",
}  # fmt: skip
"""Calls that give entries other places, or take some of them."""
_SUMS = {"add": 1.0, "radd": 1.0, "iadd": 1.0, "sub": -1.0, "isub": -1.0}
_MEANS = {"avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d",
          "adaptive_avg_pool3d", "mean"}  # fmt: skip
_MAXIMA = {"max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
           "adaptive_max_pool3d", "amax"}  # fmt: skip


def rule_for(
    name: str,
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    out: Tensor,
    measure: Measure,
) -> Rule | None:
    """The map that a call is, if theory knows it.

    Args:
        name: What the function is called, without underscores.
        func: The function.
        args: What it was called with.
        kwargs: What it was called with by name.
        out: What it gave, the first tensor of several.
        measure: What measures a signal.
    """
    x = args[0] if args else kwargs.get("input")
    if not isinstance(x, Tensor):
        return _reflected(name, args) if name in _SCALARS else _joined(name, args, kwargs, out)
    if name in MOVES:
        return (Affine(), [x]) if x.requires_grad and _plain_index(name, args) else None
    if name in ACTIVATIONS:
        return _activation(name, func, args, kwargs) if x.requires_grad else None
    if name in _SUMS or name == "rsub" or name in _SCALARS:
        return _arithmetic(name, args, kwargs, out)
    if name in _MEANS | _MAXIMA:
        entries = _window(name, args, kwargs, x, out)
        pooled = Pooled(measure(x), measure(out), entries, largest=name in _MAXIMA)
        return (pooled, [x]) if x.requires_grad else None
    if name in _GROUPED:
        return _GROUPED[name](*args, **kwargs, measure=measure)
    read = _LAYERS.get(name)
    return None if read is None else read(*args, **kwargs)


def _window(name: str, args: Any, kwargs: Any, x: Tensor, out: Tensor) -> float:
    """How many entries are pooled into one."""
    if name.startswith(("avg", "max")):
        size = args[1] if len(args) > 1 else kwargs["kernel_size"]
        return size ** int(name[-2]) if isinstance(size, int) else math.prod(size)
    return x.numel() / out.numel()


def _plain_index(name: str, args: tuple[Any, ...]) -> bool:
    """Whether each entry is taken once at most: not by a tensor of places."""
    places = args[1] if name == "getitem" else ()
    return not any(
        isinstance(i, Tensor | list) for i in (places if isinstance(places, tuple) else (places,))
    )


def _activation(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Rule:
    x = args[0] if args else kwargs["input"]
    rest = args[1:]
    named = {k: v for k, v in kwargs.items() if k not in ("input", "inplace")}
    if name in _IN_PLACE_SECOND:
        rest = ()
    if getattr(func, "__name__", "").endswith("_"):
        func = getattr(torch, name, None) or getattr(F, name)
    slope = (*rest, named.get("negative_slope", 0.01))[0] if name == "leaky_relu" else 0.01

    def alone(u: Tensor) -> Tensor:
        keywords = dict(zip(named, _as(tuple(named.values()), u), strict=True))
        return func(u, *_as(rest, u), **keywords)

    return Activation(alone, closed_form(name, float(slope))), [x]


_IN_PLACE_SECOND = {"relu", "silu", "mish", "selu", "hardswish", "relu6", "hardsigmoid"}
"""Functions whose second argument says whether they work in place."""


def _as(constants: tuple[Any, ...], u: Tensor) -> list[Any]:
    """Constants in the dtype and place of a signal; of parameters for each channel the mean."""
    return [c.mean().to(u) if isinstance(c, Tensor) else c for c in constants]


_SCALARS = {"mul", "rmul", "imul", "div", "truediv", "itruediv", "idiv", "neg"}


def _arithmetic(name: str, args: Any, kwargs: Any, out: Tensor) -> Rule | None:
    if name == "neg":
        return Affine(_constant(-1.0, args[0])), [args[0]]
    x, other = args[0], args[1] if len(args) > 1 else kwargs.get("other")
    factor = float(kwargs.get("alpha", 1)) * _SUMS.get(name, 1.0)
    if isinstance(other, Tensor) and other.requires_grad:
        if not x.requires_grad:
            x, other, swapped = other, x, True
        elif name not in _SUMS:
            return None
        elif other is x:
            return Affine(_constant(1 + factor, x)), [x]
        else:
            return (Sum(factor), [x, other]) if out.shape in (x.shape, other.shape) else None
    else:
        swapped = False
    if not isinstance(other, Tensor | int | float) or isinstance(other, bool):
        return None
    constant = _constant(other, x)
    if name in _SUMS or name == "rsub":
        flip = name == "rsub" or (swapped and name in ("sub", "isub"))
        sign = torch.tensor([1.0, -1.0], device=x.device, dtype=torch.float64)
        shift = torch.stack([constant[0] * factor**2, constant[1] * factor])
        return (Affine(sign, constant) if flip else Affine(None, shift)), [x]
    if "div" in name:
        if swapped:
            return None
        constant = _constant(1 / other if isinstance(other, Tensor) or other else math.inf, x)
    return Affine(constant), [x]


def _reflected(name: str, args: tuple[Any, ...]) -> Rule | None:
    """A number times a signal, in this order."""
    if len(args) == 2 and name in ("mul", "rmul") and isinstance(args[1], Tensor):
        return Affine(_constant(args[0], args[1])), [args[1]]
    return None


def _constant(value: Any, like: Tensor) -> Tensor:
    if isinstance(value, Tensor):
        return squares(value).to(like.device)
    return torch.tensor([value * value, value], dtype=torch.float64, device=like.device)


def _joined(name: str, args: Any, kwargs: Any, out: Tensor) -> Rule | None:
    if name not in ("cat", "concat", "concatenate", "stack", "hstack", "vstack"):
        return None
    parts = list(args[0] if args else kwargs["tensors"])
    if not all(isinstance(t, Tensor) and t.requires_grad for t in parts):
        return None
    total = sum(t.numel() for t in parts)
    return Joined([t.numel() / total for t in parts]), parts


_LAYERS: dict[str, Callable[..., Rule | None]] = {
    "linear": linear, "matmul": product, "mm": product, "addmm": addmm,
    "conv1d": convolution, "conv2d": convolution, "conv3d": convolution,
    "conv_transpose1d": transposed_convolution, "conv_transpose2d": transposed_convolution,
    "conv_transpose3d": transposed_convolution, "dropout": dropout, "dropout1d": dropout,
    "dropout2d": dropout, "dropout3d": dropout, "alpha_dropout": alpha_dropout,
    "feature_alpha_dropout": alpha_dropout, "layer_norm": layer_norm, "rms_norm": rms_norm,
    "batch_norm": batch_norm,
}  # fmt: skip
_GROUPED: dict[str, Callable[..., Rule | None]] = {
    "group_norm": group_norm, "instance_norm": instance_norm,
}  # fmt: skip
