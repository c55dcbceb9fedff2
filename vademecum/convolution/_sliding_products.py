r"""Sliding products of a signal and a kernel: by matrix products, and by fast Fourier transforms.

Both compute a window $s \le u < e$ of the full convolution

$$y[u] = \sum_t h[t]\, x[u - t] , \qquad 0 \le u < n + k - 1 ,$$

along each of the last axes, the others are a batch.

**Direct.** A short kernel adds up shifted signals, tap by tap (on a GPU torch's layer does). A long
one becomes a slab of its Toeplitz matrix: a block of $L$ outputs depends on $L + k - 1$ inputs, so
that all blocks of a row are one product with an $(L + k - 1) \times L$ matrix; a kernel of several
rows adds one such product a row.

**Fourier.** A transform of length $N$ wraps $y[u + N]$ onto $y[u]$; the window is right as soon as
nothing falls into it, $N \ge \max\{e, n + k - 1 - s\}$. A signal much longer than the kernel is cut
into overlapping tiles of $N$ inputs, each of which gives $N - k + 1$ outputs (overlap-save), and
stays in the cache.

All of this is differentiable as it stands, any number of times.
"""

import itertools
from collections.abc import Sequence

import torch
from scipy.fft import next_fast_len
from torch import Tensor
from torch.nn import functional as F

__all__ = ["FEW", "Window", "by_fft", "by_products", "by_taps", "slab_width", "transform_lengths"]

Window = Sequence[tuple[int, int]]

_LAYER = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TILE = {1: 2**13, 2: 2**8, 3: 2**6}  # the least length of a tile along each of 1 to 3 axes
_AT_ONCE = 2**19  # numbers to transform at a time: they stay in the cache, as does their memory
FEW = 48
"""Taps up to which adding shifted signals is faster than a slab, on one core with AVX2."""


def by_products(x: Tensor, kernel: Tensor, window: Window) -> Tensor:
    """The window of the full convolution, by sums of products."""
    if x.is_cuda:
        d, flipped = kernel.ndim, kernel.flip(tuple(range(kernel.ndim)))
        x = _padded(x, kernel, window)
        rows = x.reshape(-1, 1, *x.shape[x.ndim - d :])
        y = _LAYER[d](rows, flipped[None, None])
        return y.reshape(*x.shape[: x.ndim - d], *y.shape[2:])
    if kernel.numel() <= FEW:
        return by_taps(x, kernel, window)
    return _by_slabs(_padded(x, kernel, window), kernel.flip(tuple(range(kernel.ndim))))


def _padded(x: Tensor, kernel: Tensor, window: Window) -> Tensor:
    """The inputs that the window needs, with zeros where there are none."""
    axes = zip(reversed(x.shape), reversed(kernel.shape), reversed(window), strict=False)
    sides = [(k - 1 - start, stop - n) for n, k, (start, stop) in axes]
    return F.pad(x, [width for side in sides for width in side])


