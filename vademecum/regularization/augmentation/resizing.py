r"""Random crops that are brought to one size: another part and another scale for each image.

A crop of rows $t, \dots, t + H' - 1$ becomes $h$ rows; row $i$ lies at

$$p_i = t + \tfrac{H'}{h} (i + \tfrac12) - \tfrac12 ,$$

cut to the crop, and is interpolated linearly between the rows beside it; then columns likewise.
That is `interpolate(crop, mode="bilinear")` of torch up to rounding, without a filter before it:
crops much larger than the result lose fine patterns. Masks take the pixel in which a point lies.
"""

from typing import overload

import torch
from jaxtyping import Shaped
from torch import Tensor

from vademecum.arrays import portions
from vademecum.regularization.augmentation._batches import (
    Augmented,
    as_before,
    images,
    masks_for,
    pair,
    precise,
    room,
    together,
)
from vademecum.regularization.augmentation._boxes import draw_boxes

__all__ = ["random_resized_crop"]

_PORTION = 2**21  # bytes of results at a time: fastest of 2^18, ..., 2^22 on an x86 core


@overload
def random_resized_crop(
    x: Shaped[Tensor, " n c H W"], size: int | tuple[int, int], *,
    scale: tuple[float, float] = (0.08, 1.0), ratio: tuple[float, float] = (3 / 4, 4 / 3),
    masks: None = None, generator: torch.Generator | None = None,
) -> Shaped[Tensor, " n c h w"]: ...  # fmt: skip
@overload
def random_resized_crop(
    x: Shaped[Tensor, " n c H W"], size: int | tuple[int, int], *,
    scale: tuple[float, float] = (0.08, 1.0), ratio: tuple[float, float] = (3 / 4, 4 / 3),
    masks: Shaped[Tensor, " n *m H W"], generator: torch.Generator | None = None,
) -> Augmented: ...  # fmt: skip
def random_resized_crop(
    x: Shaped[Tensor, " n c H W"],
    size: int | tuple[int, int],
    *,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    masks: Shaped[Tensor, " n *m H W"] | None = None,
    generator: torch.Generator | None = None,
) -> Shaped[Tensor, " n c h w"] | Augmented:
    """Cut a part of random area and shape from each image, and bring all to one size.

    Args:
        x: Images, uint8 or floating point.
        size: Height and width of the results, or one number for both.
        scale: Between which shares of the image's area that of the part is uniform.
        ratio: Between which ratios of width to height its logarithm is uniform, among those that
            fit into the image.
        masks: Masks of the images, any dtype, cut and resized likewise, without interpolation.
        generator: Where random numbers come from; torch's global generator by default.

    Returns:
        The images; with masks, both, as `Augmented`.

    Raises:
        ValueError: If a range is empty or goes beyond its limits.

    References:
        Szegedy et al., Going deeper with convolutions, CVPR, 2015.

    Example:
        >>> x = torch.tensor([[[[0.0, 4.0], [0.0, 4.0]]]])
        >>> random_resized_crop(x, (1, 4), scale=(1.0, 1.0))  # all of it, twice as wide
        tensor([[[[0., 1., 3., 4.]]]])
    """
    x = images("x", x)
    h, w = pair("size", size, low=1)
    top, left, height, width = draw_boxes(x, scale, ratio, generator)
    down, right = _places(top, height, h), _places(left, width, w)
    changed = None
    if masks is not None:
        rows, columns = ((p + 0.5).floor().long() for p in (down, right))
        changed = _take(masks_for(x, masks), rows, columns)
    ends = [(p0[:, None], (p0 + k - 1)[:, None]) for p0, k in ((top, height), (left, width))]
    down, right = (p.clamp(*e) for p, e in zip((down, right), ends, strict=True))
    return together(_interpolated(x, down, right), masks, changed)


def _places(start: Tensor, length: Tensor, size: int) -> Tensor:
    """Where the results' rows or columns lie, in pixels."""
    steps = torch.arange(size, device=start.device) + 0.5
    return start[:, None] + length[:, None] * steps / size - 0.5


def _take(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    n, c, _, W = x.shape
    index = (rows[:, :, None] * W + columns[:, None]).flatten(1)
    y = x.reshape(n, c, -1).gather(2, index[:, None].expand(n, c, index.shape[1]))
    return y.view(n, c, rows.shape[1], columns.shape[1])


def _interpolated(x: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Images at the crossings of given rows and columns, a portion of examples at a time."""
    (n, c, _, W), h, w = x.shape, down.shape[1], right.shape[1]
    out = room(x, n, c, h, w)
    if out is None:
        return as_before(_crossings(precise(x), down, right), x.dtype)
    z = precise(x[:1])
    parts = portions(n, each=c * h * max(w, W) * z.itemsize, memory=_PORTION)
    most = parts[0].stop
    lines = [z.new_empty(most * c * h, W) for _ in (0, 1)]  # written over by every portion
    pixels = [z.new_empty(most, c, h, w) for _ in (0, 1)]
    for part in parts:
        k = part.stop - part.start
        scratch = [line[: k * c * h] for line in lines], [pixel[:k] for pixel in pixels]
        y = _crossings(precise(x[part]), down[part], right[part], scratch)
        out[part] = as_before(y, x.dtype)
    return out


def _crossings(
    x: Tensor,
    down: Tensor,
    right: Tensor,
    scratch: tuple[list[Tensor], list[Tensor]] | tuple[tuple[None, None], tuple[None, None]] = (
        (None, None),
        (None, None),
    ),
) -> Tensor:
    (n, c, H, W), h, w = x.shape, down.shape[1], right.shape[1]
    (one, other), (left, beside) = scratch
    i, f = _neighbours(down, H, x.dtype)
    j, g = _neighbours(right, W, x.dtype)
    lines = x.reshape(n * c * H, W)
    first = torch.arange(n * c, device=x.device).view(n, c, 1) * H
    above, below = (
        torch.index_select(lines, 0, (first + k[:, None]).flatten(), out=to).view(n, c, h, W)
        for k, to in zip(i, (one, other), strict=True)
    )
    y = torch.lerp(above, below, f[:, None, :, None], out=None if one is None else above)
    before, after = (
        torch.gather(y, 3, k[:, None, None].expand(n, c, h, w), out=to)
        for k, to in zip(j, (left, beside), strict=True)
    )
    return torch.lerp(before, after, g[:, None, None], out=left)


def _neighbours(places: Tensor, size: int, dtype: torch.dtype) -> tuple[list[Tensor], Tensor]:
    """The pixels on both sides of each place, and how far it is from the first."""
    first = places.floor()
    index = first.long()
    return [index, (index + 1).clamp(max=size - 1)], (places - first).to(dtype)
