"""What a convolution or pooling layer of torch does, read from the layer: one form for all."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.convolution.causal import CausalConv1d
from vademecum.convolution.output_sizes import conv_output_size

__all__ = ["Geometry", "Layer", "Shape", "read_layer"]

Layer = (
    nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.ConvTranspose1d | nn.ConvTranspose2d
    | nn.ConvTranspose3d | nn.AvgPool1d | nn.AvgPool2d | nn.AvgPool3d | CausalConv1d
)  # fmt: skip
Shape = Tensor | Sequence[int]

_KINDS: dict[type[nn.Module], tuple[str, int]] = {
    nn.Conv1d: ("conv", 1), nn.Conv2d: ("conv", 2), nn.Conv3d: ("conv", 3),
    nn.ConvTranspose1d: ("transposed", 1), nn.ConvTranspose2d: ("transposed", 2),
    nn.ConvTranspose3d: ("transposed", 3), nn.AvgPool1d: ("pool", 1), nn.AvgPool2d: ("pool", 2),
    nn.AvgPool3d: ("pool", 3), CausalConv1d: ("conv", 1),
}  # fmt: skip


class Geometry(NamedTuple):
    """A layer on inputs of one size, without its bias."""

    kind: str  # "conv", "transposed" or "pool"
    source: tuple[int, ...]  # channels and spatial sizes
    target: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]  # before and after each axis
    mode: str  # "constant" or one that repeats the input
    groups: int
    output_padding: tuple[int, ...]
    ceil_mode: bool
    include_pad: bool
    divisor: int | None
    weight: Tensor | None
    bias: Tensor | None
    dtype: torch.dtype
    device: torch.device

    @property
    def axes(self) -> int:
        """The number of spatial axes."""
        return len(self.kernel)

    @property
    def spans(self) -> tuple[int, ...]:
        """How many places a window covers along each axis."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))


def read_layer(layer: Any, x: Shape) -> Geometry:
    """The geometry of a layer for an input, or for its shape without batch."""
    kind, axes = _kind(layer)
    source = _input_shape(layer, x, axes)
    kernel, stride = (_each(value, axes) for value in (layer.kernel_size, _stride(layer)))
    dilation = _each(getattr(layer, "dilation", 1), axes)
    pads = _pads(layer, kernel, dilation, axes)
    extra = _each(getattr(layer, "output_padding", 0), axes)
    ceil_mode = getattr(layer, "ceil_mode", False)
    weight, given = getattr(layer, "weight", None), x if isinstance(x, Tensor) else torch.empty(0)
    sizes = _output_size(kind, source[1:], kernel, stride, dilation, pads, extra, ceil_mode)
    mode = getattr(layer, "padding_mode", "zeros")
    return Geometry(
        kind, source, (getattr(layer, "out_channels", source[0]), *sizes),
        kernel, stride, dilation, pads, "constant" if mode == "zeros" else mode,
        getattr(layer, "groups", source[0]), extra, ceil_mode,
        getattr(layer, "count_include_pad", True), getattr(layer, "divisor_override", None),
        weight, getattr(layer, "bias", None),
        (given if weight is None else weight).dtype, (given if weight is None else weight).device,
    )  # fmt: skip


def _kind(layer: Any) -> tuple[str, int]:
    for known, found in _KINDS.items():
        if isinstance(layer, known) and type(layer).forward is known.forward:
            return found
    names = "Conv, ConvTranspose or AvgPool layer of torch, or a CausalConv1d"
    raise ValueError(f"layer must be a {names}, got {type(layer).__name__}")


def _input_shape(layer: Any, x: Shape, axes: int) -> tuple[int, ...]:
    shape = tuple(x.shape) if isinstance(x, Tensor) else tuple(x)
    if isinstance(x, Tensor) and len(shape) == axes + 2:
        shape = shape[1:]
    channels = getattr(layer, "in_channels", shape[0] if shape else 0)
    if len(shape) != axes + 1 or shape[0] != channels or min(shape) < 1:
        raise ValueError(
            f"x must have {channels} channels and {axes} spatial axes, got shape"
            f" {tuple(x.shape) if isinstance(x, Tensor) else tuple(x)}"
        )
    return shape


def _each(value: Any, axes: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,) * axes


def _stride(layer: Any) -> Any:
    return 1 if isinstance(layer, CausalConv1d) else layer.stride


def _pads(
    layer: Any, kernel: tuple[int, ...], dilation: tuple[int, ...], axes: int
) -> tuple[tuple[int, int], ...]:
    totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    if isinstance(layer, CausalConv1d):
        return ((totals[0], 0),)
    if layer.padding == "same":
        return tuple((total // 2, total - total // 2) for total in totals)
    each = (0,) * axes if layer.padding == "valid" else _each(layer.padding, axes)
    return tuple((p, p) for p in each)


def _output_size(
    kind: str, sizes: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...],
    dilation: tuple[int, ...], pads: tuple[tuple[int, int], ...], extra: tuple[int, ...],
    ceil_mode: bool,
) -> tuple[int, ...]:  # fmt: skip
    knobs: dict[str, Any] = {"stride": stride, "dilation": dilation}
    if kind == "transposed":
        padding = [left for left, _ in pads]
        knobs |= {"padding": padding, "transposed": True, "output_padding": extra}
    elif kind == "pool":
        padding = [left for left, _ in pads]
        if any(2 * p > k for p, k in zip(padding, kernel, strict=True)):
            raise ValueError(f"layer must have a padding of at most {kernel} / 2, got {padding}")
        knobs |= {"padding": padding, "ceil_mode": ceil_mode}
    else:
        sizes = tuple(n + sum(both) for n, both in zip(sizes, pads, strict=True))
    return conv_output_size(sizes, kernel, **knobs)
