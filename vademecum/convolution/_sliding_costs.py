"""Which method of convolution takes less time: an estimate."""

from torch import Tensor

from vademecum.convolution._sliding_products import Window

__all__ = ["cheaper_by_fft"]


def cheaper_by_fft(x: Tensor, kernel: Tensor, window: Window) -> bool:
    """Whether Fourier transforms are estimated to be faster."""
    return kernel.numel() > 64
