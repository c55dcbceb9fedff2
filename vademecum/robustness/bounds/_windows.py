r"""Functions of an image that look at a window of it: coefficients on the window alone.

An entry at place $q$ of a convolution's output depends on the window of its input that begins at
$q S - P$ and is $K$ wide, with $S, P, K$ its stride, padding and kernel. The convolution before it,
with stride $s$, padding $p$ and kernel $k$, widens the window:

$$S' = S s, \qquad P' = P s + p, \qquad K' = (K - 1) s + k .$$

So a function that is carried back keeps $K'^2$ coefficients a channel, not those of the whole
image, until its window covers most of that. What lies in the padding meets numbers that are 0.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Window", "dense", "features", "first_window", "spread"]


class Window(NamedTuple):
    """Where the windows of functions lie."""

    place: tuple[Tensor, ...]
    """The places $q$, along each axis, `(n, r)`."""
    stride: tuple[int, ...]
    """The strides $S$."""
    padding: tuple[int, ...]
    """The paddings $P$."""
    size: tuple[int, ...]
    """The widths $K$."""

    def widened(self, stride: list[int], padding: list[int], kernel: list[int]) -> "Window":
        """The windows before a convolution."""
        each = list(zip(self.stride, self.padding, self.size, stride, padding, kernel, strict=True))
        return Window(
            self.place,
            tuple(S * s for S, _, _, s, _, _ in each),
            tuple(P * s + p for _, P, _, s, p, _ in each),
            tuple((K - 1) * s + k for _, _, K, s, _, k in each),
        )

    def share(self, shape: tuple[int, ...]) -> float:
        """How much of an image a window is."""
        return math.prod(self.size) / math.prod(shape[1:])

    def twice(self) -> "Window":
        """For functions and their negatives, side by side."""
        return self._replace(place=tuple(torch.cat([q, q], 1) for q in self.place))

    def entries(self, shape: tuple[int, ...]) -> tuple[Tensor, list[int]]:
        """The entries of padded images `(n, r, K...)` that windows hold, and the images' sizes."""
        wide = [n + 2 * P for n, P in zip(shape[1:], self.padding, strict=True)]
        found = self.place[0].new_zeros(*self.place[0].shape, 1)
        for q, S, K, n in zip(self.place, self.stride, self.size, wide, strict=True):
            taps = (q * S)[..., None] + torch.arange(K, device=q.device)
            found = (found[..., None] * n + taps[..., None, :]).flatten(-2)
        return found, wide


def first_window(
    weight: Tensor, index: Tensor, counts: tuple[int, ...], stride: list[int], padding: list[int]
) -> tuple[Tensor, Window]:
    """The coefficients and windows of entries `(n, r)` of a convolution's output.

    Args:
        weight: The kernel.
        index: The entries, numbered over channels and places.
        counts: How many places the output has along each axis.
        stride: Its strides.
        padding: Its paddings.
    """
    channel, rest = index // math.prod(counts), index % math.prod(counts)
    place = [rest // math.prod(counts[i + 1 :]) % n for i, n in enumerate(counts)]
    window = Window(tuple(place), tuple(stride), tuple(padding), tuple(weight.shape[2:]))
    return weight[channel], window


def spread(image: Tensor, window: Window | None) -> Tensor:
    """What windows show of images: `(n, r, c, K...)`, or all, `(n, 1, ...)`, without any."""
    if window is None:
        return image[:, None]
    entries, wide = window.entries(tuple(image.shape[1:]))
    pads = [p for P in reversed(window.padding) for p in (P, P)]
    flat = torch.nn.functional.pad(image, pads).flatten(2)[:, None]
    shape = (*entries.shape[:2], image.shape[1])
    found = flat.expand(*shape, math.prod(wide)).gather(
        3, entries[:, :, None].expand(*shape, entries.shape[2])
    )
    return found.unflatten(3, window.size)


def features(rows: Tensor) -> Tensor:
    """The axes after the first two as one, `(n, r, d)`; a single number where there are none."""
    return rows.flatten(2) if rows.ndim > 2 else rows[..., None]


def dense(rows: Tensor, window: Window, shape: tuple[int, ...]) -> Tensor:
    """Coefficients on windows as those of whole images; what lies in the padding is dropped."""
    entries, wide = window.entries(shape)
    flat = rows.flatten(3)
    found = rows.new_zeros(*flat.shape[:3], math.prod(wide))
    found = found.scatter(3, entries[:, :, None].expand_as(flat), flat).unflatten(3, wide)
    for axis, (n, P) in enumerate(zip(shape[1:], window.padding, strict=True)):
        found = found.narrow(3 + axis, P, n)
    return found.contiguous() if any(window.padding) else found
