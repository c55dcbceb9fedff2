r"""Convolutions of data, which nobody differentiates in, without the cost of doing so.

A convolution $z = x * w$ is linear in the kernel $w$. Let $C_x: w \mapsto x * w$; then the gradient
in $w$ is $C_x^T \bar z$, and a second derivative needs $C_x$ and $C_x^T$ again. torch's second
backward pass of a convolution also forms the derivative in $x$ if nothing asks for it, which for a
first layer can cost as much as all the rest. The pair of operations here does not: each is the
other's backward pass, for derivatives of any order.

Within `constant_inputs()` they stand in for torch's convolutions whose input requires no gradient.
The numbers are the same up to rounding. Within `twice_differentiable()`, moreover, checkpoints are
refused, since what they compute again has no second derivative.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.graph import disable_saved_tensors_hooks, saved_tensors_hooks
from torch.overrides import TorchFunctionMode

__all__ = ["constant_inputs", "twice_differentiable", "weighing"]

Weights = dict[int, int]
_SCALES: ContextVar[Weights | None] = ContextVar("scales", default=None)
_CHECKPOINTS = "model must not use checkpoints: what they compute again has no second derivative"

Layout = tuple[list[int], list[int], list[int], int]  # stride, padding, dilation, groups


class _Convolution(Function):
    """C_x w."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, layout: Layout) -> Tensor:
        ctx.save_for_backward(x)
        ctx.layout, ctx.shape = layout, w.shape
        stride, padding, dilation, groups = layout
        zero = [0] * len(stride)
        return torch.convolution(x, w, None, stride, padding, dilation, False, zero, groups)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, _Correlation.apply(*ctx.saved_tensors, *gradients, ctx.shape, ctx.layout), None


class _Correlation(Function):
    """C_x^T z."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, z: Tensor, shape: torch.Size, layout: Layout) -> Tensor:
        ctx.save_for_backward(x)
        ctx.layout = layout
        stride, padding, dilation, groups = layout
        zero = [0] * len(stride)
        return torch.ops.aten.convolution_backward(
            z, x, z.new_empty(1).expand(shape), None, stride, padding, dilation, False, zero,
            groups, (False, True, False),
        )[1]  # fmt: skip

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, _Convolution.apply(*ctx.saved_tensors, *gradients, ctx.layout), None, None


class constant_inputs(TorchFunctionMode):
    """A context in which convolutions of constants are cheap to differentiate twice."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Replace a convolution whose input requires no gradient."""
        axes = _CONVOLUTIONS.get(func)
        if axes is None or kwargs or args[0].requires_grad or args[0].ndim != axes + 2:
            return func(*args, **(kwargs or {}))
        defaults: tuple[Any, ...] = (None, 1, 0, 1, 1)
        x, w, b, stride, padding, dilation, groups = (*args, *defaults[len(args) - 2 :])
        if isinstance(padding, str):
            return func(*args)
        layout = *(_each(axes, n) for n in (stride, padding, dilation)), groups
        z = _Convolution.apply(x, w, layout)
        return z if b is None else z + b.view(-1, *[1] * axes)


@contextmanager
def twice_differentiable() -> Iterator[None]:
    """A context in which a graph is made that will be differentiated again."""
    scales = _SCALES.get()
    hooks: AbstractContextManager[None] = (
        disable_saved_tensors_hooks(_CHECKPOINTS) if scales is None else _weighed(scales)
    )
    with torch.enable_grad(), constant_inputs(), hooks:
        yield


@contextmanager
def weighing() -> Iterator[Weights]:
    """A context that fills a table with the bytes that such graphs keep, by their places."""
    found: Weights = {}
    token = _SCALES.set(found)
    try:
        yield found
    finally:
        _SCALES.reset(token)


@contextmanager
def _weighed(scales: Weights) -> Iterator[None]:
    def weigh(t: Tensor) -> Tensor:
        place = t.untyped_storage().data_ptr()
        scales[place] = max(scales.get(place, 0), t.untyped_storage().nbytes())
        return t

    with saved_tensors_hooks(weigh, lambda t: t):
        yield


def _each(axes: int, n: Any) -> list[int]:
    return axes * [n] if isinstance(n, int) else axes * list(n) if len(n) == 1 else list(n)


_CONVOLUTIONS = {torch.conv1d: 1, torch.conv2d: 2, torch.conv3d: 3}
