r"""The steps that a piecewise-linear network is made of.

Every network that this room can take apart is a chain (or graph) of three kinds of steps on the
activations $h \in \mathbb{R}^k$ of one example:

* **affine**: $h \mapsto L h + c$: dense and convolutional layers, batch normalisation in
  evaluation, average pooling, sums of branches, and everything that only moves entries;
* **kinks**: a scalar function of each entry, linear between thresholds
  $\theta_1 < \dots < \theta_p$: it is $h \mapsto a_i h + c_i$ on its piece
  $i = \#\{j : h > \theta_j\}$;
* **largest**: the maximum over the last axis. Its piece is the index of the first maximum. Pooling
  and maxout are affine steps followed by this one.

So an entry that is *equal* to a threshold belongs to the piece below it: a ReLU at 0 is inactive.

Steps are exact: they hold the module's own parameters. A module may bring its own steps: if it has
a method `affine_pieces(x)`, affine in `x`, whose largest entry along the last axis is the module's
output, it is an affine step and a largest one.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

__all__ = ["Affine", "Kinks", "Largest", "Unit", "clip", "kinks", "module_units"]


@dataclass(frozen=True)
class Affine:
    r"""The step $h \mapsto L h + c$; `magnitude` applies $|L|$, entry by entry, to radii.

    All maps take batches. Without a `magnitude` it is found by applying $L$ to a basis, without a
    `transpose` autograd finds $L^T$.
    """

    linear: Callable[..., Tensor]
    offset: Tensor | None = None
    magnitude: Callable[..., Tensor] | None = None
    transpose: Callable[[Tensor], Tensor] | None = None

    def __call__(self, *h: Tensor) -> Tensor:
        """Apply the step to a batch."""
        y = self.linear(*h)
        return y if self.offset is None else y + self.offset

    def radius(self, *r: Tensor) -> Tensor:
        """The half-widths $|L| r$ of the box that holds the image of a box with half-widths r."""
        if self.magnitude is not None:
            return self.magnitude(*r)
        (r0,) = r
        size = r0[0].numel()
        basis = torch.eye(size, dtype=r0.dtype, device=r0.device).view(size, *r0.shape[1:])
        return torch.tensordot(r0.flatten(1), self.linear(basis).abs(), 1)


@dataclass(frozen=True)
class Kinks:
    """One scalar piecewise-linear function for each entry; entries are broadcast."""

    thresholds: tuple[Tensor, ...]
    slopes: tuple[Tensor, ...]
    intercepts: tuple[Tensor, ...] | None  # None if all are zero

    def piece(self, h: Tensor) -> Tensor:
        """The number of thresholds below each entry."""
        if len(self.thresholds) == 1:
            return (h > self.thresholds[0]).view(torch.uint8)
        return sum((h > t).view(torch.uint8) for t in self.thresholds)  # type: ignore[return-value]

    def slope(self, piece: Tensor) -> Tensor:
        """The slope on each entry's piece."""
        return _on_piece(self.slopes, piece)

    def intercept(self, piece: Tensor) -> Tensor | None:
        """The intercept on each entry's piece; None if it is zero."""
        return None if self.intercepts is None else _on_piece(self.intercepts, piece)


@dataclass(frozen=True)
class Largest:
    """The maximum over the last axis."""

    def piece(self, h: Tensor) -> Tensor:
        """The index of the first maximum."""
        return h.argmax(-1)


Unit = Affine | Kinks | Largest
"""A step, whatever its kind."""


def _on_piece(values: tuple[Tensor, ...], piece: Tensor) -> Tensor:
    """The value of each entry's piece; `lerp` is exact at 0 and 1, and faster than `where`."""
    result = values[0]
    for i, value in enumerate(values[1:]):
        beyond = piece if len(values) == 2 else (piece > i).view(torch.uint8)
        result = torch.lerp(result, value, beyond.to(value.dtype))
    return result


def kinks(like: Tensor, thresholds: Any, slopes: Any, intercepts: Any = None) -> Kinks:
    """Kinks from numbers or tensors, in the dtype and on the device of `like`."""

    def tensors(values: Any) -> tuple[Tensor, ...]:
        return tuple(v.to(like) if isinstance(v, Tensor) else like.new_full((), v) for v in values)

    return Kinks(
        tensors(thresholds), tensors(slopes), None if intercepts is None else tensors(intercepts)
    )


