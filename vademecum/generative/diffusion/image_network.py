r"""A U-Net that is told the time: residual blocks, attention at the coarsest level, skips between.

A residual block is $x + \mathrm{conv}\,\phi\big((1 + a(e)) \odot
\mathrm{GN}(\mathrm{conv}\,\phi(\mathrm{GN}(x))) + s(e)\big)$, where $\phi$ is SiLU, $e$ embeds time
and context, and $a$ and $s$ are linear in $\phi(e)$; a 1 x 1 convolution of $x$ stands for it where
the number of maps changes. Each level halves the sides by a strided convolution on the way down and
doubles them on the way up; each block on the way up also sees what one on the way down left. The
last convolution begins at zero, so that the network begins with the prediction 0.

Under `torch.autocast` all of it stays in the reduced precision: norms, which torch would compute
and keep in float32, add up in float32 and answer as they were asked, with half the memory moved.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import number, whole
from vademecum.generative.diffusion._embeddings import Embedding

__all__ = ["ConditionalUNet"]

_HEAD = 32  # channels of a head of attention, at most


class ConditionalUNet(nn.Module):
    """A U-Net of images, times and contexts, for diffusion models.

    Args:
        channels: How many channels an image has.
        width: How many maps the first level has, divisible by 8.
        multipliers: How many times as many each level has; the sides are halved between levels, so
            three levels take 28 x 28 and 32 x 32.
        blocks: How many residual blocks each level has on the way down.
        attention: Whether positions of the coarsest level look at each other.
        classes: How many labels a context can be; None for no labels.
        context_width: How wide vectors of context are; None for no vectors.
        dropout: The rate of dropout within blocks.
        horizon: The largest time: T for steps, 1 for stochastic equations.
        out: How many channels an output has; as many as images by default, twice that for a learned
            variance.

    References:
        Ho, Jain, Abbeel, Denoising diffusion probabilistic models, NeurIPS, 2020. Dhariwal, Nichol,
        Diffusion models beat GANs on image synthesis, NeurIPS, 2021.

    Example:
        >>> net = ConditionalUNet(1, width=8, classes=10)
        >>> x, t, labels = torch.randn(2, 1, 28, 28), torch.tensor([1, 1000]), torch.tensor([3, 9])
        >>> net(x, t, labels).detach().abs().max()
        tensor(0.)
    """

    def __init__(
        self,
        channels: int = 1,
        *,
        width: int = 64,
        multipliers: Sequence[int] = (1, 2, 2),
        blocks: int = 2,
        attention: bool = True,
        classes: int | None = None,
        context_width: int | None = None,
        dropout: float = 0.0,
        horizon: float = 1000.0,
        out: int | None = None,
    ):
        super().__init__()
        self.channels = whole("channels", channels, low=1)
        whole("width", width, low=8)
        whole("blocks", blocks, low=1)
        if width % 8:
            raise ValueError(f"width must be divisible by 8, got {width}")
        maps = [width * whole("multipliers", m, low=1) for m in multipliers]
        if not maps:
            raise ValueError("multipliers must name one level or more, got none")
        number("dropout", dropout, low=0, below=1)
        self.halvings, told = len(maps) - 1, 4 * width
        self.told = Embedding(told, classes=classes, context_width=context_width, horizon=horizon)
        self.first = nn.Conv2d(channels, width, 3, padding=1)
        self.down, self.up, left = nn.ModuleList(), nn.ModuleList(), [width]
        here = width
        for level, m in enumerate(maps):
            for _ in range(blocks):
                self.down.append(_Block(here, m, told, dropout))
                here = m
                left.append(here)
            if level < self.halvings:
                self.down.append(nn.Conv2d(here, here, 3, stride=2, padding=1))
                left.append(here)
        self.middle = nn.ModuleList(
            [_Block(here, here, told, dropout), _Block(here, here, told, dropout)]
        )
        self.attention = _Attention(here) if attention else nn.Identity()
        for level, m in reversed([*enumerate(maps)]):
            for _ in range(blocks + 1):
                self.up.append(_Block(here + left.pop(), m, told, dropout))
                here = m
            if level:
                self.up.append(_Larger(here))
        self.norm = _Norm(here)
        self.last = nn.Conv2d(
            here, channels if out is None else whole("out", out, low=1), 3, padding=1
        )
        nn.init.zeros_(self.last.weight)
        assert self.last.bias is not None
        nn.init.zeros_(self.last.bias)

    @property
    def null(self) -> int | float | None:
        """The context that stands for none, or None without contexts."""
        return self.told.null

    def forward(
        self, x: Float[Tensor, " n c h w"], t: Tensor, context: Tensor | None = None
    ) -> Float[Tensor, " n k h w"]:
        """The outputs for images x at times t."""
        self._insist_on_images(x)
        told, h = nn.functional.silu(self.told(x, t, context)), self.first(x)
        left = [h]
        for part in self.down:
            h = part(h, told) if isinstance(part, _Block) else part(h)
            left.append(h)
        first, second = self.middle
        h = second(self.attention(first(h, told)), told)
        for part in self.up:
            h = part(torch.cat([h, left.pop()], 1), told) if isinstance(part, _Block) else part(h)
        return self.last(nn.functional.silu(self.norm(h)))

    def _insist_on_images(self, x: Tensor) -> None:
        if x.ndim != 4 or x.shape[1] != self.channels:
            raise ValueError(
                f"x must be images (n, {self.channels}, height, width), got {tuple(x.shape)}"
            )
        unit = 2**self.halvings
        if x.shape[2] % unit or x.shape[3] % unit:
            raise ValueError(f"x must have sides divisible by {unit}, got {tuple(x.shape[2:])}")


class _Norm(nn.GroupNorm):
    """Eight groups of maps, normalised in the precision of the maps."""

    def __init__(self, maps: int):
        super().__init__(8, maps)

    def forward(self, input: Tensor) -> Tensor:
        kind = input.device.type
        if not torch.is_autocast_enabled(kind):
            return super().forward(input)
        with torch.autocast(kind, enabled=False):
            gain, offset = self.weight.to(input.dtype), self.bias.to(input.dtype)
            return nn.functional.group_norm(input, self.num_groups, gain, offset, self.eps)


class _Block(nn.Module):
    def __init__(self, maps: int, out: int, told: int, dropout: float):
        super().__init__()
        self.norm, self.conv = _Norm(maps), nn.Conv2d(maps, out, 3, padding=1)
        self.told = nn.Linear(told, 2 * out)
        self.norm2, self.conv2 = _Norm(out), nn.Conv2d(out, out, 3, padding=1)
        self.dropout = nn.Dropout(dropout)
        self.skip = nn.Identity() if maps == out else nn.Conv2d(maps, out, 1)

    def forward(self, x: Tensor, told: Tensor) -> Tensor:
        h = self.conv(nn.functional.silu(self.norm(x)))
        scale, shift = self.told(told)[:, :, None, None].chunk(2, 1)
        h = torch.addcmul(shift, 1 + scale, self.norm2(h))
        return self.skip(x) + self.conv2(self.dropout(nn.functional.silu(h)))


class _Attention(nn.Module):
    def __init__(self, maps: int):
        super().__init__()
        self.heads = max(1, maps // _HEAD) if maps % _HEAD == 0 else 1
        self.norm, self.into = _Norm(maps), nn.Conv2d(maps, 3 * maps, 1)
        self.back = nn.Conv2d(maps, maps, 1)

    def forward(self, x: Tensor) -> Tensor:
        n, maps, height, width = x.shape
        each = self.into(self.norm(x)).reshape(n, 3, self.heads, maps // self.heads, height * width)
        q, k, v = each.transpose(3, 4).contiguous().unbind(1)  # as fused kernels need it
        seen = nn.functional.scaled_dot_product_attention(q, k, v)
        return x + self.back(seen.transpose(2, 3).reshape(n, maps, height, width))


class _Larger(nn.Module):
    def __init__(self, maps: int):
        super().__init__()
        self.conv = nn.Conv2d(maps, maps, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(nn.functional.interpolate(x, scale_factor=2.0, mode="nearest"))
