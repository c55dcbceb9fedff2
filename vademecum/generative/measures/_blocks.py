"""Pairs of examples in square tiles, so that nothing grows with the number of pairs."""

import math

import torch
from torch import Tensor

from vademecum.arguments import whole
from vademecum.arrays import portions

__all__ = ["blocks", "centre"]

_SIDE = 2048  # examples on a side: tiles of 32 MB, whose products ran at full speed on two cores


def blocks(n: int, d: int, memory: int | None) -> list[slice]:
    """Slices of n examples such that tiles of pairs, in double precision, keep to the memory.

    A tile of side s takes two numbers for each pair (values, and what is made of them) and the
    features of both sides, converted.

    Example:
        >>> blocks(5, 3, 300)
        [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    side = _SIDE
    if memory is not None:
        room = whole("memory", memory, low=1) / 16  # s^2 + 2 s d <= room
        side = int(math.sqrt(d * d + room) - d)
        if side < 1:
            raise ValueError(f"memory must be >= {16 + 32 * d} bytes for one pair, got {memory}")
    return portions(n, each=1, memory=min(side, _SIDE))


def centre(x: Tensor, y: Tensor) -> Tensor:
    """The middle of two sets of features (d,), about which distances lose no digits."""
    return (x.mean(0, dtype=torch.float64) + y.mean(0, dtype=torch.float64)) / 2
