r"""U-Net: down to a coarse map, up again, and at each level the detail from the way down.

Each of `depth` levels has two $3 \times 3$ convolutions and a $2 \times 2$ pooling, which doubles
the maps and halves the size; on the way up a strided convolution halves the maps and doubles the
size, and the maps of equal resolution from the way down are put beside them. The original has no
padding, so that $572$ becomes $388$ and what is put beside is cropped:

$$572 \to 284 \to 140 \to 68 \to 32, \qquad 28 \to 52 \to 100 \to 196 \to 388.$$

With padding the size stays, if it can be halved `depth` times. Checked by `convolution.unet` and
`convolution.unet_skip`.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import choice, whole
from vademecum.convolution.networks._images import he_normal

__all__ = ["UNet"]


class UNet(nn.Module):
    """U-Net, from images to a map of logits.

    Args:
        num_classes: How many logits a pixel has.
        channels: How many channels an image has.
        width: How many maps the first level has.
        depth: How many times the size is halved.
        padding: "same" keeps the size; "valid" is the original, with a smaller output.

    References:
        Ronneberger, Fischer, Brox, U-Net: convolutional networks for biomedical image
        segmentation, MICCAI, 2015.

    Example:
        >>> net = UNet(2, width=4)
        >>> net(torch.zeros(1, 1, 32, 48)).shape
        torch.Size([1, 2, 32, 48])
        >>> UNet(width=4, padding="valid").output_size(572)
        388
    """

    def __init__(
        self,
        num_classes: int = 1,
        *,
        channels: int = 1,
        width: int = 64,
        depth: int = 4,
        padding: Literal["same", "valid"] = "same",
    ):
        super().__init__()
        whole("num_classes", num_classes, low=1)
        self.channels, width = whole("channels", channels, low=1), whole("width", width, low=1)
        self.depth, self.padding = whole("depth", depth, low=1), padding
        pad = int(choice("padding", padding, ("same", "valid")) == "same")
        maps = [width * 2**level for level in range(depth + 1)]
        self.down = nn.ModuleList(
            _two(a, b, pad) for a, b in zip([channels, *maps], maps, strict=False)
        )
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * m, m, 2, 2) for m in maps[-2::-1])
        self.merge = nn.ModuleList(_two(2 * m, m, pad) for m in maps[-2::-1])
        self.head = nn.Conv2d(width, num_classes, 1)
        he_normal(self)

    def output_size(self, size: int) -> int:
        """The side of the output for images with this side.

        Raises:
            ValueError: If the network does not take such images; it names the nearest it takes.
        """
        found = self._output_size(whole("size", size, low=1))
        if found is None:
            step = 2**self.depth
            window = range(max(1, size - step), size + 14 * step)
            fits = sorted((s for s in window if self._output_size(s)), key=lambda s: abs(s - size))
            nearest = " or ".join(map(str, sorted(fits[:2] if fits[0] < size else fits[:1])))
            raise ValueError(
                f"x must have sides that the network can halve {self.depth} times, got {size};"
                f" the nearest that fit: {nearest}"
            )
        return found

    def forward(self, x: Float[Tensor, " n c h w"]) -> Float[Tensor, " n k h2 w2"]:
        """The logits of each pixel; without padding, of those in the middle."""
        if x.ndim != 4 or x.shape[1] != self.channels:
            raise ValueError(
                f"x must be images (n, {self.channels}, height, width), got {tuple(x.shape)}"
            )
        for side in x.shape[2:]:
            self.output_size(side)
        details = []
        for level in self.down[:-1]:
            x = level(x)
            details.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.down[-1](x)
        for up, merge in zip(self.up, self.merge, strict=True):
            x = up(x)
            x = merge(torch.cat([_cropped(details.pop(), x), x], 1))
        return self.head(x)

    def _output_size(self, size: int) -> int | None:
        lost = 0 if self.padding == "same" else 4
        for _ in range(self.depth):
            size -= lost
            if size < 2 or size % 2:
                return None
            size //= 2
        size -= lost
        for _ in range(self.depth):
            size = 2 * size - lost
        return size if size > 0 else None


def _two(maps: int, out: int, padding: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(maps, out, 3, padding=padding), nn.ReLU(inplace=True),
        nn.Conv2d(out, out, 3, padding=padding), nn.ReLU(inplace=True),
    )  # fmt: skip


def _cropped(detail: Tensor, like: Tensor) -> Tensor:
    """The middle of a map, as large as the other."""
    for axis in (2, 3):
        spare = detail.shape[axis] - like.shape[axis]
        if spare:
            detail = detail.narrow(axis, spare // 2, like.shape[axis])
    return detail
