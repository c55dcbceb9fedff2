"""Which method of convolution takes less time: an estimate.

Constants are nanoseconds, and what they are per is said beside each; measured on one core of a
server with AVX2, torch 2.13 with MKL, for float32 and for what is wider.
"""

import math
from functools import lru_cache

from torch import Tensor

from vademecum.convolution._sliding_products import FEW, Window, slab_width, transform_lengths

__all__ = ["cheaper_by_fft"]

_CALL = 6e3  # a call of torch on small tensors
_TAP = (0.18, 0.35)  # an output of a tap
_SLAB = (0.035, 0.15)  # an entry of a slab for each output
_COPY = (0.4, 0.8)  # an input copied into blocks
_WAVE = (0.28, 0.48)  # a point of a transform, times the logarithm of their number
_PLAN = (14.0, 27.0)  # a place along each axis of a transform, once
_CACHE, _BEYOND = 2**22, 3.0  # bytes, and how much slower larger arrays are


Sizes = tuple[int, ...]
Ends = tuple[tuple[int, int], ...]


def cheaper_by_fft(x: Tensor, kernel: Tensor, window: Window) -> bool:
    """Whether Fourier transforms are estimated to be faster."""
    wide = int(x.element_size() > 4)
    return _cheaper(tuple(x.shape), tuple(kernel.shape), tuple(window), wide)


@lru_cache(4096)
def _cheaper(shape: Sizes, k: Sizes, window: Ends, wide: int) -> bool:
    n = shape[len(shape) - len(k) :]
    batch = math.prod(shape) // math.prod(n)
    return math.prod(k) > 1 and (
        _transforms(n, k, window, batch, wide) < _products(k, window, batch, wide)
    )


def _products(k: Sizes, window: Ends, batch: int, wide: int) -> float:
    outputs = batch * math.prod(stop - start for start, stop in window)
    slower = _BEYOND if outputs * (4 << wide) > _CACHE else 1.0
    taps = math.prod(k)
    if taps <= FEW:
        calls = (0.9 + 0.5 * len(k)) * _CALL  # slices, and one product
        return 3 * _CALL + taps * (calls + slower * outputs * _TAP[wide])
    span, rows = slab_width(k[-1]) + k[-1] - 1, taps // k[-1]
    each = 2 * _CALL + slower * outputs * (_COPY[wide] + span * _SLAB[wide])
    return 18 * _CALL + rows * each


def _transforms(n: Sizes, k: Sizes, window: Ends, batch: int, wide: int) -> float:
    N = transform_lengths(n, k, window)
    tiles = [
        1 if max(e, size + taps - 1 - s) <= length else -(-(e - s) // (length - taps + 1))
        for length, taps, size, (s, e) in zip(N, k, n, window, strict=True)
    ]
    points, stripes = math.prod(N), math.prod(tiles[:-1])  # the last axis is one call
    total = batch * math.prod(tiles) * points
    slower = _BEYOND if total / stripes * (4 << wide) > _CACHE else 1.0
    work = slower * (total + points) * math.log2(points) * _WAVE[wide]
    return ((1 + 9 * len(k)) * _CALL + sum(N) * _PLAN[wide]) * stripes + work