def slab_width(k: int) -> int:
    """How many outputs a block has, for a kernel of k taps."""
    return min(max(16, 2 ** (k // 3).bit_length()), 256)


def _by_slabs(x: Tensor, h: Tensor) -> Tensor:
    """All complete overlaps of the (flipped) kernel with the signal."""
    d, k = h.ndim, h.shape[-1]
    sizes = [n - m + 1 for n, m in zip(x.shape[x.ndim - d :], h.shape, strict=True)]
    L = slab_width(k)
    count = -(-sizes[-1] // L)
    blocks = F.pad(x, (0, count * L + k - 1 - x.shape[-1])).unfold(-1, L + k - 1, L).contiguous()
    at = torch.arange(L + k - 1, device=x.device)[:, None] - torch.arange(L, device=x.device)
    slabs = F.pad(h, (L - 1, L - 1))[..., at + (L - 1)]
    y = None
    for place in itertools.product(*map(range, h.shape[:-1])):
        rows = (slice(i, i + m) for i, m in zip(place, sizes[:-1], strict=True))
        part = blocks[(..., *rows, slice(None), slice(None))]
        flat = part.reshape(-1, L + k - 1)
        y = flat @ slabs[place] if y is None else torch.addmm(y, flat, slabs[place])
    assert y is not None
    return y.reshape(*x.shape[: x.ndim - d], *sizes[:-1], count * L)[..., : sizes[-1]]


def by_taps(x: Tensor, kernel: Tensor, window: Window) -> Tensor:
    """The window of the full convolution, tap by tap: for integers too large for float64."""
    x = _padded(x, kernel, window)
    y = x.new_zeros(*x.shape[: x.ndim - kernel.ndim], *(e - s for s, e in window))
    for place in itertools.product(*map(range, kernel.shape)):
        ends = zip(place, kernel.shape, window, strict=True)
        first = [(k - 1 - i, e - s) for i, k, (s, e) in ends]
        y.addcmul_(x[(..., *(slice(i, i + size) for i, size in first))], kernel[place])
    return y


def transform_lengths(n: Sequence[int], k: Sequence[int], window: Window) -> list[int]:
    """The length of the transform along each axis: of all of it, or of a tile."""
    lengths = []
    for size, taps, (start, stop) in zip(n, k, window, strict=True):
        tile = max(2 ** (8 * taps - 1).bit_length(), _TILE[len(k)])
        entire = _fast_length(max(stop, size + taps - 1 - start))
        lengths.append(entire if entire <= (tile if len(k) == 1 else 2 * tile) else tile)
    return lengths


def _fast_length(n: int) -> int:
    """A length of at least n without large factors and with many factors 2."""
    unit = 2 ** max(1, n.bit_length() - 8)
    return unit * next_fast_len(-(-n // unit), real=True)


def by_fft(x: Tensor, kernel: Tensor, window: Window) -> Tensor:
    """The window of the full convolution, by Fourier transforms."""
    k, N = kernel.shape, transform_lengths(x.shape[x.ndim - kernel.ndim :], kernel.shape, window)
    transform = _Transform(kernel, N)

    def tiled(x: Tensor, inside: list[tuple[int, int]], axis: int) -> Tensor:
        """The window along this axis and the next ones; `inside` has the others before it."""
        n, taps, (start, stop) = x.shape[axis], k[axis], window[axis]
        L, last = N[axis] - taps + 1, axis == -1
        if max(stop, n + taps - 1 - start) <= N[axis]:
            inside = [*inside, (start, stop)]
            return transform(x, inside) if last else tiled(x, inside, axis + 1)
        step = L * max(1, _AT_ONCE // (x.numel() // n * N[axis])) if last else L
        found = []
        for a in range(start, stop, step):
            b, low = min(a + step, stop), max(0, a - taps + 1)
            part, ends = x.narrow(axis, low, min(n, b) - low), (a - low, b - low)
            found.append(
                transform.of_blocks(part, inside, ends)
                if last
                else tiled(part, [*inside, ends], axis + 1)
            )
        return torch.cat(found, axis)

    return tiled(x, [], -kernel.ndim)


class _Transform:
    """Multiplication by the transform of a kernel."""

    def __init__(self, kernel: Tensor, N: list[int]):
        self.N, self.taps, self.axes = N, kernel.shape[-1], tuple(range(-kernel.ndim, 0))
        real = not kernel.is_complex()
        self.there = torch.fft.rfftn if real else torch.fft.fftn
        self.back = torch.fft.irfftn if real else torch.fft.ifftn
        self.kernel = self.there(kernel, N)

    def __call__(self, x: Tensor, window: Window) -> Tensor:
        """The window, whose ends along each axis lie within one transform."""
        y = self.back(self.there(x, self.N, self.axes) * self.kernel, self.N, self.axes)
        return y[(..., *(slice(*ends) for ends in window))]

    def of_blocks(self, x: Tensor, inside: Window, ends: tuple[int, int]) -> Tensor:
        """The same, with several overlapping blocks along the last axis."""
        d, k, N, (start, stop) = len(self.N), self.taps, self.N[-1], ends
        L = N - k + 1
        count = -(-(stop - start) // L)
        x = F.pad(x, (k - 1 - start, count * L + start - x.shape[-1]))
        y = self(x.unfold(-1, N, L).movedim(-2, -d - 1), [*inside, (k - 1, N)])
        return y.movedim(-d - 1, -2).flatten(-2)[..., : stop - start]
