"""Linear maps with weights as maps of moments: how many inputs each output has, edges counted."""

from typing import Any

import torch
from torch import Tensor

from vademecum.regularization.signal._maps import LayerMap, Weights, squares

__all__ = ["addmm", "convolution", "linear", "product", "transposed_convolution"]

Rule = tuple[LayerMap, list[Tensor]]


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Rule | None:
    """A layer whose weights are constants; None where they are signals."""
    if not input.requires_grad or weight.requires_grad:
        return None
    return Weights(weight.shape[-1], squares(weight), None if bias is None else squares(bias)), [
        input
    ]


def product(input: Tensor, other: Tensor) -> Rule | None:
    """A signal times a matrix of constants from the right; None for other products."""
    known = isinstance(other, Tensor) and other.ndim == 2 and input.ndim > 1
    return linear(input, other.mT) if known else None


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """A linear layer as one call, without factors."""
    return linear(mat1, mat2.mT, input) if beta == alpha == 1 else None


def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Rule | None:
    """A convolution, whose windows at the edge hold fewer inputs."""
    if not input.requires_grad or weight.requires_grad:
        return None
    fan: float = weight.shape[1]
    axes = weight.ndim - 2
    for axis in range(axes):
        size, k = input.shape[axis - axes], weight.shape[2 + axis]
        s, d = _at(stride, axis), _at(dilation, axis)
        left, right = _padding(padding, axis, k, d)
        outputs = (size + left + right - d * (k - 1) - 1) // s + 1
        fan *= _pairs(size, outputs, k, s, left, d) / outputs
    return Weights(fan, squares(weight), None if bias is None else squares(bias)), [input]


def transposed_convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Rule | None:
    """The transpose of a convolution: an output is reached by fewer inputs at the edge."""
    if not input.requires_grad or weight.requires_grad:
        return None
    fan: float = weight.shape[0] / groups
    axes = weight.ndim - 2
    for axis in range(axes):
        inputs, k = input.shape[axis - axes], weight.shape[2 + axis]
        s, d, left = _at(stride, axis), _at(dilation, axis), _at(padding, axis)
        size = (inputs - 1) * s - 2 * left + d * (k - 1) + _at(output_padding, axis) + 1
        fan *= _pairs(size, inputs, k, s, left, d) / size
    return Weights(fan, squares(weight), None if bias is None else squares(bias)), [input]


def _pairs(size: int, windows: int, k: int, s: int, left: int, d: int) -> int:
    """How many pairs of a window and a place within it there are, not beyond the edge."""
    starts = torch.arange(windows)[:, None] * s - left
    places = starts + torch.arange(k) * d
    return int(((places >= 0) & (places < size)).sum())


def _at(value: Any, axis: int) -> int:
    return value if isinstance(value, int) else value[axis if len(value) > 1 else 0]


def _padding(padding: Any, axis: int, k: int, d: int) -> tuple[int, int]:
    if padding == "same":
        return d * (k - 1) // 2, d * (k - 1) - d * (k - 1) // 2
    each = 0 if padding == "valid" else _at(padding, axis)
    return each, each
