r"""Random erasing: from each image, with a probability, its own box is wiped out.

$$\tilde x_{k i} = v \text{ for } i \in B_k, \quad x_{k i} \text{ else} ,$$

with a box $B_k$ of random area, shape and place. Exact: no other pixel changes.
"""

from typing import overload

import torch
from jaxtyping import Shaped
from torch import Tensor

from vademecum.arguments import number
from vademecum.regularization.augmentation._batches import (
    Augmented,
    fill_for,
    images,
    masks_for,
    room,
    together,
    uniform,
)
from vademecum.regularization.augmentation._boxes import draw_boxes, inside

__all__ = ["random_erasing"]


@overload
def random_erasing(
    x: Shaped[Tensor, " n c h w"], *, p: float = 0.5, scale: tuple[float, float] = (0.02, 0.33),
    ratio: tuple[float, float] = (0.3, 3.3), fill: float = 0.0, masks: None = None,
    mask_fill: float = 0.0, generator: torch.Generator | None = None,
) -> Shaped[Tensor, " n c h w"]: ...  # fmt: skip
@overload
def random_erasing(
    x: Shaped[Tensor, " n c h w"], *, p: float = 0.5, scale: tuple[float, float] = (0.02, 0.33),
    ratio: tuple[float, float] = (0.3, 3.3), fill: float = 0.0,
    masks: Shaped[Tensor, " n *m h w"], mask_fill: float = 0.0,
    generator: torch.Generator | None = None,
) -> Augmented: ...  # fmt: skip
def random_erasing(
    x: Shaped[Tensor, " n c h w"],
    *,
    p: float = 0.5,
    scale: tuple[float, float] = (0.02, 0.33),
    ratio: tuple[float, float] = (0.3, 3.3),
    fill: float = 0.0,
    masks: Shaped[Tensor, " n *m h w"] | None = None,
    mask_fill: float = 0.0,
    generator: torch.Generator | None = None,
) -> Shaped[Tensor, " n c h w"] | Augmented:
    """Wipe out a box in some of the images, each its own.

    Args:
        x: Images, uint8 or floating point.
        p: The probability that an image loses a box.
        scale: Between which shares of the image's area that of the box is uniform.
        ratio: Between which ratios of width to height its logarithm is uniform, among those that
            fit into the image.
        fill: What is put into the box.
        masks: Masks of the images, any dtype, that lose the same boxes.
        mask_fill: What is put into the boxes of masks.
        generator: Where random numbers come from; torch's global generator by default.

    Returns:
        The images; with masks, both, as `Augmented`.

    Raises:
        ValueError: If `p` is not between 0 and 1, or a range is empty or goes beyond its limits.

    References:
        Zhong et al., Random erasing data augmentation, AAAI, 2020.

    Example:
        >>> y = random_erasing(torch.ones(1, 1, 4, 4), p=1.0, scale=(0.25, 0.25), ratio=(1.0, 1.0))
        >>> float(y.sum())  # 2 x 2 pixels are lost
        12.0
    """
    x = images("x", x)
    p = number("p", p, low=0, high=1)
    gone = inside(draw_boxes(x, scale, ratio, generator), *x.shape[2:])
    gone = gone & (uniform(x, 1, 1, 1, generator=generator) < p)
    changed = None
    if masks is not None:
        m = masks_for(x, masks)
        changed = m.masked_fill(gone, fill_for("mask_fill", mask_fill, m.dtype))
    return together(_without(x, gone, fill_for("fill", fill, x.dtype)), masks, changed)


def _without(x: Tensor, gone: Tensor, fill: float) -> Tensor:
    value = torch.full((), fill, dtype=x.dtype, device=x.device)
    return torch.where(gone, value, x, out=room(x, *x.shape) if x.is_contiguous() else None)
