"""Which method of convolution takes less time: an estimate.

Constants are nanoseconds, and what they are per is said beside each; measured on one core of a
server with AVX2, torch 2.13 with MKL, for float32 and for what is wider.
"""

import math

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


def cheaper_by_fft(x: Tensor, kernel: Tensor, window: Window) -> bool:
    """Whether Fourier transforms are estimated to be faster."""
    if kernel.numel() == 1:
        return False
    wide = int(x.element_size() > 4)
    batch = x.numel() // math.prod(x.shape[x.ndim - kernel.ndim :])
    return _transforms(x, kernel, window, batch, wide) < _products(kernel, window, batch, wide)


def _products(kernel: Tensor, window: Window, batch: int, wide: int) -> float:
    outputs = batch * math.prod(stop - start for start, stop in window)
    slower = _BEYOND if outputs * (4 << wide) > _CACHE else 1.0
    if kernel.numel() <= FEW:
        calls = (0.9 + 0.5 * kernel.ndim) * _CALL  # slices, and one product
        return 3 * _CALL + kernel.numel() * (calls + slower * outputs * _TAP[wide])
    k = kernel.shape[-1]
    span, rows = slab_width(k) + k - 1, kernel.numel() // k
    each = 2 * _CALL + slower * outputs * (_COPY[wide] + span * _SLAB[wide])
    return 18 * _CALL + rows * each


def _transforms(x: Tensor, kernel: Tensor, window: Window, batch: int, wide: int) -> float:
    d = kernel.ndim
    N = transform_lengths(x.shape[x.ndim - d :], kernel.shape, window)
    axes = zip(N, kernel.shape, x.shape[x.ndim - d :], window, strict=True)
    tiles = [
        1 if max(e, n + k - 1 - s) <= size else -(-(e - s) // (size - k + 1))
        for size, k, n, (s, e) in axes
    ]
    points, stripes = math.prod(N), math.prod(tiles[:-1])  # the last axis is one call
    total = batch * math.prod(tiles) * points
    slower = _BEYOND if total / stripes * (4 << wide) > _CACHE else 1.0
    work = slower * (total + points) * math.log2(points) * _WAVE[wide]
    return ((1 + 9 * d) * _CALL + sum(N) * _PLAN[wide]) * stripes + work