def _prelu(module: nn.PReLU, x: Tensor) -> list[Unit]:
    slope = module.weight.detach()
    if slope.numel() > 1:
        slope = slope.view(-1, *[1] * (x.ndim - 2))
    return [kinks(x, [0], [slope, 1])]


def clip(x: Tensor, low: float, high: float) -> list[Unit]:
    """The identity between two numbers; one that is infinite is no threshold."""
    if not low < high:
        raise ValueError(f"must have a lower end below the upper one, got {low} and {high}")
    thresholds, slopes, intercepts = [], [1], [0.0]
    if low > -math.inf:
        thresholds, slopes, intercepts = [low], [0, 1], [low, 0.0]
    if high < math.inf:
        thresholds, slopes, intercepts = [*thresholds, high], [*slopes, 0], [*intercepts, high]
    if not thresholds:
        return [Affine(lambda h: h, None, lambda h: h)]
    return [kinks(x, thresholds, slopes, intercepts)]


def _softshrink(module: nn.Softshrink, x: Tensor) -> list[Unit]:
    edge = module.lambd
    return [kinks(x, [-edge, edge], [1, 0, 1], [edge, 0, -edge])]


def _linear(module: nn.Linear, x: Tensor) -> list[Unit]:
    weight, bias = module.weight, module.bias
    return [
        Affine(
            lambda h: F.linear(h, weight),
            None if bias is None else bias[None],
            lambda r: F.linear(r, weight.abs()),
            lambda g: g @ weight,
        )
    ]


def _weighted(module: nn.Module, x: Tensor) -> list[Unit]:
    """Convolutions and batch normalisation: a weight, and what is added."""
    normalises = isinstance(module, _NORMS)
    if normalises and module.running_mean is None:
        raise ValueError("normalises by the statistics of its batch")
    named = dict(module.named_parameters()) | dict(module.named_buffers())
    added = {k: torch.zeros_like(named[k]) for k in ("bias", "running_mean") if k in named}
    bold = {"weight": named["weight"].abs()} if "weight" in named else {}

    def linear(h: Tensor) -> Tensor:
        return functional_call(module, added, (h,))

    def magnitude(r: Tensor) -> Tensor:
        return functional_call(module, added | bold, (r,))

    offset = module(torch.zeros_like(x[:1])) if added else None
    return [Affine(linear, offset, magnitude if bold or normalises else None)]


def _moved(module: nn.Module, x: Tensor) -> list[Unit]:
    """What moves, averages or pads entries: all coefficients are at least zero."""
    if not getattr(module, "value", 0):  # which only padding has
        return [Affine(module, None, module)]
    offset = module(torch.zeros_like(x[:1]))

    def linear(h: Tensor) -> Tensor:
        return module(h) - offset

    return [Affine(linear, offset, linear)]


def _max_pool(module: Any, x: Tensor) -> list[Unit]:
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


def _adaptive_max_pool(module: Any, x: Tensor) -> list[Unit]:
    if module.return_indices:
        raise ValueError("returns indices, which are not piecewise linear")
    windows = []
    for n, out in zip(x.shape[2:], module(x[:1]).shape[2:], strict=True):
        start = torch.arange(out) * n // out
        end = -(-(torch.arange(out) + 1) * n // out)
        window = start[:, None] + torch.arange(int((end - start).max()))
        windows.append(torch.where(window < end[:, None], window, -1))
    return _pool(x, windows)


def _pool(x: Tensor, windows: list[Tensor]) -> list[Unit]:
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


def _pieces(module: Any, x: Tensor) -> list[Unit]:
    offset = module.affine_pieces(torch.zeros_like(x[:1]))
    large, small = (float(t.abs().max()) for t in (offset, module.affine_pieces(x) - offset))
    small = max(small, large * torch.finfo(x.dtype).eps)
    scale = 2.0 ** math.frexp(large / small)[1] if large > small else 1.0

    def linear(h: Tensor) -> Tensor:
        return (module.affine_pieces(scale * h) - offset) / scale  # not lost beside the offset

    return [Affine(linear, offset), Largest()]


_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_BUILDERS: list[tuple[tuple[type, ...], Callable[[Any, Tensor], list[Unit]]]] = [
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


def module_units(module: nn.Module, x: Tensor | None = None) -> list[Unit] | None:
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
