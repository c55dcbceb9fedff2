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

Check = Callable[[], tuple[Tensor, Tensor]]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    yield from in_turn(_batch(device, 10_000, 1, 28), _batch(device, 512, 3, 224))


def _same(mine: Any, other: Any, *, check: Check, tol: float) -> None:
    """Both without chance, since their random numbers differ; the timed calls in shape alone."""
    mine = mine if isinstance(mine, Tensor) else mine[0]
    assert mine.shape == other.shape
    ours, theirs = check()
    torch.testing.assert_close(ours, theirs, rtol=0, atol=tol)


def _kornia() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("kornia.augmentation")


def _batch(device: torch.device, n: int, c: int, size: int) -> Iterator[Row]:
    torch.manual_seed(0)
    K, x = _kornia(), torch.rand(n, c, size, size, device=device)
    y, few = torch.randint(10, (n,), device=device), torch.rand(4, c, size, size, device=device)
    part, last = size * 7 // 8, f", {n:,} x {c} x {size} x {size}"

    def row(name: str, ours: Callable[[], Any], peer: Any, check: Check, tol: float = 0.0) -> Row:
        return Row(name + last, ours, {"kornia": partial(peer, x)},
                   partial(_same, check=check, tol=tol), limit="a copy" if not tol else "")  # fmt: skip

    yield row(f"random crop of {part}", lambda: random_crop(x, part), K.RandomCrop((part, part)),
              lambda: (random_crop(few, size), K.RandomCrop((size, size))(few)))  # fmt: skip
    yield row("random crop, padding 4", lambda: random_crop(x, size, padding=4),
              K.RandomCrop((size, size), padding=4),
              lambda: (random_crop(few, size + 8, padding=4),
                       K.RandomCrop((size + 8, size + 8), padding=4)(few)))  # fmt: skip
    yield row("random flip", lambda: random_flip(x), K.RandomHorizontalFlip(p=0.5),
              lambda: (random_flip(few, horizontal=1.0),
                       K.RandomHorizontalFlip(p=1.0)(few)))  # fmt: skip
    yield row("random resized crop", lambda: random_resized_crop(x, size),
              K.RandomResizedCrop((size, size)),
              lambda: (random_resized_crop(few, size, scale=(1.0, 1.0)),
                       K.RandomResizedCrop((size, size), (1.0, 1.0), (1.0, 1.0))(few)),
              1e-5)  # fmt: skip
    how = {"degrees": 30.0, "translate": 0.1, "scale": (0.8, 1.2)}
    turn = {"degrees": (30.0, 30.0), "scale": (1.1, 1.1)}
    yield row("random affine", lambda: random_affine(x, **how),
              K.RandomAffine(30.0, (0.1, 0.1), (0.8, 1.2), p=1.0),
              lambda: (random_affine(few, **turn), K.RandomAffine((-30.0, -30.0), None, (1.1, 1.1),
                                                                  align_corners=True, p=1.0)(few)), 1e-3)  # fmt: skip
    yield row(
        "random erasing",
        lambda: random_erasing(x),
        K.RandomErasing(p=0.5),
        lambda: (random_erasing(few, p=0.0), K.RandomErasing(p=0.0)(few)),
    )
    yield row(
        "mixup",
        lambda: mixup(x, y, classes=10),
        K.RandomMixUpV2(p=1.0, data_keys=["input"]),
        lambda: (few, K.RandomMixUpV2((0.0, 0.0), p=1.0)(few)),
    )
    yield row(
        "cutmix",
        lambda: cutmix(x, y, classes=10),
        K.RandomCutMixV2(p=1.0, data_keys=["input"], use_correct_lambda=True),
        lambda: (few, few),
    )
    if c == 3:
        yield from _colours(x, few, row, K)


def _colours(x: Tensor, few: Tensor, row: Callable[..., Row], K: Any) -> Iterator[Row]:
    how = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4}
    fixed = {"brightness": (0.7, 0.7), "contrast": (0.9, 0.9), "saturation": (0.6, 0.6)}
    for hue in (0.0, 0.1):
        yield row(f"colour jitter{', with hue' if hue else ''}",
                  lambda hue=hue: colour_jitter(x, hue=hue, **how),
                  K.ColorJitter(0.4, 0.4, 0.4, hue, p=1.0),
                  lambda: (colour_jitter(few, **fixed), _jittered(K, few, fixed)), 2e-2)  # fmt: skip


def _jittered(K: Any, x: Tensor, factors: dict[str, tuple[float, float]]) -> Tensor:
    """The same changes by kornia, one after the other in our order."""
    for name, factor in factors.items():
        x = K.ColorJitter(**{name: factor}, p=1.0)(x)
    return x
