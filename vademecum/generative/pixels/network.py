r"""PixelCNN: the law of an image, pixel by pixel in raster order.

$$p(x) = \prod_i p(x_i \mid x_{<i}) ,$$

each factor a softmax over the values that a pixel's colour can have, all of them from one pass
through masked convolutions: a first one with mask A, then gated residual layers with mask B. So the
probabilities of all images add up to 1.

One stack of masked 3 x 3 layers has a blind spot, at any depth: a pixel $a$ rows above and $b > a$
columns to the right is never seen. With two stacks the rows above go through convolutions of their
own, which need no masks, and nothing stays unseen. The claim is `pixelcnn`.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.arguments import floats, whole
from vademecum.generative.pixels._layers import PixelLayer, RowsAbove, gated
from vademecum.generative.pixels._stepping import Stepper
from vademecum.generative.pixels.masks import MaskedConv2d
from vademecum.progress import ticking
from vademecum.randomness import source

__all__ = ["PixelCNN"]


class PixelCNN(nn.Module):
    """An autoregressive law of images of whole numbers.

    Args:
        shape: The colours, height and width of an image.
        levels: How many values a colour of a pixel can have: 0, ..., levels - 1.
        width: How many channels a layer has, a multiple of the number of colours.
        depth: How many gated layers there are.
        kernel_size: The columns of their kernels, odd, at least 3.
        first_size: The columns of the first kernel, odd, at least 3.
        head: How many channels there are before the logits, a multiple of the number of colours.
        stacks: 2 for a vertical and a horizontal stack; 1 for a single one with the blind spot.
        context: How many numbers of context an image has; 0 if there is none.

    Raises:
        ValueError: If a number is out of range, or colours do not divide the channels.

    References:
        Van den Oord et al., Pixel recurrent neural networks, ICML 2016; Conditional image
        generation with PixelCNN decoders, NeurIPS 2016.

    Example:
        >>> net = PixelCNN((1, 2, 2), 2, width=4, depth=1, head=4)
        >>> images = torch.cartesian_prod(*[torch.arange(2)] * 4).view(16, 1, 2, 2)
        >>> round(net.log_prob(images).exp().sum().item(), 4)
        1.0
        >>> net.sample(3).shape
        torch.Size([3, 1, 2, 2])
    """

    def __init__(
        self,
        shape: Sequence[int],
        levels: int = 256,
        *,
        width: int = 60,
        depth: int = 8,
        kernel_size: int = 3,
        first_size: int = 7,
        head: int = 120,
        stacks: Literal[1, 2] = 2,
        context: int = 0,
    ):
        super().__init__()
        if len(shape) != 3:
            raise ValueError(f"shape must be colours, height and width, got {tuple(shape)}")
        self.shape = tuple(whole("shape", size, low=1) for size in shape)
        self.levels, self.context = whole("levels", levels, low=2), whole("context", context, low=0)
        whole("depth", depth, low=0)
        whole("kernel_size", kernel_size, low=3)
        whole("first_size", first_size, low=3)
        if stacks not in (1, 2):
            raise ValueError(f"stacks must be 1 or 2, got {stacks!r}")
        colours, rows = self.shape[0], 1 if stacks == 2 else kernel_size // 2 + 1
        top = 1 if stacks == 2 else first_size // 2 + 1
        self.first = MaskedConv2d(colours, width, first_size, kind="A", colours=colours, rows=top)
        self.condition = nn.Linear(context, width, bias=False) if context else None
        self.layers = nn.ModuleList(
            PixelLayer(width, kernel_size, colours=colours, context=context, rows=rows)
            for _ in range(depth)
        )
        self.above = nn.ModuleList()
        if stacks == 2:
            half = first_size // 2
            self.above.append(RowsAbove(colours, width, first_size, rows=half, shift=1))
            rows = kernel_size // 2 + 1
            self.above.extend(
                RowsAbove(width, 2 * width, kernel_size, rows=rows, shift=0) for _ in range(depth)
            )
        self.head = MaskedConv2d(width, head, 1, kind="B", colours=colours)
        self.logits = MaskedConv2d(head, levels * colours, 1, kind="B", colours=colours)

    @property
    def residual(self) -> list[PixelLayer]:
        """Its gated layers, from the image on."""
        return [layer for layer in self.layers if isinstance(layer, PixelLayer)]

    @property
    def vertical(self) -> list[RowsAbove]:
        """The layers of its vertical stack, if it has one."""
        return [layer for layer in self.above if isinstance(layer, RowsAbove)]

    def forward(
        self, x: Integer[Tensor, " n c h w"], context: Float[Tensor, " n s"] | None = None
    ) -> Float[Tensor, " n k c h w"]:
        """The logits of every value of every pixel's colours, given all that come before them.

        Args:
            x: Images of whole numbers from 0 to levels - 1.
            context: The context of each image, if the network has one.
        """
        self._check(x, context)
        return self.relaxed(self.scaled(x), context)

    def relaxed(
        self, z: Float[Tensor, " n c h w"], context: Float[Tensor, " n s"] | None = None
    ) -> Float[Tensor, " n k c h w"]:
        """The logits for images of real numbers, in which one can differentiate.

        Args:
            z: Images, such as `scaled` makes of whole numbers.
            context: The context of each image, if the network has one.
        """
        links: list[Tensor | None] = []
        v = z
        for i, layer in enumerate(self.vertical):
            maps, link = layer(v)
            v = gated(maps) if i else maps
            links.append(link)
        links = links or [None] * (len(self.layers) + 1)
        h = self.first(z) if links[0] is None else self.first(z) + links[0]
        if self.condition is not None:
            h = h + self.condition(context)[:, :, None, None]
        for layer, link in zip(self.residual, links[1:], strict=True):
            h = layer(h, link, context)
        found = self.logits(torch.relu(self.head(torch.relu(h))))
        return found.unflatten(1, (self.levels, self.shape[0]))

    def scaled(self, x: Tensor) -> Tensor:
        """Whole numbers as numbers from -1 to 1, in the dtype of the weights."""
        return x.to(self.first.weight.dtype) * (2 / (self.levels - 1)) - 1

    def log_prob(
        self, x: Integer[Tensor, " n c h w"], context: Float[Tensor, " n s"] | None = None
    ) -> Float[Tensor, " n"]:
        """The log-probability of each image.

        Args:
            x: Images of whole numbers from 0 to levels - 1.
            context: The context of each image, if the network has one.
        """
        logits = self(x, context)
        return -F.cross_entropy(logits, x.long(), reduction="none").flatten(1).sum(1)

    @torch.no_grad()
    def sample(
        self,
        n: int,
        context: Float[Tensor, " n s"] | None = None,
        *,
        generator: torch.Generator | None = None,
        progress: bool = False,
    ) -> Int[Tensor, " n c h w"]:
        """Draw images, each pixel from what the network says after those before it.

        What layers made of earlier pixels is kept, so that all pixels together cost about one pass
        of the network; on CUDA devices a pixel's step is captured once and replayed.

        Args:
            n: How many images to draw.
            context: The context of each image, if the network has one.
            generator: Where random numbers come from; torch's global generator by default.
            progress: Whether to show a progress bar on standard error.
        """
        n = whole("n", n, low=1)
        device = self.first.weight.device
        self._insist_on_context(n, context)
        c, h, w = self.shape
        uniform = torch.rand(h, w, c, n, dtype=torch.float64, **source(generator, device))
        stepper = Stepper(self, n, context)
        uniform = uniform.to(device, stepper.uniform.dtype)
        with ticking("rows", h, progress=progress) as tick:
            for i in range(h):
                stepper.row(i, uniform[i])
                tick(1)
        return stepper.images()

    def _check(self, x: Tensor, context: Tensor | None) -> None:
        broken = x.is_floating_point() or x.is_complex()
        if broken or tuple(x.shape[1:]) != self.shape or not len(x):
            raise ValueError(
                f"x must be whole numbers (n, {', '.join(map(str, self.shape))}), got {x.dtype} of"
                f" shape {tuple(x.shape)}"
            )
        if not _recorded(x):
            low, high = torch.stack(x.aminmax()).tolist()  # of bytes, which no 256 is compared with
            if low < 0 or high >= self.levels:
                ends = f"{low} to {high}"
                raise ValueError(f"x must be from 0 to {self.levels - 1}, got values from {ends}")
        self._insist_on_context(len(x), context)

    def _insist_on_context(self, n: int, context: Tensor | None) -> None:
        if (context is None) != (self.context == 0):
            wanted = f"{self.context} numbers for each image" if self.context else "None"
            raise ValueError(f"context must be {wanted}, as the network was made for")
        if context is not None and floats("context", context).shape != (n, self.context):
            raise ValueError(
                f"context must have the shape {(n, self.context)}, got {tuple(context.shape)}"
            )


def _recorded(x: Tensor) -> bool:
    """Whether work is being recorded, to be run later, so that no value can be looked at."""
    return torch.compiler.is_compiling() or (x.is_cuda and torch.cuda.is_current_stream_capturing())
