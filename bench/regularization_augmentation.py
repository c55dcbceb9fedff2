"""Rows of the room `regularization`: augmentations of whole batches, against kornia's."""

import importlib
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bench.harness import Row, Skipped, in_turn
from vademecum.regularization.augmentation import (
    colour_jitter,
    cutmix,
    mixup,
    random_affine,
    random_crop,
    random_erasing,
    random_flip,
    random_resized_crop,
)

__all__ = ["rows"]

Change = Callable[[Tensor], Any]
Rows = Callable[..., Row]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    yield from in_turn(_batch(device, 10_000, 1, 28), _batch(device, 512, 3, 224))


def _same(mine: Any, other: Any, *, fixed: tuple[Change, Change], few: Tensor, tol: float) -> None:
    """Their random numbers differ: the timed calls agree in shape, and in numbers without chance.

    Those are what does not depend on the draw (of crops, differences of a ramp's pixels; of erased
    images, how much is left; of mixtures, how far they are from their formula), or fixed draws.
    """
    assert _images(mine).shape == _images(other).shape
    ours, theirs = (_images(change(few)) for change in fixed)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=tol)


def _images(answer: Any) -> Tensor:
    return answer if isinstance(answer, Tensor) else answer[0]


def _kornia() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("kornia.augmentation")


def _batch(device: torch.device, n: int, c: int, size: int) -> Iterator[Row]:
    torch.manual_seed(0)
    K, x = _kornia(), torch.rand(n, c, size, size, device=device)
    few = torch.rand(4, c, size, size, device=device)

    def row(
        name: str, ours: Change, peer: Change, fixed: tuple[Change, Change], tol: float = 0.0
    ) -> Row:
        agree = partial(_same, fixed=fixed, few=few, tol=tol)
        return Row(f"{name}, {n:,} x {c} x {size} x {size}", partial(ours, x),
                   {"kornia": partial(peer, x)}, agree)  # fmt: skip

    yield from _places(K, size, row)
    yield from _warps(K, size, row)
    yield from _mixtures(K, n, row, device)
    if c == 3:
        yield from _colours(K, row)


def _places(K: Any, size: int, row: Rows) -> Iterator[Row]:
    part, large = size * 7 // 8, size + 8
    yield row(f"random crop of {part}", partial(random_crop, size=part), K.RandomCrop((part, part)),
              (_of_a_ramp(partial(random_crop, size=part)),
               _of_a_ramp(K.RandomCrop((part, part)))))  # fmt: skip
    yield row("random crop, padding 4", partial(random_crop, size=size, padding=4),
              K.RandomCrop((size, size), padding=4),
              (partial(random_crop, size=large, padding=4),
               K.RandomCrop((large, large), padding=4)))  # fmt: skip
    yield row("random flip", random_flip, K.RandomHorizontalFlip(p=0.5),
              (partial(random_flip, horizontal=1.0), K.RandomHorizontalFlip(p=1.0)))  # fmt: skip
    yield row("random erasing", random_erasing, K.RandomErasing(p=0.5),
              (_left(partial(random_erasing, p=1.0, scale=(0.25, 0.25), ratio=(1.0, 1.0))),
               _left(K.RandomErasing((0.25, 0.25), (1.0, 1.0), p=1.0))))  # fmt: skip


def _warps(K: Any, size: int, row: Rows) -> Iterator[Row]:
    half = size * 5 // 8
    whole = K.RandomResizedCrop((half, half), (1.0, 1.0), (1.0, 1.0), align_corners=False)
    # places up to 224 are rounded by 224 eps in both coordinates on both sides: 1e-4
    yield row("random resized crop", partial(random_resized_crop, size=size),
              K.RandomResizedCrop((size, size)),
              (partial(random_resized_crop, size=half, scale=(1.0, 1.0)), whole), 1e-4)  # fmt: skip
    turned = K.RandomAffine((-30.0, -30.0), None, (1.1, 1.1), align_corners=True, p=1.0)
    yield row("random affine",
              partial(random_affine, degrees=30.0, translate=0.1, scale=(0.8, 1.2)),
              K.RandomAffine(30.0, (0.1, 0.1), (0.8, 1.2), p=1.0),
              (partial(random_affine, degrees=(30.0, 30.0), scale=(1.1, 1.1)), turned),
              1e-3)  # fmt: skip


def _mixtures(K: Any, n: int, row: Rows, device: torch.device) -> Iterator[Row]:
    y = torch.randint(10, (n,), device=device)
    blend, paste = (partial(f, classes=10) for f in (mixup, cutmix))
    peer = K.RandomMixUpV2(p=1.0, data_keys=["input"])

    def our_blend(x: Tensor) -> Tensor:
        mixed = blend(x, y=y[: len(x)])
        return mixed.images - _lerp(x, x[mixed.partners], mixed.share)

    def their_blend(x: Tensor) -> Tensor:
        mixed, drawn = peer(x), peer._params
        return mixed - _lerp(x, x[drawn["mixup_pairs"]], 1 - drawn["mixup_lambdas"].to(x))

    yield row("mixup", partial(blend, y=y), peer, (our_blend, their_blend), 1e-6)
    cut = K.RandomCutMixV2(p=1.0, data_keys=["input"], use_correct_lambda=True)

    def our_paste(x: Tensor) -> Tensor:
        mixed = paste(x, y=y[: len(x)])
        return _foreign(mixed.images, x, x[mixed.partners])

    def their_paste(x: Tensor) -> Tensor:
        mixed = cut(x)
        return _foreign(mixed, x, x[cut._params["mix_pairs"][0]])

    yield row("cutmix", partial(paste, y=y), cut, (our_paste, their_paste))


def _of_a_ramp(change: Change) -> Change:
    """Differences to the first pixel, the same wherever a window was cut."""

    def crop(x: Tensor) -> Tensor:
        h, w = x.shape[2:]
        ramp = torch.arange(1.0 * h * w, device=x.device).view(1, 1, h, w).expand_as(x)
        y = change(ramp.contiguous())
        return y - y[:, :, :1, :1]

    return crop


def _left(change: Change) -> Change:
    """How many pixels are left of each image."""
    return lambda x: change(torch.ones_like(x)).sum((1, 2, 3))


def _lerp(x: Tensor, other: Tensor, share: Tensor) -> Tensor:
    return torch.lerp(other, x, share[:, None, None, None])


def _foreign(y: Tensor, x: Tensor, other: Tensor) -> Tensor:
    """How many pixels are neither of the one nor of the other image."""
    return ((y != x) & (y != other)).sum()


def _colours(K: Any, row: Rows) -> Iterator[Row]:
    change = partial(colour_jitter, brightness=0.4, contrast=0.4, saturation=0.4)
    fixed = partial(colour_jitter, brightness=(0.7, 0.7), contrast=(0.9, 0.9),
                    saturation=(0.6, 0.6))  # fmt: skip
    one_by_one = [K.ColorJitter(**{name: (factor, factor)}, p=1.0) for name, factor in
                  (("brightness", 0.7), ("contrast", 0.9), ("saturation", 0.6))]  # fmt: skip

    def theirs(x: Tensor) -> Tensor:
        for step in one_by_one:
            x = step(x)
        return x

    for hue in (0.0, 0.1):
        yield row(f"colour jitter{', with hue' if hue else ''}", partial(change, hue=hue),
                  K.ColorJitter(0.4, 0.4, 0.4, hue, p=1.0), (fixed, theirs), 1e-3)  # fmt: skip
