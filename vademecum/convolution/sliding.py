r"""Convolution and correlation of signals with kernels.

$$(x * h)[u] = \sum_t h[t]\, x[u - t] , \qquad
(x \star h)[u] = \sum_t \overline{h[t]}\, x[u + t] ,$$

with multi-indices $u, t$ in up to three dimensions. Signals end: outside $x$ is 0, or repeats
itself. A correlation slides the kernel as it is, a convolution slides it rotated by 180 degrees,
and is the one that commutes: $x * h = h * x$.

Two methods give the same up to rounding. The *direct* one takes as many multiplications as the
definition (up to a factor two) and its error is relative to $\sum_t |h[t]|\,|x[u - t]|$, output by
output; *Fourier transforms* take some $\log N$ for each output, and the error is relative to
$\|h\| \|x\|$, for all outputs alike. Integers are exact by either. On a GPU the direct one is
torch's layer, which multiplies float32 as TF32 where `torch.backends.cudnn.allow_tf32` lets it. The
claims are `discrete_convolution`, `convolution_nd`, `cross_correlation`, `fft_convolution` and
others.
"""

import math

import torch
from jaxtyping import Num
from torch import Tensor

from vademecum.arguments import choice, floats, whole
from vademecum.convolution._sliding_costs import cheaper_by_fft
from vademecum.convolution._sliding_products import (
    Window,
    by_fft,
    by_products,
    by_taps,
    transform_lengths,
)
from vademecum.models import cannot_be_mapped

__all__ = ["convolve", "correlate", "rot180"]

_WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_MODES, _METHODS = ("full", "same", "valid", "circular"), ("auto", "direct", "fft")


def convolve(
    x: Num[Tensor, " *batch"],
    kernel: Num[Tensor, " *k"],
    *,
    mode: str = "full",
    method: str = "auto",
) -> Num[Tensor, " *result"]:
    r"""The convolution $(x * h)[u] = \sum_t h[t]\, x[u - t]$ along the last axes of `x`.

    Along each of them, with $n$ entries of `x` and $k$ of the kernel, `mode` keeps of the positions
    $u = 0, \dots, n + k - 2$ where the two overlap

    - "full": all of them;
    - "same": $n$ of them, from $\lfloor (k - 1)/2 \rfloor$ on, as SciPy does; torch's layers with
      `padding="same"` begin at $\lceil (k - 1)/2 \rceil$, which is another place if $k$ is even;
    - "valid": the $n - k + 1$ where the kernel lies within the signal;
    - "circular": $n$ of them, from 0 on, with a signal that repeats itself.

    Differentiable in both arguments, twice and more.

    Args:
        x: The signals; whatever axes come before those of the kernel are a batch. Real, complex or
            integer; of different dtypes the wider one counts. The result of integers is exact, and
            of dtype int64.
        kernel: One kernel $h$ for all, with one to three axes.
        mode: Which positions to keep.
        method: "direct", "fft", or "auto": what takes less time by an estimate.

    Raises:
        ValueError: If the shapes do not fit, an entry is not finite, or the result of integers may
            be beyond the range of int64; or, by Fourier transforms, may round to a wrong integer.

    Example:
        >>> x, h = torch.tensor([1, 2, 3]), torch.tensor([1, 2, 4])
        >>> convolve(x, h)
        tensor([ 1,  4, 11, 14, 12])
        >>> convolve(x, h, mode="valid"), convolve(x, h, mode="circular")
        (tensor([11]), tensor([15, 16, 11]))
    """
    x, kernel = _checked(x, kernel, mode, method)
    return _slide(x, kernel, mode, method)


def correlate(
    x: Num[Tensor, " *batch"],
    kernel: Num[Tensor, " *k"],
    *,
    mode: str = "full",
    method: str = "auto",
) -> Num[Tensor, " *result"]:
    r"""The correlation $(x \star h)[u] = \sum_t \overline{h[t]}\, x[u + t]$ along the last axes.

    It is the inner product of the kernel with the windows of the signal, and what deep learning
    calls a convolution. Along each axis, with $k$ entries of the kernel, the result begins at the
    lag $u = -(k - 1)$ if `mode` is "full", $-\lceil (k - 1)/2 \rceil$ if it is "same", and 0 if it
    is "valid" or "circular". Else it is like `convolve`, and agrees with `scipy.signal.correlate`.

    Args:
        x: The signals; whatever axes come before those of the kernel are a batch.
        kernel: One kernel $h$ for all, with one to three axes.
        mode: Which positions to keep: "full", "same", "valid" or "circular".
        method: "direct", "fft", or "auto": what takes less time by an estimate.

    Raises:
        ValueError: As `convolve` does.

    Example:
        >>> x, h = torch.tensor([1, 2, 3]), torch.tensor([1, 2, 4])
        >>> correlate(x, h)  # lags -2, -1, 0, 1, 2
        tensor([ 4, 10, 17,  8,  3])
        >>> correlate(x, h, mode="circular")
        tensor([17, 12, 13])
    """
    x, kernel = _checked(x, kernel, mode, method)
    y = _slide(x, rot180(kernel).conj().resolve_conj(), mode, method)
    if mode != "circular":
        return y
    return y.roll([1 - k for k in kernel.shape], tuple(range(-kernel.ndim, 0)))


