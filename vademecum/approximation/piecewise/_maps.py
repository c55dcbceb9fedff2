r"""The steps that a piecewise-linear network is made of.

Every network that this room can take apart is a chain (or graph) of three kinds of steps on the
activations $h \in \mathbb{R}^k$ of one example:

* **affine**: $h \mapsto L h + c$: dense and convolutional layers, batch normalisation in
  evaluation, average pooling, sums of branches, and everything that only moves entries;
* **kinks**: a scalar function of each entry, linear between thresholds
  $\theta_1 < \dots < \theta_p$: it is $h \mapsto a_i h + c_i$ on its piece
  $i = \#\{j : h > \theta_j\}$;
* **largest**: the maximum over the last axis. Its piece is the index of the first maximum. Pooling
  and maxout are affine steps followed by this one.

So an entry that is *equal* to a threshold belongs to the piece below it: a ReLU at 0 is inactive.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Affine", "Kinks", "Largest", "PiecewiseMap", "kinks"]


@dataclass(frozen=True)
class Affine:
    r"""The step $h \mapsto L h + c$; `magnitude` applies $|L|$, entry by entry, to radii.

    All maps take batches, one for each input. Without a `magnitude` it is found by applying $L$ to
    a basis. `transpose` takes rows, `(n, k, *shape)`, to those of each input; without one autograd
    finds $L^T$.
    """

    linear: Callable[..., Tensor]
    offset: Tensor | None = None
    magnitude: Callable[..., Tensor] | None = None
    transpose: Callable[[Tensor], Sequence[Tensor]] | None = None
    whole: Callable[..., Tensor] | None = None  # all of it in one call

    def __call__(self, *h: Tensor) -> Tensor:
        """Apply the step to a batch."""
        if self.whole is not None:
            return self.whole(*h)
        y = self.linear(*h)
        return y if self.offset is None else y + self.offset

    def radius(self, *r: Tensor) -> Tensor:
        """The half-widths $|L| r$ of the box that holds the image of a box with half-widths r."""
        if self.magnitude is not None:
            return self.magnitude(*r)
        (r0,) = r
        size = r0[0].numel()
        basis = torch.eye(size, dtype=r0.dtype, device=r0.device).view(size, *r0.shape[1:])
        return torch.tensordot(r0.flatten(1), self.linear(basis).abs(), 1)


@dataclass(frozen=True)
class Kinks:
    """One scalar piecewise-linear function for each entry; entries are broadcast."""

    thresholds: tuple[Tensor, ...]
    slopes: tuple[Tensor, ...]
    intercepts: tuple[Tensor, ...] | None  # None if all are zero
    gate: bool = False  # whether the slopes are 0 and 1, so that a piece is its slope
    centred: bool = False  # whether 0 is the only threshold

    def piece(self, h: Tensor) -> Tensor:
        """The number of thresholds below each entry."""
        if len(self.thresholds) == 1:
            return (h > self.thresholds[0]).view(torch.uint8)
        return sum((h > t).view(torch.uint8) for t in self.thresholds)  # type: ignore[return-value]

    def slope(self, piece: Tensor) -> Tensor:
        """The slope on each entry's piece."""
        return piece.to(self.slopes[0].dtype) if self.gate else _on_piece(self.slopes, piece)

    def intercept(self, piece: Tensor) -> Tensor | None:
        """The intercept on each entry's piece; None if it is zero."""
        return None if self.intercepts is None else _on_piece(self.intercepts, piece)


@dataclass(frozen=True)
class Largest:
    """The maximum over the last axis."""

    def piece(self, h: Tensor) -> Tensor:
        """The index of the first maximum."""
        return h.argmax(-1)


PiecewiseMap = Affine | Kinks | Largest
"""A step, whatever its kind."""


def _on_piece(values: tuple[Tensor, ...], piece: Tensor) -> Tensor:
    """The value of each entry's piece; `lerp` is exact at 0 and 1, and faster than `where`."""
    result = values[0]
    for i, value in enumerate(values[1:]):
        beyond = piece if len(values) == 2 else (piece > i).view(torch.uint8)
        result = torch.lerp(result, value, beyond.to(value.dtype))
    return result


def kinks(like: Tensor, thresholds: Any, slopes: Any, intercepts: Any = None) -> Kinks:
    """Kinks from numbers or tensors, in the dtype and on the device of `like`."""

    def tensors(values: Any) -> tuple[Tensor, ...]:
        return tuple(v.to(like) if isinstance(v, Tensor) else like.new_full((), v) for v in values)

    return Kinks(
        tensors(thresholds),
        tensors(slopes),
        None if intercepts is None else tensors(intercepts),
        gate=all(isinstance(a, int) for a in slopes) and slopes == [0, 1],
        centred=isinstance(thresholds[0], int) and thresholds == [0],
    )
