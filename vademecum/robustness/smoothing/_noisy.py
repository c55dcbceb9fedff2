r"""Noisy copies of inputs: whole quanta added on a grid, or Gaussian noise in floating point.

On the grid of a quantum $q$ the input $q k$ becomes the number that stands for $k + K$, with the
rounded normal noise $K$: sums of whole numbers, without rounding. In floating point it becomes
$x + \sigma Z$ as it rounds, which is what breaks certificates (see `certified_votes`).
"""

import torch
from torch import Tensor

from vademecum.arguments import number
from vademecum.randomness import source
from vademecum.robustness.smoothing._grid import Grid
from vademecum.robustness.smoothing._rounded_normal import RoundedNormal

__all__ = ["FloatingNoise", "GridNoise"]


class GridNoise:
    """Noisy copies on a grid.

    Attributes:
        total_variation: How far the law of the noise of a coordinate is from the rounded normal.

    Args:
        x: The inputs (n, ...), on the grid.
        sigma: The standard deviation of the noise before it is rounded.
        quantum: The spacing of the grid.
    """

    def __init__(self, x: Tensor, sigma: float, quantum: float):
        number("quantum", quantum, above=0)
        law = RoundedNormal(sigma / quantum)
        self._grid = Grid(float(quantum), x.dtype)
        self.inputs = self._grid.whole(x, law.reach)
        self._law = law.to(self.inputs.dtype, x.device)
        self.total_variation = law.total_variation

    def draw(self, rows: int, generator: torch.Generator | None) -> Tensor:
        """The noise of as many copies."""
        shape = self.inputs.shape[1:]
        return self._law.draw(rows * shape.numel(), generator).view(rows, *shape)

    def copies(self, example: int, noise: Tensor) -> Tensor:
        """Copies of an input with this noise."""
        return self._grid.value(noise + self.inputs[example])


class FloatingNoise:
    """Noisy copies in floating point, which the theorem does not cover.

    Attributes:
        total_variation: Zero: nobody accounts for it here.

    Args:
        x: The inputs (n, ...).
        sigma: The standard deviation of the noise.
    """

    total_variation = 0.0

    def __init__(self, x: Tensor, sigma: float):
        self.inputs, self._sigma = x, sigma

    def draw(self, rows: int, generator: torch.Generator | None) -> Tensor:
        """The noise of as many copies."""
        x, place = self.inputs, source(generator, self.inputs.device)
        noise = torch.randn(rows, *x.shape[1:], dtype=x.dtype, **place)
        return noise.to(x.device).mul_(self._sigma)

    def copies(self, example: int, noise: Tensor) -> Tensor:
        """Copies of an input with this noise."""
        return noise + self.inputs[example]
