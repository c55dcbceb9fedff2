r"""Random crops: from each image its own window, all at once.

$$\tilde x_{ki} = \bar x_{k,\, i + o}, \qquad o \sim \mathrm{U}\{0, \dots, H + 2p - h\}
\times \{0, \dots, W + 2p - w\} ,$$

where $\bar x$ is the image with a border of $p$ pixels. Every offset has the same probability: of a
$256 \times 256$ image there are $33^2$ crops of $224 \times 224$.

A window is a few runs of pixels that lie side by side. On a CPU, all runs that begin anywhere in
the batch are the rows of one matrix, with steps of one between rows that overlap; rows of it are
copied. Exact: no pixel changes. Checked by the claim `regularization.data_augmentation`.
"""

from typing import overload

import torch
from jaxtyping import Shaped
from torch import Tensor
from torch.nn import functional as F

from vademecum.arrays import portions
from vademecum.randomness import source
from vademecum.regularization.augmentation._batches import (
    Augmented,
    fill_for,
    images,
    in_one_piece,
    is_channels_last,
    masks_for,
    pair,
    room,
    together,
)

__all__ = ["random_crop"]

_PORTION = 2**20  # bytes laid out at a time: fastest of 2^17, ..., 2^21 on an x86 core


@overload
def random_crop(
    x: Shaped[Tensor, " n c H W"], size: int | tuple[int, int], *,
    padding: int | tuple[int, int] = 0, fill: float = 0.0, masks: None = None,
    mask_fill: float = 0.0, generator: torch.Generator | None = None,
) -> Shaped[Tensor, " n c h w"]: ...  # fmt: skip
@overload
def random_crop(
    x: Shaped[Tensor, " n c H W"], size: int | tuple[int, int], *,
    padding: int | tuple[int, int] = 0, fill: float = 0.0, masks: Shaped[Tensor, " n *m H W"],
    mask_fill: float = 0.0, generator: torch.Generator | None = None,
) -> Augmented: ...  # fmt: skip
def random_crop(
    x: Shaped[Tensor, " n c H W"],
    size: int | tuple[int, int],
    *,
    padding: int | tuple[int, int] = 0,
    fill: float = 0.0,
    masks: Shaped[Tensor, " n *m H W"] | None = None,
    mask_fill: float = 0.0,
    generator: torch.Generator | None = None,
) -> Shaped[Tensor, " n c h w"] | Augmented:
    """Cut a window from each image, at a place of its own.

    Args:
        x: Images, uint8 or floating point.
        size: Height and width of the windows, or one number for both.
        padding: By how much images are enlarged first, above and below, left and right.
        fill: What is put around images.
        masks: Masks of the images, any dtype, cut at the same places.
        mask_fill: What is put around masks.
        generator: Where random numbers come from; torch's global generator by default.

    Returns:
        The windows; with masks, both, as `Augmented`.

    Raises:
        ValueError: If a window is larger than the padded image, or an argument is out of range.

    Example:
        >>> x = torch.arange(16.0).view(1, 1, 4, 4)
        >>> y = random_crop(x, 3)
        >>> y[0, 0] - y[0, 0, 0, 0]  # rows are 4 apart wherever it was cut
        tensor([[ 0.,  1.,  2.],
                [ 4.,  5.,  6.],
                [ 8.,  9., 10.]])
    """
    x = images("x", x)
    (h, w), border = pair("size", size, low=1), pair("padding", padding, low=0)
    H, W = (x.shape[2 + i] + 2 * border[i] for i in (0, 1))
    if h > H or w > W:
        raise ValueError(f"size must be at most that of the padded image, {H} x {W}, got {h} x {w}")
    where = source(generator, x.device)
    top = torch.randint(H - h + 1, (len(x),), **where).to(x.device)
    left = torch.randint(W - w + 1, (len(x),), **where).to(x.device)

    places = top, left, (h, w), border
    changed = None
    if masks is not None:
        m = masks_for(x, masks)
        changed = _cut(m, *places, fill_for("mask_fill", mask_fill, m.dtype))
    return together(_cut(x, *places, fill_for("fill", fill, x.dtype)), masks, changed)


def _cut(
    x: Tensor,
    top: Tensor,
    left: Tensor,
    size: tuple[int, int],
    border: tuple[int, int],
    fill: float,
) -> Tensor:
    if not in_one_piece(x):
        return _runs(x, top, left, size, border, fill)
    p, q = border
    return windows(F.pad(x, (q, q, p, p), value=fill) if p or q else x, top, left, *size)


def windows(x: Tensor, top: Tensor, left: Tensor, h: int, w: int) -> Tensor:
    """The h x w pixels of each image from (top, left) on."""
    if not in_one_piece(x):
        return _runs(x, top, left, (h, w), (0, 0), 0.0)
    n, c = x.shape[:2]
    k, j, down, right = (torch.arange(size, device=x.device) for size in (n, c, h, w))
    rows, columns = top[:, None] + down, left[:, None] + right
    if is_channels_last(x):
        y = x.permute(0, 2, 3, 1)[k[:, None, None], rows[:, :, None], columns[:, None]]
        return y.permute(0, 3, 1, 2)
    places = rows[:, None, :, None], columns[:, None, None]
    return x[k[:, None, None, None], j[:, None, None], *places]


def _runs(
    x: Tensor,
    top: Tensor,
    left: Tensor,
    size: tuple[int, int],
    border: tuple[int, int],
    fill: float,
) -> Tensor:
    """The same on a CPU, from images with a border: rows of windows are copied as wholes.

    With a border, portions of images are laid into memory with empty pixels before, between and
    after their rows, where they serve the row before and the row after, and an empty run at its
    end, for rows of windows that lie above or below the image.
    """
    (n, c, H, W), (h, w), (p, q) = x.shape, size, border
    last = is_channels_last(x)
    planes, pixel = (1, c) if last else (c, 1)  # a pixel's channels lie together, or apart
    lines = (x.permute(0, 2, 3, 1) if last else x.contiguous()).reshape(n, planes * H, W * pixel)
    run, pitch = w * pixel, (W + q) * pixel
    down = (top[:, None] + torch.arange(h, device=x.device) - p)[:, None]
    beyond = (down < 0) | (down >= H)
    down = down + torch.arange(planes, device=x.device)[:, None] * H
    out = room(x, n, planes * h, run)
    assert out is not None
    flat, inner, parts = lines.view(-1), None, [slice(0, n)]
    if p or q:
        parts = portions(n, each=planes * H * pitch * x.itemsize, memory=_PORTION)
        gap, most = q * pixel, parts[0].stop * planes * H * pitch
        flat = torch.full((gap + most + run,), fill, dtype=x.dtype, device=x.device)
        inner = flat[gap : gap + most].view(-1, planes * H, pitch)[:, :, : W * pixel]
    runs = flat.as_strided((flat.numel() - run + 1, run), (1, 1))
    for part in parts:
        k = part.stop - part.start
        if inner is not None:
            inner[:k] = lines[part]
        line = torch.arange(k, device=x.device)[:, None, None] * (planes * H) + down[part]
        starts = line * pitch + left[part, None, None] * pixel
        starts = torch.where(beyond[part], flat.numel() - run, starts) if p else starts
        torch.index_select(runs, 0, starts.flatten(), out=out[part].view(-1, run))
    return out.view(n, h, w, c).permute(0, 3, 1, 2) if last else out.view(n, c, h, w)