def rot180(x: Num[Tensor, " *shape"], *, axes: int | None = None) -> Num[Tensor, " *shape"]:
    r"""The entries in reversed order along every axis: in two dimensions a rotation by 180 degrees.

    Args:
        x: A kernel, or anything else.
        axes: Of how many axes, the last ones; by default of all. A layer's weights have two more
            than its kernels.

    Example:
        >>> rot180(torch.tensor([[1, 2], [3, 4]]))
        tensor([[4, 3],
                [2, 1]])
    """
    axes = x.ndim if axes is None else whole("axes", axes, low=0, high=x.ndim)
    return x.flip(tuple(range(x.ndim - axes, x.ndim)))


def _checked(x: Tensor, kernel: Tensor, mode: str, method: str) -> tuple[Tensor, Tensor]:
    """Both of one dtype: float32, float64, complex or int64."""
    choice("mode", mode, _MODES)
    choice("method", method, _METHODS)
    if isinstance(x, Tensor) and isinstance(kernel, Tensor) and x.device != kernel.device:
        raise ValueError(f"kernel must be on {x.device}, like x, got one on {kernel.device}")
    for name, given in (("x", x), ("kernel", kernel)):
        if not (isinstance(given, Tensor) and given.dtype in _WHOLE):
            _insist_on_floats(name, given)
        elif not given.numel():
            raise ValueError(f"{name} must not be empty, got shape {tuple(given.shape)}")
    if not 1 <= kernel.ndim <= min(3, x.ndim):
        raise ValueError(
            "kernel must have 1 to 3 axes, and at most as many as x, got the shapes"
            f" {tuple(kernel.shape)} and {tuple(x.shape)}"
        )
    if mode in ("valid", "circular"):
        _insist_on_room(x.shape[x.ndim - kernel.ndim :], kernel.shape, mode)
    dtype = torch.promote_types(x.dtype, kernel.dtype)
    dtype = torch.int64 if dtype in _WHOLE else dtype
    return x.to(dtype), kernel.to(dtype)


def _insist_on_floats(name: str, given: Tensor) -> None:
    try:
        floats(name, given)
    except RuntimeError as error:
        if not cannot_be_mapped(error):
            raise
        raise ValueError(
            f"{name} must not be mapped by torch.vmap, since its values are looked at: the axes of"
            " x before those of the kernel are a batch already"
        ) from error


def _insist_on_room(n: tuple[int, ...], k: tuple[int, ...], mode: str) -> None:
    if any(taps > size for size, taps in zip(n, k, strict=True)):
        raise ValueError(
            f"kernel must be at most as large as the signal for mode={mode!r}, got"
            f" {tuple(k)} and {tuple(n)}"
        )


def _slide(x: Tensor, kernel: Tensor, mode: str, method: str) -> Tensor:
    if mode == "circular":
        for axis, k in zip(range(-kernel.ndim, 0), kernel.shape, strict=True):
            x = torch.cat((x.narrow(axis, x.shape[axis] - k + 1, k - 1), x), axis)
        mode = "valid"
    sizes = x.shape[x.ndim - kernel.ndim :]
    window = [_ends(n, k, mode) for n, k in zip(sizes, kernel.shape, strict=True)]
    if x.dtype == torch.int64:
        return _of_integers(x, kernel, window, method)
    half = x.dtype in (torch.float16, torch.bfloat16)  # no transform has these
    wide = (x.float(), kernel.float()) if half else (x, kernel)
    fast = method == "fft" or (method == "auto" and cheaper_by_fft(*wide, window))
    y = by_fft(*wide, window) if fast else by_products(*wide, window)
    return y.to(x.dtype) if half else y


def _ends(n: int, k: int, mode: str) -> tuple[int, int]:
    """The first position of the full convolution to keep, and the one after the last."""
    if mode == "same":
        return (k - 1) // 2, (k - 1) // 2 + n
    return (0, n + k - 1) if mode == "full" else (k - 1, n)


def _of_integers(x: Tensor, kernel: Tensor, window: Window, method: str) -> Tensor:
    """By floating-point numbers where these are certain to give the right integers."""
    wide, h = x.double(), kernel.double()
    largest = [float(wide.abs().max() * h.abs().sum()), float(wide.abs().sum() * h.abs().max())]
    bound = min(largest) * (1 + 1e-6)  # the rounding of the sums
    if bound >= 2**63:
        raise ValueError(
            f"x and kernel must have a result within int64, got entries up to"
            f" {float(wide.abs().max()):g} and {float(h.abs().max()):g}"
        )
    N = math.prod(transform_lengths(x.shape[x.ndim - h.ndim :], h.shape, window))
    error = _rounding(N) * float(wide.norm() * h.norm())
    if method == "fft" and error >= 0.25:
        raise ValueError(
            "method='fft' must not round to a wrong integer, got numbers for which the error may be"
            f" {error:.2g}: take 'direct'"
        )
    if error < 0.25 and (method == "fft" or (method == "auto" and cheaper_by_fft(wide, h, window))):
        return by_fft(wide, h, window).round().long()
    return by_products(wide, h, window).long() if bound < 2**53 else by_taps(x, kernel, window)


def _rounding(N: int) -> float:
    r"""What convolution by transforms of length N costs at most, relative to $\|x\| \|h\|$.

    Brent, Percival and Zimmermann, Error bounds on complex floating-point multiplication,
    Mathematics of Computation, 2007, prove $(6 + 3 \sqrt 5) \log_2 N$ units of $2^{-53}$ for radix
    2; a fifth is added for other radices and the last term.
    """
    return 1.2 * (6 + 3 * math.sqrt(5)) * (math.log2(N) + 1) * 2.0**-53
