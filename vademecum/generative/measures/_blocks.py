"""Pairs of examples in square tiles, so that nothing grows with the number of pairs."""

import math

import torch
from torch import Tensor

from vademecum.arguments import whole
from vademecum.arrays import portions

__all__ = ["blocks", "centre"]

_SIDE = {"cpu": 2048}  # examples: tiles of 32 MB, whose products ran at full speed on two cores
_LARGE = 8192  # elsewhere: 512 MB, since a GPU waits for small tiles to be started


def blocks(rows: Tensor, memory: int | None) -> list[slice]:
    """Slices of examples such that tiles of pairs, in double precision, keep to the memory.

    A tile of side s takes two numbers for each pair (values, and what is made of them) and as many
    for each feature of both sides, converted.

    Example:
        >>> blocks(torch.zeros(5, 3), 300)
        [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    n, d = rows.shape
    most = side = _SIDE.get(rows.device.type, _LARGE)
    if memory is not None:
        room = whole("memory", memory, low=1) / 16  # s^2 + 2 s d <= room
        side = int(math.sqrt(d * d + room) - d)
        if side < 1:
            raise ValueError(f"memory must be >= {16 + 32 * d} bytes for one pair, got {memory}")
    return portions(n, each=1, memory=min(side, most))


def centre(x: Tensor, y: Tensor) -> Tensor:
    """The middle of two sets of features (d,), about which distances lose no digits."""
    return (x.mean(0, dtype=torch.float64) + y.mean(0, dtype=torch.float64)) / 2
