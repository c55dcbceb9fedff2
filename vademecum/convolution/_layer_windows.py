"""Which input stands at which tap of which window: the entries of a layer's matrix."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.convolution._layer_geometry import Geometry

__all__ = ["entries", "windows"]

_PADDED, _BEYOND = -1, -2  # in place of an input's index


def entries(g: Geometry) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, columns and values of the matrix; where several stand at one place, they add up."""
    if g.kind == "transposed":
        source = g._replace(kind="conv", source=g.target, target=g.source)
        columns, rows, values = entries(source)
        return rows, columns, values
    seen = windows(g)  # positions by taps
    inside = seen >= 0
    positions = torch.arange(len(seen), device=seen.device)[:, None].expand_as(seen)
    if g.weight is None:
        if g.divisor is None:
            counted = seen != _BEYOND if g.include_pad else inside
            value = 1 / counted.sum(1, keepdim=True).to(g.dtype)
        else:
            value = torch.tensor([[1 / g.divisor]], dtype=g.dtype, device=g.device)
        value = value.expand_as(seen)[None, None]
        weights = (g.source[0], 1)
    else:
        value = g.weight.flatten(2)[:, :, None, :]
        weights = (g.weight.shape[0], g.weight.shape[1])
    (out, each), size = weights, math.prod(g.source[1:])
    maps = torch.arange(out, device=seen.device)
    first = maps // (out // g.groups) * each  # channel of each group
    channels = first[:, None] + torch.arange(each, device=seen.device)
    shape = (out, each, *seen.shape)
    rows = (maps[:, None, None, None] * len(seen) + positions).expand(shape)
    columns = channels[:, :, None, None] * size + seen
    keep = inside.expand(shape)
    return rows[keep], columns[keep], value.expand(shape)[keep]


def windows(g: Geometry) -> Tensor:
    """The spatial index of the input at each tap of each window: positions by taps."""
    sizes = g.source[1:]
    index = torch.arange(math.prod(sizes), dtype=torch.float64, device=g.device)
    index = index.view(1, 1, *sizes)
    sides = [width for both in reversed(g.pads) for width in both]
    if any(sides) and g.mode == "constant":
        index = F.pad(index, sides, value=_PADDED)
    elif any(sides):
        index = F.pad(index, sides, g.mode)
    ends = zip(g.target[1:], g.stride, g.spans, index.shape[2:], strict=True)
    over = [max((m - 1) * s + span - n, 0) for m, s, span, n in ends]
    index = F.pad(index, [w for o in reversed(over) for w in (0, o)], value=_BEYOND)[0, 0]
    for axis, (m, s, span, d) in enumerate(
        zip(g.target[1:], g.stride, g.spans, g.dilation, strict=True)
    ):
        index = index.unfold(axis, span, s).narrow(axis, 0, m)[..., ::d]
    return index.reshape(math.prod(g.target[1:]), math.prod(g.kernel)).round().long()
