r"""The layers that PixelCNN repeats: gated masked convolutions, beside a stack of rows above.

$$h \leftarrow h + M \big(\tanh a \odot \sigma(b)\big), \qquad (a, b) = W * h + U v + V c,$$

with a masked $W$ and $M$, a context $c$, and $v$ what the rows above say, if there is a vertical
stack: that has ordinary convolutions, since it sees an image which is moved down by a row.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.generative.pixels.masks import MaskedConv2d

__all__ = ["PixelLayer", "RowsAbove", "gated"]


def gated(x: Tensor, dim: int = 1) -> Tensor:
    """The hyperbolic tangent of one half of the channels times the sigmoid of the other."""
    a, b = x.chunk(2, dim)
    return torch.tanh(a) * torch.sigmoid(b)


class PixelLayer(nn.Module):
    """A gated masked convolution with a residual connection."""

    conv: MaskedConv2d
    mix: MaskedConv2d
    condition: nn.Linear | None

    def __init__(self, width: int, kernel_size: int, *, colours: int, context: int, rows: int):
        super().__init__()
        self.conv = MaskedConv2d(
            width, 2 * width, kernel_size, kind="B", colours=colours, rows=rows
        )
        self.condition = nn.Linear(context, 2 * width, bias=False) if context else None
        self.mix = MaskedConv2d(width, width, 1, kind="B", colours=colours)

    def forward(self, h: Tensor, above: Tensor | None, context: Tensor | None) -> Tensor:
        """The signal for the next layer."""
        gates = self.conv(h) if above is None else self.conv(h) + above
        if self.condition is not None:
            gates = gates + self.condition(context)[:, :, None, None]
        return h + self.mix(gated(gates))


class RowsAbove(nn.Module):
    """A layer of the vertical stack, and what it tells the layer beside it.

    Its kernel has `rows` rows, and the last of these is that of the pixel: what it reads is the
    image moved down by `shift` rows, or maps of it.
    """

    def __init__(self, channels: int, maps: int, kernel_size: int, *, rows: int, shift: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, maps, (rows, kernel_size))
        self.link = nn.Conv2d(maps, maps, 1)
        self.rows, self.side, self.shift = rows, kernel_size // 2, shift

    def forward(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Its maps, before any gate, and the link."""
        above = self.rows - 1 + self.shift
        v = F.pad(v, (self.side, self.side, above, 0))
        return self.along(v[:, :, : v.shape[2] - self.shift])

    def along(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """The same for rows that have what they need above and beside them."""
        maps = self.conv(v)
        return maps, self.link(maps)
