r"""Convolutions whose second derivatives cost what is asked for, and no more.

A convolution $z = C(x, w)$ is linear in the input $x$ and in the kernel $w$. With the gradients
$X(\bar z, w)$ in the one and $W(x, \bar z)$ in the other, all three are bilinear, and each one's
derivatives are the two others:

$$\langle \bar z, C(x, w) \rangle = \langle X(\bar z, w), x \rangle
= \langle W(x, \bar z), w \rangle.$$

torch's second backward pass of a convolution forms all derivatives even if nothing asks for most of
them: in the data that a first layer sees, or in $x$ and $w$ where only $J v$ is wanted. These
operations do not, for derivatives of any order. Within `bilinear_convolutions()` they stand in for
torch's. The numbers are the same up to rounding. Within `twice_differentiable()`, moreover,
checkpoints are refused, since what they compute again has no second derivative.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.graph import disable_saved_tensors_hooks, saved_tensors_hooks
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from vademecum.models._cross_entropy import closed_cross_entropy

__all__ = ["bilinear_convolutions", "twice_differentiable", "weighing"]

Weights = dict[int, int]
_SCALES: ContextVar[Weights | None] = ContextVar("scales", default=None)
_CHECKPOINTS = "model must not use checkpoints: what they compute again has no second derivative"

Layout = tuple[list[int], list[int], list[int], int]  # stride, padding, dilation, groups


class _Convolution(Function):
    """C(x, w)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, layout: Layout) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.layout = layout
        stride, padding, dilation, groups = layout
        zero = [0] * len(stride)
        return torch.convolution(x, w, None, stride, padding, dilation, False, zero, groups)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (x, w), (z,), (to_x, to_w, _) = ctx.saved_tensors, gradients, ctx.needs_input_grad
        return (
            _InInput.apply(z, w, x.shape, ctx.layout) if to_x else None,
            _InKernel.apply(x, z, w.shape, ctx.layout) if to_w else None,
            None,
        )


class _InInput(Function):
    """X(z, w)."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, w: Tensor, shape: torch.Size, layout: Layout) -> Tensor:
        ctx.save_for_backward(z, w)
        ctx.layout = layout
        return _gradient(z, z.new_empty(1).expand(shape), w, layout, 0)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (z, w), (x,), (to_z, to_w, *_) = ctx.saved_tensors, gradients, ctx.needs_input_grad
        return (
            _Convolution.apply(x, w, ctx.layout) if to_z else None,
            _InKernel.apply(x, z, w.shape, ctx.layout) if to_w else None,
            *(None, None),
        )


class _InKernel(Function):
    """W(x, z)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, z: Tensor, shape: torch.Size, layout: Layout) -> Tensor:
        ctx.save_for_backward(x, z)
        ctx.layout = layout
        return _gradient(z, x, z.new_empty(1).expand(shape), layout, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (x, z), (w,), (to_x, to_z, *_) = ctx.saved_tensors, gradients, ctx.needs_input_grad
        return (
            _InInput.apply(z, w, x.shape, ctx.layout) if to_x else None,
            _Convolution.apply(x, w, ctx.layout) if to_z else None,
            *(None, None),
        )


def _gradient(z: Tensor, x: Tensor, w: Tensor, layout: Layout, which: int) -> Tensor:
    stride, padding, dilation, groups = layout
    zero, wanted = [0] * len(stride), (which == 0, which == 1, False)
    return torch.ops.aten.convolution_backward(
        z, x, w, None, stride, padding, dilation, False, zero, groups, wanted
    )[which]


class bilinear_convolutions(TorchFunctionMode):
    """A context in which convolutions are cheap to differentiate twice.

    Args:
        losses: Whether the cross-entropy is to be so, too.
    """

    def __init__(self, *, losses: bool = False):
        super().__init__()
        self._losses = losses

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Replace a convolution, or a loss."""
        if self._losses and func is F.cross_entropy:
            return closed_cross_entropy(*args, **(kwargs or {}))
        axes = _CONVOLUTIONS.get(func)
        if axes is None or kwargs or args[0].ndim != axes + 2:
            return func(*args, **(kwargs or {}))
        defaults: tuple[Any, ...] = (None, 1, 0, 1, 1)
        x, w, b, stride, padding, dilation, groups = (*args, *defaults[len(args) - 2 :])
        if isinstance(padding, str):
            return func(*args)
        layout = *(_each(axes, n) for n in (stride, padding, dilation)), groups
        z = _Convolution.apply(x, w, layout)
        return z if b is None else z + b.view(-1, *[1] * axes)


@contextmanager
def twice_differentiable(*, losses: bool = False) -> Iterator[None]:
    """A context in which a graph is made that will be differentiated again, once.

    Args:
        losses: Whether the cross-entropy is to keep its logits alone; it has no third derivative
            then.
    """
    scales = _SCALES.get()
    hooks: AbstractContextManager[None] = (
        disable_saved_tensors_hooks(_CHECKPOINTS) if scales is None else _weighed(scales)
    )
    with torch.enable_grad(), bilinear_convolutions(losses=losses), hooks:
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
