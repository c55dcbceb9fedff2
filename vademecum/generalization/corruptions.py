r"""Data without structure: random labels, and pixels in random order.

Two experiments of Zhang et al. on what a network can fit that cannot be learned. Labels are drawn
afresh from all k classes for a share of the examples, so that a fraction $1 / k$ of those keeps its
label by chance. Pixels are permuted alike in all images, $x'_{i, j} = x_{i, \pi(j)}$, which keeps
everything but what is near what, or by a permutation $\pi_i$ of its own in each, which keeps the
histogram of an image alone. Exact; the claims are `random_labels` and `permuted_pixels`.

References:
    Zhang, Bengio, Hardt, Recht and Vinyals, Understanding deep learning requires rethinking
    generalization, ICLR, 2017.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int, Integer, Shaped
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.randomness import source
from vademecum.results import one_line

__all__ = ["PermutedPixels", "RandomLabels", "permute_pixels", "random_labels"]

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_KEYS = 2**22  # random numbers that are sorted at once


class RandomLabels(NamedTuple):
    """Labels, some of which were drawn at random.

    Example:
        >>> random_labels(torch.tensor([0, 1, 1, 0]), fraction=0.5).drawn.sum()
        tensor(2)
    """

    labels: Integer[Tensor, " n"]
    """The labels."""
    drawn: Bool[Tensor, " n"]
    """Which of them were drawn; one in k of these is the true one, on average."""

    __repr__ = one_line


class PermutedPixels(NamedTuple):
    """Images whose pixels are in another order.

    Example:
        >>> x = torch.arange(6.0).view(1, 6)
        >>> found = permute_pixels(x)
        >>> found.images.equal(x[:, found.permutation])
        True
    """

    images: Shaped[Tensor, " n *shape"]
    """The images."""
    permutation: Int[Tensor, " *n pixels"]
    """Where the pixels come from, by their places in a row: one order, or one for each image."""

    __repr__ = one_line


def random_labels(
    y: Integer[Tensor, " n"],
    *,
    fraction: float = 1.0,
    k: int | None = None,
    generator: torch.Generator | None = None,
) -> RandomLabels:
    """Draw a share of the labels afresh, each from all classes alike.

    Args:
        y: Labels from 0 to k - 1; they are not changed.
        fraction: The share of the examples, chosen at random, up to rounding to whole ones.
        k: How many classes there are; one more than the largest label by default.
        generator: Where random numbers come from; torch's global generator by default.

    Example:
        >>> labels, drawn = random_labels(torch.zeros(1000, dtype=torch.int64), fraction=0.2, k=10)
        >>> int(drawn.sum()), bool((labels[~drawn] == 0).all())
        (200, True)
    """
    if not isinstance(y, Tensor) or y.ndim != 1 or not len(y) or y.dtype not in _INTEGERS:
        given = f"{y.dtype} of shape {tuple(y.shape)}" if isinstance(y, Tensor) else repr(y)
        raise ValueError(f"y must be a row of integer labels, got {given}")
    share = number("fraction", fraction, low=0, high=1)
    low, high = (int(v) for v in y.aminmax())
    if low < 0:
        raise ValueError(f"y must be labels >= 0, got {low}")
    most = torch.iinfo(y.dtype).max + 1  # larger labels would wrap around
    k = whole("k", high + 1 if k is None else k, low=high + 1, high=most)
    count = round(share * len(y))
    chosen = torch.randperm(len(y), **source(generator, y.device))[:count].to(y.device)
    fresh = torch.randint(k, (count,), **source(generator, y.device)).to(y)
    drawn = torch.zeros(len(y), dtype=torch.bool, device=y.device)
    drawn[chosen] = True
    return RandomLabels(y.clone().index_copy_(0, chosen, fresh), drawn)


def permute_pixels(
    x: Shaped[Tensor, " n *shape"],
    *,
    each: bool = False,
    permutation: Int[Tensor, " *n pixels"] | None = None,
    generator: torch.Generator | None = None,
) -> PermutedPixels:
    """Put the pixels of images in a random order, the same for all or another one for each.

    Channels stay together: a pixel is moved with all its colours.

    Args:
        x: Images (n, c, h, w) or (n, h, w), or rows of features (n, d); they are not changed.
        each: Whether every image gets an order of its own.
        permutation: The order to use in the place of a random one, such as that of the training
            set for the test set: one order, or one for each image where `each` is set.
        generator: Where random numbers come from; torch's global generator by default.

    Example:
        >>> train, test = torch.rand(5, 3, 4, 4), torch.rand(2, 3, 4, 4)
        >>> found = permute_pixels(train)
        >>> again = permute_pixels(test, permutation=found.permutation).images
        >>> found.permutation.shape, again.shape, bool((test.sum((2, 3)) - again.sum((2, 3))).abs().max() < 1e-5)
        (torch.Size([16]), torch.Size([2, 3, 4, 4]), True)
    """  # noqa: E501
    if not isinstance(x, Tensor) or x.ndim not in (2, 3, 4) or not x.numel():
        given = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"x must be (n, c, h, w), (n, h, w) or (n, d), got {given}")
    pixels = math.prod(x.shape[max(1, x.ndim - 2) :])
    flat = x.reshape(len(x), -1, pixels)
    shape = (len(x), pixels) if each else (pixels,)
    if permutation is None:
        permutation = _orders(shape, generator, x.device)
    else:
        permutation = _order(permutation, shape, x.device)
    if each:
        images = flat.gather(2, permutation[:, None].expand_as(flat))
    else:
        images = flat.index_select(2, permutation)
    return PermutedPixels(images.view(x.shape), permutation)


def _orders(
    shape: tuple[int, ...], generator: torch.Generator | None, device: torch.device
) -> Tensor:
    """Random orders: one, or one a row, by sorting numbers of which no two meet in practice."""
    where = source(generator, device)
    if len(shape) == 1:
        return torch.randperm(shape[0], **where).to(device)
    n, pixels = shape
    found, rows = torch.empty(shape, dtype=torch.int64, device=device), max(1, _KEYS // pixels)
    for start in range(0, n, rows):
        part = found[start : start + rows]
        part.copy_(torch.rand(part.shape, dtype=torch.float64, **where).argsort(1))
    return found


def _order(given: Tensor, shape: tuple[int, ...], device: torch.device) -> Tensor:
    if not isinstance(given, Tensor) or given.dtype != torch.int64 or given.shape != shape:
        what = (
            f"{given.dtype} of shape {tuple(given.shape)}" if isinstance(given, Tensor) else given
        )
        raise ValueError(f"permutation must be integers of shape {shape}, got {what}")
    given = given.to(device)
    places = torch.arange(shape[-1], device=device)
    if not bool((given.sort(-1).values == places).all()):
        raise ValueError(f"permutation must hold 0, ..., {shape[-1] - 1} once each, got others")
    return given
