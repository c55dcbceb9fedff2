r"""Random boxes: a share $s$ of the image's area, a ratio $r$ of width to height, and a place.

$$s \sim \mathrm U(a, b), \qquad \log r \sim \mathrm U, \qquad
h = \sqrt{s H W / r}, \quad w = \sqrt{s H W\, r} .$$

Ratios are drawn among those that fit into the image, $s W / H \dots W / (s H)$, so that nothing has
to be drawn again; where none of the wanted ones does, the nearest is taken.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.regularization.augmentation._batches import between, span, uniform

__all__ = []


class Boxes(NamedTuple):
    """A box in each image, in whole pixels."""

    top: Tensor
    """The first row."""
    left: Tensor
    """The first column."""
    height: Tensor
    """How many rows."""
    width: Tensor
    """How many columns."""


def draw_boxes(
    x: Tensor,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    generator: torch.Generator | None,
) -> Boxes:
    """Boxes of random area, shape and place, as integers in double precision."""
    H, W = x.shape[2:]
    area = span("scale", scale, low=0.0, high=1.0, around=None)
    shape = span("ratio", ratio, low=0.0, around=None)
    if shape[0] == 0:
        raise ValueError(f"ratio must be > 0, got {ratio}")
    u = uniform(x, 4, generator=generator, dtype=torch.float64)
    share = between(area, u[:, 0])
    fits = -share.log()  # log r lies within this of log(W / H)
    middle, low, high = (math.log(r) for r in (W / H, *shape))
    first = torch.minimum(torch.maximum(middle - fits, torch.full_like(fits, low)), middle + fits)
    last = torch.maximum(torch.minimum(middle + fits, torch.full_like(fits, high)), middle - fits)
    root = ((first + (last - first) * u[:, 1]) / 2).exp()
    side = (share * (H * W)).sqrt()
    height, width = (side / root).round().clamp(1, H), (side * root).round().clamp(1, W)
    top, left = (u[:, 2] * (H - height + 1)).floor(), (u[:, 3] * (W - width + 1)).floor()
    return Boxes(top, left, height, width)


def inside(boxes: Boxes, h: int, w: int) -> Tensor:
    """Which pixels lie in the box of their image, (n, 1, h, w).

    Every row is that of its image's columns, or the empty one: rows are copied, not computed.
    """
    n, device = len(boxes.top), boxes.top.device
    rows = _covered(boxes.top, boxes.height, h)
    columns = _covered(boxes.left, boxes.width, w)
    table = torch.cat((columns, torch.zeros_like(columns[:1])))
    which = torch.where(rows, torch.arange(n, device=device)[:, None], n)
    return table.index_select(0, which.flatten()).view(n, 1, h, w)


def _covered(start: Tensor, length: Tensor, size: int) -> Tensor:
    places = torch.arange(size, device=start.device)
    return (places >= start[:, None]) & (places < (start + length)[:, None])
