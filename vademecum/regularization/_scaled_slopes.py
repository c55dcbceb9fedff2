"""Whether a tensor is orthogonal to its gradient up to rounding, row by row.

The bound on rounding is derived in `effective_steps`.
"""

import math
from typing import NamedTuple

from torch import Tensor

__all__ = ["Slopes"]

_FINER = 16 * 2.0**-29  # double against single precision, with a factor of safety
_UNIT = 2.0**-52


class Slopes(NamedTuple):
    """A tensor, its gradient, and what a coarser computation of that differs by."""

    w: Tensor
    g: Tensor
    d: Tensor

    def rows(self) -> "Slopes":
        """The same with a row for each unit."""
        n = len(self.w) if self.w.ndim else 1
        return Slopes(*(t.reshape(n, -1) for t in self))

    def whole(self) -> "Slopes":
        """The same with one row."""
        return Slopes(*(t.reshape(1, -1) for t in self))

    def coarse(self) -> "Slopes":
        """The same with the gradient that was computed coarsely."""
        return self._replace(g=self.g - self.d)

    def flat(self) -> Tensor:
        """Whether there is no gradient, row by row."""
        return self.g.norm(dim=1) <= self._rounding()

    def cosine(self) -> Tensor:
        """The cosine between tensor and gradient, row by row."""
        return (self.w * self.g).sum(1) / self._lengths()

    def tolerance(self) -> Tensor:
        """Up to what that is zero by rounding."""
        adding = math.sqrt(self.w.shape[1]) * _UNIT
        return self._rounding() * self.w.norm(dim=1) / self._lengths() + adding

    def invariant(self) -> Tensor:
        """Whether scaling changes nothing though there is a gradient, row by row."""
        return (self.cosine().abs() <= self.tolerance()) & ~self.flat() & (self.w.norm(dim=1) > 0)

    def _rounding(self) -> Tensor:
        """How far off a row's gradient may be: as its own difference says, or that of all rows."""
        own, size = self.d.norm(dim=1), self.g.norm(dim=1)
        total = self.g.norm()
        shared = size * (self.d.norm() / total.where(total > 0, 1.0))
        return _FINER * own.maximum(shared)

    def _lengths(self) -> Tensor:
        lengths = self.w.norm(dim=1) * self.g.norm(dim=1)
        return lengths.where(lengths > 0, 1.0)
