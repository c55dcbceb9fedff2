"""Layers that are known as a whole, as steps of a piecewise-linear network.

Steps are exact: they hold the module's own parameters. A module may bring its own steps: if it has
a method `affine_pieces(x)`, affine in `x`, whose largest entry along the last axis is the module's
output, it is an affine step and a largest one.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from vademecum.approximation.piecewise._maps import (
    Affine,
    Largest,
    PiecewiseMap,
    clip,
    kinks,
)

__all__ = ["module_maps"]


def _prelu(module: nn.PReLU, x: Tensor) -> list[PiecewiseMap]:
    slope = module.weight.detach()
    if slope.numel() > 1:
        slope = slope.view(-1, *[1] * (x.ndim - 2))
    return [kinks(x, [0], [slope, 1])]


def _softshrink(module: nn.Softshrink, x: Tensor) -> list[PiecewiseMap]:
    edge = module.lambd
    return [kinks(x, [-edge, edge], [1, 0, 1], [edge, 0, -edge])]


def _linear(module: nn.Linear, x: Tensor) -> list[PiecewiseMap]:
    weight, bias = module.weight, module.bias
    return [
        Affine(
            lambda h: F.linear(h, weight),
            None if bias is None else bias[None],
            lambda r: F.linear(r, weight.abs()),
            lambda g: g @ weight,
        )
    ]


def _weighted(module: nn.Module, x: Tensor) -> list[PiecewiseMap]:
    """Convolutions and batch normalisation: a weight, and what is added."""
    normalises = isinstance(module, _NORMS)
    if normalises and module.running_mean is None:
        raise ValueError("normalises by the statistics of its batch")
    named = dict(module.named_parameters()) | dict(module.named_buffers())
    added = {k: torch.zeros_like(named[k]) for k in ("bias", "running_mean") if k in named}
    absolute = {"weight": named["weight"].abs()} if "weight" in named else {}

    def linear(h: Tensor) -> Tensor:
        return functional_call(module, added, (h,))

    def magnitude(r: Tensor) -> Tensor:
        return functional_call(module, added | absolute, (r,))

    offset = module(torch.zeros_like(x[:1])) if added else None
    return [Affine(linear, offset, magnitude if absolute or normalises else None)]


def _moved(module: nn.Module, x: Tensor) -> list[PiecewiseMap]:
    """What moves, averages or pads entries: all coefficients are at least zero."""
    if not getattr(module, "value", 0):  # which only padding has
        return [Affine(module, None, module)]
    offset = module(torch.zeros_like(x[:1]))

    def linear(h: Tensor) -> Tensor:
        return module(h) - offset

    return [Affine(linear, offset, linear)]


def _max_pool(module: Any, x: Tensor) -> list[PiecewiseMap]:
    if module.return_indices:
        raise ValueError("returns indices, which are not piecewise linear")
    sizes, axes = module(x[:1]).shape[2:], len(x.shape[2:])
    each = [_per_axis(v, axes) for v in (module.kernel_size, module.stride, module.padding,
                                         module.dilation)]  # fmt: skip
    windows = [
        torch.arange(out)[:, None] * stride - pad + torch.arange(k) * step
        for out, k, stride, pad, step in zip(sizes, *each, strict=True)
    ]
    return _pool(x, windows)


def _adaptive_max_pool(module: Any, x: Tensor) -> list[PiecewiseMap]:
    if module.return_indices:
        raise ValueError("returns indices, which are not piecewise linear")
    windows = []
    for n, out in zip(x.shape[2:], module(x[:1]).shape[2:], strict=True):
        start = torch.arange(out) * n // out
        end = -(-(torch.arange(out) + 1) * n // out)
        window = start[:, None] + torch.arange(int((end - start).max()))
        windows.append(torch.where(window < end[:, None], window, -1))
    return _pool(x, windows)


def _pool(x: Tensor, windows: list[Tensor]) -> list[PiecewiseMap]:
    """The maximum over windows; entries outside the image are replaced by one that is inside."""
    table = torch.zeros((1, 1), dtype=torch.long)
    for window, n in zip(windows, x.shape[2:], strict=True):
        inside = (window >= 0) & (window < n)
        window = torch.where(inside, window, window.gather(1, inside.long().argmax(1)[:, None]))
        table = table[:, None, :, None] * n + window[None, :, None, :]
        table = table.flatten(0, 1).flatten(1)
    shape = [len(window) for window in windows]
    index = table.flatten().to(x.device)

    def gather(h: Tensor) -> Tensor:
        return h.flatten(2).index_select(2, index).unflatten(2, (*shape, table.shape[1]))

    return [Affine(gather, None, gather), Largest()]


def _per_axis(value: Any, axes: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,) * axes


def _pieces(module: Any, x: Tensor) -> list[PiecewiseMap]:
    offset = module.affine_pieces(torch.zeros_like(x[:1]))
    large, small = (float(t.abs().max()) for t in (offset, module.affine_pieces(x) - offset))
    small = max(small, large * torch.finfo(x.dtype).eps)
    scale = 2.0 ** math.frexp(large / small)[1] if large > small else 1.0

    def linear(h: Tensor) -> Tensor:
        return (module.affine_pieces(scale * h) - offset) / scale  # not lost beside the offset

    return [Affine(linear, offset), Largest()]


_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_BUILDERS: list[tuple[tuple[type, ...], Callable[[Any, Tensor], list[PiecewiseMap]]]] = [
    ((nn.ReLU6, nn.Hardtanh), lambda m, x: clip(x, m.min_val, m.max_val)),
    ((nn.ReLU,), lambda _, x: [kinks(x, [0], [0, 1])]),
    ((nn.LeakyReLU,), lambda m, x: [kinks(x, [0], [m.negative_slope, 1])]),
    ((nn.RReLU,), lambda m, x: [kinks(x, [0], [(m.lower + m.upper) / 2, 1])]),
    ((nn.PReLU,), _prelu),
    ((nn.Hardsigmoid,), lambda _, x: [kinks(x, [-3, 3], [0, 1 / 6, 0], [0, 0.5, 1])]),
    ((nn.Softshrink,), _softshrink),
    ((nn.Linear,), _linear),
    (
        (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d,
         nn.ConvTranspose3d, *_NORMS),
        _weighted,
    ),
    (
        (nn.Identity, nn.Flatten, nn.Unflatten, nn.Dropout, nn.Dropout1d, nn.Dropout2d,
         nn.Dropout3d, nn.AlphaDropout, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d,
         nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.ConstantPad1d,
         nn.ConstantPad2d, nn.ConstantPad3d, nn.ReflectionPad1d, nn.ReflectionPad2d,
         nn.ReplicationPad1d, nn.ReplicationPad2d, nn.PixelShuffle, nn.PixelUnshuffle),
        _moved,
    ),
    ((nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d), _max_pool),
    ((nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d), _adaptive_max_pool),
]  # fmt: skip


def module_maps(module: nn.Module, x: Tensor | None = None) -> list[PiecewiseMap] | None:
    """The steps of a module that is taken as a whole; None if it is not one of those known.

    Args:
        module: The module, in evaluation.
        x: An input of it; without one the answer is an empty list for modules that are known.
    """
    builder = _pieces if hasattr(module, "affine_pieces") else None
    for classes, candidate in _BUILDERS:
        if builder is None and any(_is_a(module, cls) for cls in classes):
            builder = candidate
    if builder is None:
        return None
    return [] if x is None else builder(module, x)


def _is_a(module: nn.Module, cls: type) -> bool:
    return isinstance(module, cls) and type(module).forward is cls.forward  # not a cousin of it
