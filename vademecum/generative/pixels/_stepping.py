r"""One colour of one pixel of PixelCNN, from what layers made of earlier pixels.

A masked layer reads earlier pixels alone, so that what it made of them never changes: each number
is computed once. Inputs of layers lie in tables with a row for each pixel, and zeros around the
image; a step gathers the rows that the mask lets through, multiplies them with the weights to the
channels of its colour, and writes its own row. What the rows above tell is computed at the start of
each row of the image, for all of it.

Every tensor has a place of its own, so that a step can be captured as a CUDA graph.
"""

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from vademecum.generative.pixels._layers import gated
from vademecum.generative.pixels.masks import MaskedConv2d
from vademecum.models import Replay
from vademecum.randomness import categorical

if TYPE_CHECKING:
    from vademecum.generative.pixels.network import PixelCNN

__all__ = ["Stepper"]


class _Taps(NamedTuple):
    """A masked convolution at one pixel: for each colour the weights (taps * in, out)."""

    offsets: Tensor
    weights: list[Tensor]
    biases: list[Tensor]


class Stepper:
    """Draws colour after colour of pixel after pixel from a PixelCNN as it is now."""

    def __init__(self, net: "PixelCNN", n: int, context: Tensor | None):
        self._net, self._n = net, n
        self.colours, self.height, self.width = net.shape
        layers = net.residual
        convs = [net.first, *(layer.conv for layer in layers)]
        self._top = max(conv.rows for conv in convs) - 1
        if net.vertical:
            self._top = max(self._top, net.vertical[0].rows)
        self._side = max(conv.kernel_size for conv in convs) // 2
        self._across = self.width + 2 * self._side
        self._convs = [self._taps(conv) for conv in convs]
        self._ones = [self._taps(conv) for conv in (*(la.mix for la in layers), net.head)]
        self._last = self._taps(net.logits)
        self._buffers(context)
        state = (*self._tables, *self._signals)
        self._steps = [Replay(partial(self._one, c), state) for c in range(self.colours)]

    def row(self, i: int, uniform: Tensor) -> None:
        """Draw a row of all images, from numbers between 0 and 1 (w, c, n)."""
        self._look_above(i)
        start = ((i + self._top) * self._across + self._side, 0, i * self.width)
        self._where.copy_(torch.tensor(start))
        for numbers in uniform:
            for step, number in zip(self._steps, numbers, strict=True):
                self.uniform.copy_(number)
                step()
            self._where += 1

    def images(self) -> Tensor:
        """What was drawn (n, c, h, w)."""
        return self._drawn.permute(2, 3, 0, 1).contiguous()

    def _taps(self, conv: MaskedConv2d) -> _Taps:
        seen = [
            (r, k)
            for r in range(conv.rows)
            for k in range(conv.kernel_size)
            if bool(conv.mask[:, :, r, k].any())
        ]
        offsets = [(r - conv.rows + 1) * self._across + k - conv.kernel_size // 2 for r, k in seen]
        kept = torch.stack([conv.kept()[:, :, r, k].T for r, k in seen])  # (taps, in, out)
        own = [slice(c, None, self.colours) for c in range(self.colours)]
        bias = conv.bias
        assert bias is not None, "all layers of a PixelCNN have biases"
        return _Taps(
            torch.tensor(offsets, device=bias.device),
            [kept[:, :, channels].flatten(0, 1).contiguous() for channels in own],
            [bias[channels].contiguous() for channels in own],
        )

    def _buffers(self, context: Tensor | None) -> None:
        net, n, like = self._net, self._n, self._net.first.weight
        places = (self.height + self._top) * self._across
        sizes = [net.shape[0], *[net.first.out_channels] * len(net.residual)]
        self._tables = [like.new_zeros(places, n, size) for size in sizes]
        inner = [net.first.out_channels] * (2 * len(net.residual) + 1)
        self._signals = [like.new_zeros(n, size) for size in (*inner, net.head.out_channels)]
        self._pixel = like.new_zeros(n, self.colours)
        self._signals.append(self._pixel)
        self._drawn = torch.zeros(
            self.height, self.width, n, self.colours, dtype=torch.long, device=like.device
        )
        self._flat = self._drawn.flatten(0, 1)
        self._signals.append(self._flat)
        start = torch.tensor([self._top * self._across + self._side, 0, 0])
        self._where = start.to(like.device)
        self.position, self.column, self.place = self._where.split(1)
        self.uniform = like.new_zeros(n, dtype=torch.promote_types(like.dtype, torch.float32))
        drives = [net.condition, *(layer.condition for layer in net.residual)]
        self._drives = [None if d is None or context is None else d(context) for d in drives]
        self._links: list[Tensor] = []
        self._maps: list[Tensor] = []
        for layer in net.vertical:
            self._links.append(like.new_zeros(self.width, n, layer.conv.out_channels))
            shape = (n, layer.conv.in_channels, self.height + layer.rows, self._across)
            self._maps.append(like.new_zeros(shape))

    def _look_above(self, i: int) -> None:
        """What the vertical stack makes of the rows above row i, for all of that row."""
        vertical = self._net.vertical
        if not vertical:
            return
        first = vertical[0]
        table = self._tables[0].view(-1, self._across, self._n, self.colours)
        rows = table[i + self._top - first.rows : i + self._top].permute(2, 3, 0, 1)
        for k, layer in enumerate(vertical):
            if k:
                rows = self._maps[k][:, :, i + 1 : i + 1 + layer.rows]
            cut = self._side - layer.side
            maps, link = layer.along(rows[..., cut : self._across - cut])
            self._links[k].copy_(link[:, :, 0].permute(2, 0, 1))
            if k + 1 < len(vertical):
                following = self._maps[k + 1]
                made = gated(maps) if k else maps
                place = i + vertical[k + 1].rows
                following[:, :, place, self._side : self._side + self.width] = made[:, :, 0]

    def _one(self, c: int) -> None:
        """Draw a colour of the pixel, in all images."""
        own = slice(c, None, self.colours)
        depth = len(self._net.residual)
        signal = self._at(0, c)
        for k in range(depth):
            h, g = self._signals[2 * k], self._signals[2 * k + 1]
            h[:, own] = signal
            self._tables[k + 1].index_copy_(0, self.position, h[None])
            g[:, own] = gated(self._at(k + 1, c))
            signal = signal + torch.addmm(self._ones[k].biases[c], g, self._ones[k].weights[c])
        top, head = self._signals[2 * depth], self._signals[2 * depth + 1]
        top[:, own] = signal.relu()
        hidden = torch.addmm(self._ones[depth].biases[c], top, self._ones[depth].weights[c])
        head[:, own] = hidden.relu()
        logits = torch.addmm(self._last.biases[c], head, self._last.weights[c])
        value = categorical(logits, self.uniform)
        self._write(c, value)

    def _at(self, k: int, c: int) -> Tensor:
        """A masked convolution at the pixel, with all that is added to it, for one colour."""
        taps, own = self._convs[k], slice(c, None, self.colours)
        found = taps.biases[c].expand(self._n, -1)
        if self._links:
            found = found + self._links[k].index_select(0, self.column)[0][:, own]
        drive = self._drives[k]
        if drive is not None:
            found = found + drive[:, own]
        seen = self._tables[k].index_select(0, self.position + taps.offsets)
        return torch.addmm(found, seen.transpose(0, 1).flatten(1), taps.weights[c])

    def _write(self, c: int, value: Tensor) -> None:
        self._pixel[:, c] = self._net.scaled(value)
        self._tables[0].index_copy_(0, self.position, self._pixel[None])
        self._flat[:, :, c].index_copy_(0, self.place, value[None])
