r"""Windows along an axis: which inputs they cover, as masks and as spans.

Output $o$ of a window of $k$ taps, with stride $s$, dilation $d$ and $p$ entries of padding before
the first, sees the inputs $s o + d t - p$ for $0 \le t < k$, as far as they are there. Spans are
the same without this condition:

$$[\mathrm{low}, \mathrm{high}] \mapsto [s\, \mathrm{low} - p,\; s\, \mathrm{high} - p + d(k-1)],
\qquad \mathrm{jump} \mapsto s \cdot \mathrm{jump} .$$

Transposed, input $i$ meets the outputs $s i + d t - p$.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.convolution.receptive._needs import Need, Span, span_of

__all__ = ["Window", "slid"]


class Window(NamedTuple):
    """A window along one axis."""

    taps: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    transposed: bool = False

    def covered(self, mask: Tensor, axis: int, size: int) -> Tensor:
        """The inputs, `size` of them, that the outputs in a mask see."""
        line = mask.movedim(axis, -1)
        found = line.new_zeros(*line.shape[:-1], size)
        for tap in range(self.taps):
            shift = self.dilation * tap - self.padding
            if self.transposed:
                self._scatter(found, line, shift)
            else:
                self._scatter(line, found, shift, back=True)
        return found.movedim(-1, axis)

    def _scatter(self, small: Tensor, large: Tensor, shift: int, *, back: bool = False) -> None:
        """Join entries $i$ of one array with $s i + shift$ of another, into either of them."""
        first = max(0, -(shift // self.stride))
        last = min(small.shape[-1] - 1, (large.shape[-1] - 1 - shift) // self.stride)
        if last < first:
            return
        a = small[..., first : last + 1]
        start = self.stride * first + shift
        b = large[..., start : start + self.stride * (last - first) + 1 : self.stride]
        if back:
            b |= a
        else:
            a |= b

    def moved(self, span: Span) -> Span:
        """The span of the inputs for that of the outputs."""
        s, reach = self.stride, self.dilation * (self.taps - 1)
        low, high = span.low + self.padding, span.high + self.padding
        if self.transposed:
            return Span(math.ceil((low - reach) / s), high // s, span.jump / s)
        return Span(
            s * span.low - self.padding, s * span.high - self.padding + reach, span.jump * s
        )


def slid(need: Need, windows: dict[int, Window], shapes: tuple[torch.Size, torch.Size]) -> Need:
    """What windows along some axes need of an input, for what is needed of the output.

    Args:
        need: What is needed of the output.
        windows: The windows by their axes.
        shapes: Those of the input and of the output.
    """
    before, after = shapes
    mask, spans = need.mask, dict(need.spans)
    for axis, window in windows.items():
        spans[axis] = window.moved(span_of(need, axis, after[axis]))
        long = list(mask.shape)
        long[axis] = after[axis]
        mask = window.covered(mask.expand(long), axis, before[axis])
    return Need(mask, spans)
