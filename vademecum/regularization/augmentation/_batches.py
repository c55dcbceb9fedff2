"""Batches of images as augmentations take them: what is refused, drawn, rounded and returned.

Images are (n, c, h, w), of `uint8` or floating point. Whole numbers stay whole: what was computed
is rounded to the nearest, halves to the even one, and cut to 0, ..., 255.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Shaped
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.arrays import empty
from vademecum.randomness import source
from vademecum.results import one_line

__all__ = ["Augmented"]


class Augmented(NamedTuple):
    """Images and their masks, changed by the same draw.

    Example:
        >>> from vademecum.regularization import random_flip
        >>> x = torch.tensor([[[[1.0, 2.0]]]])
        >>> random_flip(x, horizontal=1.0, masks=x > 1).masks
        tensor([[[[ True, False]]]])
    """

    images: Shaped[Tensor, " n c h w"]
    """The images, of the dtype they had."""
    masks: Shaped[Tensor, " n *m h w"]
    """The masks, of the dtype and with as many axes as they had."""

    __repr__ = one_line


def images(name: str, x: Any) -> Tensor:
    """A batch of images, (n, c, h, w), none of the sizes zero, of uint8 or floating point."""
    if not isinstance(x, Tensor):
        raise ValueError(f"{name} must be a tensor (n, c, h, w), got {type(x).__name__}")
    if x.ndim != 4 or x.numel() == 0:
        raise ValueError(f"{name} must have the shape (n, c, h, w), got {tuple(x.shape)}")
    if not (x.dtype == torch.uint8 or x.is_floating_point()):
        raise ValueError(f"{name} must be uint8 or floating point, got {x.dtype}")
    return x


def masks_for(x: Tensor, masks: Any) -> Tensor:
    """Masks for these images, with an axis of channels."""
    if not isinstance(masks, Tensor):
        raise ValueError(f"masks must be a tensor, got {type(masks).__name__}")
    n, _, h, w = x.shape
    fits = masks.ndim in (3, 4) and (len(masks), *masks.shape[-2:]) == (n, h, w)
    if not fits or masks.device != x.device:
        raise ValueError(
            f"masks must have the shape ({n}, {h}, {w}) or ({n}, m, {h}, {w}) on {x.device},"
            f" got {tuple(masks.shape)} on {masks.device}"
        )
    return masks.unsqueeze(1) if masks.ndim == 3 else masks


def together(x: Tensor, masks: Tensor | None, changed: Tensor | None) -> Tensor | Augmented:
    """The images alone or, where masks were given, both."""
    if masks is None or changed is None:
        return x
    return Augmented(x, changed.squeeze(1) if masks.ndim == 3 else changed)


def pair(name: str, value: Any, *, low: int) -> tuple[int, int]:
    """A height and a width, from one integer or two."""
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2:
        return whole(name, value[0], low=low), whole(name, value[1], low=low)
    value = whole(name, value, low=low)
    return value, value


def span(
    name: str,
    value: Any,
    *,
    low: float = -torch.inf,
    high: float = torch.inf,
    around: float | None = 0.0,
) -> tuple[float, float]:
    """The ends of a range: two numbers or, unless `around` is None, so far below and above it."""
    several = isinstance(value, Sequence) and not isinstance(value, str)
    if several or around is None:
        if not several or len(value) != 2:
            kind = "a pair of numbers" if around is None else "a number or a pair of them"
            raise ValueError(f"{name} must be {kind}, got {value!r}")
        first, last = (float(number(name, v, low=low, high=high)) for v in value)
        if first > last:
            raise ValueError(f"{name} must not decrease, got {value!r}")
        return first, last
    reach = float(number(name, value, low=0.0, high=high - around))
    return max(around - reach, low), around + reach


def fill_for(name: str, fill: float, dtype: torch.dtype) -> float:
    """A value that the dtype can hold, to put where no pixel is."""
    fill = number(name, fill)
    if dtype.is_floating_point:
        limits = torch.finfo(dtype)
        return number(name, fill, low=limits.min, high=limits.max)
    low, high = (0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    return whole(name, int(fill) if fill == int(fill) else fill, low=low, high=high)


def uniform(
    x: Tensor, *shape: int, generator: torch.Generator | None, dtype: torch.dtype | None = None
) -> Tensor:
    """Numbers between 0 and 1 for each example, on the device of the images."""
    drawn = torch.rand(len(x), *shape, dtype=dtype, **source(generator, x.device))
    return drawn.to(x.device)


def between(limits: tuple[float, float], u: Tensor) -> Tensor:
    """Numbers between two limits, from ones between 0 and 1."""
    return limits[0] + (limits[1] - limits[0]) * u


def precise(x: Tensor) -> Tensor:
    """In which numbers are computed with: single precision, or double if the images have it."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def as_before(y: Tensor, dtype: torch.dtype) -> Tensor:
    """What was computed, in the dtype of the images."""
    return y.round().clamp(0, 255).to(dtype) if dtype == torch.uint8 else y.to(dtype)


def in_one_piece(x: Tensor) -> bool:
    """Whether to write down the formula, without tricks of eager mode on a CPU."""
    wanted = torch.is_grad_enabled() and x.requires_grad
    return torch.compiler.is_compiling() or x.device.type != "cpu" or wanted


def room(x: Tensor, *shape: int, dtype: torch.dtype | None = None) -> Tensor | None:
    """Memory for a large result, with few page faults; None where the result finds its own."""
    return None if in_one_piece(x) else empty(*shape, dtype=dtype or x.dtype, device=x.device)


def is_channels_last(x: Tensor) -> bool:
    """Whether the channels of a pixel lie side by side, and not its row."""
    return not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)
