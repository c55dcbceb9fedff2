r"""Masked convolutions: a pixel knows the rows above, what is left of it, and earlier colours.

Pixels come in raster order, and the $C$ colours of a pixel one after another; channel $i$ of a
layer belongs to colour $i \bmod C$. A weight from channel $i$ to channel $o$ at the tap $(a, b)$,
rows up and columns left of the pixel, is kept where

$$a > 0, \quad\text{or}\quad a = 0,\ b > 0, \quad\text{or}\quad a = b = 0 \text{ and }
\begin{cases} i \bmod C < o \bmod C & \text{(A)} \\
i \bmod C \le o \bmod C & \text{(B)} \end{cases}$$

Mask A is for the first layer, which reads the image; B for those after it. Rows below have no
weights at all. Exact. The claim is `pixelcnn`.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.arguments import choice, whole

__all__ = ["MaskedConv2d"]


class MaskedConv2d(nn.Module):
    """A convolution that sees earlier pixels alone; as large as its input.

    Args:
        in_channels: The number of channels of the input, a multiple of `colours`.
        out_channels: The number of channels of the output, a multiple of `colours`.
        kernel_size: The number of columns of the kernel, odd; half of the rows are above.
        kind: "A" excludes the pixel's own colour, "B" includes it.
        colours: How many colours a pixel has, each of which knows those before it.
        rows: How many rows the kernel has, the last one that of the pixel; by default half of
            `kernel_size` rounded up, and 1 looks along the row alone.
        bias: Whether there is a constant for each output channel.

    Raises:
        ValueError: If a number is out of range, or colours do not divide the channels.

    References:
        Van den Oord et al., Pixel recurrent neural networks, ICML 2016.

    Example:
        >>> layer = MaskedConv2d(1, 1, 3, kind="A", bias=False)
        >>> _ = nn.init.ones_(layer.weight)
        >>> layer(torch.ones(1, 1, 3, 3))[0, 0].tolist()  # earlier neighbours of each pixel
        [[0.0, 1.0, 1.0], [2.0, 4.0, 3.0], [2.0, 4.0, 3.0]]
    """

    mask: Tensor

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        *,
        kind: Literal["A", "B"],
        colours: int = 1,
        rows: int | None = None,
        bias: bool = True,
    ):
        super().__init__()
        self.kind, self.colours = choice("kind", kind, ("A", "B")), whole("colours", colours, low=1)
        self.in_channels = whole("in_channels", in_channels, low=1)
        self.out_channels = whole("out_channels", out_channels, low=1)
        self.kernel_size = whole("kernel_size", kernel_size, low=1)
        if kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd, got {kernel_size}")
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels % colours:
                raise ValueError(f"{name} must be divisible by colours = {colours}, got {channels}")
        self.rows = kernel_size // 2 + 1 if rows is None else whole("rows", rows, low=1)
        size = (self.rows, kernel_size)
        drawn = nn.Conv2d(in_channels, out_channels, size, bias=bias)
        self.weight, self.bias = drawn.weight, drawn.bias
        self.register_buffer("mask", self._mask(), persistent=False)

    def _mask(self) -> Tensor:
        centre = self.kernel_size // 2
        mask = torch.ones(self.out_channels, self.in_channels, self.rows, self.kernel_size)
        mask[:, :, -1, centre:] = 0
        out = torch.arange(self.out_channels)[:, None] % self.colours
        into = torch.arange(self.in_channels) % self.colours
        mask[:, :, -1, centre] = (into < out if self.kind == "A" else into <= out).float()
        return mask.bool()

    def kept(self) -> Float[Tensor, " out in rows columns"]:
        """The weights, with zeros where the mask hides something."""
        return self.weight * self.mask

    def forward(self, x: Float[Tensor, " n c h w"]) -> Float[Tensor, " n maps h w"]:
        """The outputs at all pixels; beyond the edges there are zeros."""
        if x.ndim != 4 or x.shape[1] != self.in_channels or not x.numel():
            raise ValueError(
                f"x must have the shape (n, {self.in_channels}, h, w), got {tuple(x.shape)}"
            )
        side = self.kernel_size // 2
        return F.conv2d(F.pad(x, (side, side, self.rows - 1, 0)), self.kept(), self.bias)

    def extra_repr(self) -> str:
        """The sizes, as the constructor takes them."""
        sizes = f"{self.in_channels}, {self.out_channels}, {self.kernel_size}, kind={self.kind!r}"
        sizes += f", colours={self.colours}" if self.colours > 1 else ""
        sizes += f", rows={self.rows}" if self.rows != self.kernel_size // 2 + 1 else ""
        return sizes + (", bias=False" if self.bias is None else "")
