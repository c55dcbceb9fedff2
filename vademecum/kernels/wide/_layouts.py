"""Which axes of a tensor are channels and which are positions, through views of it.

A layout has for each axis of the tensor beyond the first what it is made of: `CHANNEL`, or numbers
of axes of positions, in order.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

__all__ = ["CHANNEL", "Layout", "moved", "permutation", "reshaped"]

CHANNEL = -1
"""What stands for the axis of channels."""
Layout = tuple[tuple[int, ...], ...]
"""What each axis of a tensor beyond the first is made of."""


def reshaped(
    layout: Layout, sizes: Sequence[int], channels: int, shape: Sequence[int]
) -> Layout | None:
    """The layout after a change of shape that only joins axes, or parts joined ones again.

    Args:
        layout: The layout before.
        sizes: The sizes of axes of positions.
        channels: The size of the axis of channels.
        shape: The new shape, without the first axis.

    Returns:
        The layout, or None if an axis is cut into pieces.

    Example:
        >>> reshaped(((-1,), (0,), (1,)), (4, 5), 3, (3, 20))
        ((-1,), (0, 1))
    """
    left = [(a, channels if a == CHANNEL else sizes[a]) for part in layout for a in part]
    found: list[tuple[int, ...]] = []
    for size in shape:
        part, product = [], 1
        while left and product < size:
            a, n = left.pop(0)
            part.append(a)
            product *= n
        if product != size:
            return None
        if size == 1 and left and left[0][1] == 1:
            part.append(left.pop(0)[0])
        found.append(tuple(part))
    if any(n != 1 for _, n in left):
        return None
    if left and found:  # axes of length one that were dropped
        found[-1] = (*found[-1], *(a for a, _ in left))
    return tuple(found)


def moved(layout: Layout, order: Sequence[int]) -> Layout:
    """The layout after a permutation of axes, with the first one as axis 0."""
    return tuple(layout[i - 1] for i in order[1:])


def permutation(function: Callable[[Tensor], Tensor], shape: Sequence[int]) -> list[int] | None:
    """The order of axes that a function gives a tensor, found by their strides."""
    strides = [3 ** (i + 3) for i in range(len(shape))]
    probe = torch.empty_strided(tuple(shape), strides, device="meta")
    found = [strides.index(s) for s in function(probe).stride() if s in strides]
    return found if sorted(found) == list(range(len(strides))) else None
