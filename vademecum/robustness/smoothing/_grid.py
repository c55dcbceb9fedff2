r"""Inputs on a grid: whole multiples $k q$ of a quantum $q$, as floating-point numbers.

The number that stands for $k$ is $k / r$ where $q = 1 / r$ for a whole $r$ (so that images of 8
bits, divided by 255, stand for themselves bit by bit), and $k q$ else: one rounding, of a whole
number that is exact, so that it depends on $k$ alone. An input counts as the multiple next to it if
it is there up to two roundings of its own dtype.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.results import one_line

__all__ = ["Grid"]


class Grid(NamedTuple):
    """A quantum, and the dtype of the inputs.

    Example:
        >>> grid = Grid(1 / 255, torch.float32)
        >>> k = grid.whole(torch.tensor([0.0, 51 / 255, 1.0]), 100)
        >>> k.tolist(), grid.value(k)
        ([0.0, 51.0, 255.0], tensor([0.0000, 0.2000, 1.0000]))
    """

    quantum: float
    """The distance of neighbours."""
    dtype: torch.dtype
    """That of the inputs."""

    __repr__ = one_line

    def whole(self, x: Tensor, reach: int) -> Tensor:
        """The multiples that inputs stand for, in a dtype with room for numbers `reach` further.

        Raises:
            ValueError: If an input is off the grid, or the dtype cannot tell neighbours apart.
        """
        eps, wide = torch.finfo(x.dtype).eps, x.double()
        k = (wide / self.quantum).round()
        largest = float(k.abs().max()) + reach
        if 4 * eps * largest > 1:  # below that the numbers themselves are exact, too
            raise ValueError(
                f"quantum must be so coarse that {x.dtype} can tell multiples up to {largest:.3g}"
                f" apart, got {self.quantum}"
            )
        off = (wide - self.quantum * k).abs() > 2 * eps * wide.abs().clamp(min=self.quantum)
        if off.any():
            place = tuple(int(i) for i in off.nonzero()[0])
            raise ValueError(
                f"x must lie on the grid of multiples of quantum = {self.quantum:.6g}, got"
                f" {x[place].item():.9g} at {place}: round it, or say quantum=None"
            )
        return k.to(torch.promote_types(x.dtype, torch.float32))

    def value(self, k: Tensor) -> Tensor:
        """What stands for these multiples, in the dtype of the inputs; overwrites the argument."""
        cells = round(1 / self.quantum)
        exact = cells > 0 and abs(cells * self.quantum - 1) <= 2 * torch.finfo(torch.float64).eps
        return (k.div_(cells) if exact else k.mul_(self.quantum)).to(self.dtype)
