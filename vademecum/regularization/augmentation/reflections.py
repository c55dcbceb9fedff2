r"""Random reflections: each image is mirrored or not, by a coin of its own.

$$\tilde x_{k, i, j} = x_{k, i, w - 1 - j} \text{ with probability } p, \quad
x_{k, i, j} \text{ else} ,$$

and the same for rows. Mirrored columns are gathered in one pass, and rows are copied whole. Exact:
no pixel changes. Checked by the claim `regularization.data_augmentation`.
"""

from typing import overload

import torch
from jaxtyping import Shaped
from torch import Tensor

from vademecum.arguments import number
from vademecum.regularization.augmentation._batches import (
    Augmented,
    images,
    is_channels_last,
    masks_for,
    room,
    together,
    uniform,
)

__all__ = ["random_flip"]


@overload
def random_flip(
    x: Shaped[Tensor, " n c h w"], *, horizontal: float = 0.5, vertical: float = 0.0,
    masks: None = None, generator: torch.Generator | None = None,
) -> Shaped[Tensor, " n c h w"]: ...  # fmt: skip
@overload
def random_flip(
    x: Shaped[Tensor, " n c h w"], *, horizontal: float = 0.5, vertical: float = 0.0,
    masks: Shaped[Tensor, " n *m h w"], generator: torch.Generator | None = None,
) -> Augmented: ...  # fmt: skip
def random_flip(
    x: Shaped[Tensor, " n c h w"],
    *,
    horizontal: float = 0.5,
    vertical: float = 0.0,
    masks: Shaped[Tensor, " n *m h w"] | None = None,
    generator: torch.Generator | None = None,
) -> Shaped[Tensor, " n c h w"] | Augmented:
    """Mirror some of the images.

    Args:
        x: Images, uint8 or floating point.
        horizontal: The probability that left and right of an image are exchanged.
        vertical: The same for top and bottom.
        masks: Masks of the images, any dtype, mirrored where these are.
        generator: Where random numbers come from; torch's global generator by default.

    Returns:
        The images; with masks, both, as `Augmented`.

    Raises:
        ValueError: If a probability is not between 0 and 1.

    Example:
        >>> random_flip(torch.tensor([[[[1.0, 2.0, 3.0]]]]), horizontal=1.0)
        tensor([[[[3., 2., 1.]]]])
    """
    x = images("x", x)
    p = number("vertical", vertical, low=0, high=1), number("horizontal", horizontal, low=0, high=1)
    coins = uniform(x, 2, generator=generator)
    changed = None if masks is None else _images_mirrored(masks_for(x, masks), coins, p)
    return together(_images_mirrored(x, coins, p), masks, changed)


def _images_mirrored(x: Tensor, coins: Tensor, p: tuple[float, float]) -> Tensor:
    if p == (0, 0):
        return x.clone()
    x = x if not p[1] else columns_mirrored(x, coins[:, 1] < p[1])
    return x if not p[0] else rows_mirrored(x, coins[:, 0] < p[0])


def _mirrored(size: int, which: Tensor) -> Tensor:
    """For each example the places from which to take: in order or backwards."""
    places = torch.arange(size, device=which.device)
    return torch.where(which[:, None], size - 1 - places, places)


def columns_mirrored(x: Tensor, which: Tensor) -> Tensor:
    """The images, some with left and right exchanged."""
    n, c, h, w = x.shape
    places = _mirrored(w, which)
    if is_channels_last(x):
        flat = x.permute(0, 2, 3, 1).reshape(n, h, w, c)
        index = places[:, None, :, None].expand(n, h, w, c)
        return torch.gather(flat, 2, index, out=room(x, n, h, w, c)).permute(0, 3, 1, 2)
    index = places[:, None, None].expand(n, c, h, w)
    return torch.gather(x, 3, index, out=room(x, n, c, h, w))


def rows_mirrored(x: Tensor, which: Tensor) -> Tensor:
    """The images, some with top and bottom exchanged."""
    n, c, h, w = x.shape
    last = is_channels_last(x)
    planes, run = (1, w * c) if last else (c, w)
    lines = (x.permute(0, 2, 3, 1) if last else x).reshape(n * planes * h, run)
    plane = torch.arange(n * planes, device=x.device).view(n, planes, 1) * h
    index = (plane + _mirrored(h, which)[:, None]).flatten()
    y = torch.index_select(lines, 0, index, out=room(x, n * planes * h, run))
    return y.view(n, h, w, c).permute(0, 3, 1, 2) if last else y.view(n, c, h, w)
