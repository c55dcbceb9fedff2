"""Small networks, one for each kind of operation that receptive fields go through."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

joined: Any = torch.cat  # also takes NumPy's name of the axis, of which its stub knows nothing


class Calls(nn.Module):
    """A function as a module, with parts that it may call."""

    def __init__(self, function: Callable[..., Any], **parts: Any):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def same(n: int = 2) -> nn.Module:
    return nn.Conv2d(n, n, 3, padding=1)


def erased(self: Any, x: Tensor) -> Tensor:
    y = self.f(x)
    y[:, :, 2:4] = 0.0
    return y


def resized(**options: Any) -> nn.Module:
    return Calls(lambda _, x: F.interpolate(x, **options))


def u_net(self: Any, x: Tensor) -> Tensor:
    down = self.a(x)
    return self.d(torch.cat([down, self.u(self.b(F.avg_pool2d(down, 2)))], 1))


def two_rates(self: Any, x: Tensor) -> Tensor:
    return torch.cat([self.a(x), self.b(x), self.c(x)], 1)


def band(n: int) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool).tril(1).triu(-1)


S = nn.Sequential
CASES: dict[str, tuple[nn.Module, tuple[int, ...]]] = {  # whose output is the last feature map
    "stride": (nn.Conv2d(2, 3, 3, 2, 1), (2, 9, 11)),
    "same, even": (nn.Conv1d(2, 3, 4, padding="same", dilation=2), (2, 9)),
    "three axes": (nn.Conv3d(1, 2, (2, 3, 1), (1, 2, 1), (1, 0, 0)), (1, 4, 7, 3)),
    "transposed": (nn.ConvTranspose2d(2, 3, 3, 2, 1, output_padding=1), (2, 5, 4)),
    "transposed, dilated": (nn.ConvTranspose1d(2, 4, 3, 3, dilation=2, groups=2), (2, 5)),
    "stride beyond the kernel": (S(nn.Conv1d(1, 1, 2, 3), nn.Conv1d(1, 1, 3, 2)), (1, 40)),
    "dilated": (S(*(nn.Conv2d(1, 1, 3, padding=2, dilation=2) for _ in range(2))), (1, 9, 9)),
    "average": (nn.AvgPool2d(3, 2, 1, ceil_mode=True), (1, 8, 8)),
    "power": (nn.LPPool2d(2, 2), (1, 6, 6)),
    "adaptive": (S(nn.Conv1d(1, 2, 3, padding=1), nn.AdaptiveAvgPool1d(4)), (1, 11)),
    "adaptive, longer": (nn.AdaptiveAvgPool1d(7), (1, 5)),
    "nearest": (nn.Upsample(scale_factor=1.7), (1, 7, 5)),
    "bilinear": (nn.Upsample(scale_factor=2, mode="bilinear"), (1, 4, 5)),
    "corners": (nn.Upsample(size=(7, 9), mode="bilinear", align_corners=True), (1, 4, 5)),
    "linear, down": (resized(size=5, mode="linear"), (1, 15)),
    "bicubic": (resized(scale_factor=2, mode="bicubic"), (1, 5, 6)),
    "area": (resized(size=(3, 4), mode="area"), (1, 6, 7)),
    "antialias": (resized(size=(3, 4), mode="bilinear", antialias=True), (1, 9, 9)),
    "exact": (resized(size=(3, 4), mode="nearest-exact"), (1, 9, 9)),
    "reflect": (nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect"), (1, 6, 7)),
    "circular": (nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"), (1, 6, 7)),
    "replicate": (S(nn.ReplicationPad1d((3, 1)), nn.Conv1d(1, 2, 2)), (1, 6)),
    "crop": (Calls(lambda _, x: F.pad(x, (-1, -2, 1, 0))), (1, 6, 7)),
    "residual": (Calls(lambda s, x: x + s.f(x), f=nn.Conv2d(2, 2, 3, 1, 2, 2)), (2, 9, 9)),
    "two rates": (
        Calls(
            two_rates,
            a=nn.Conv2d(1, 1, 3, padding=2, dilation=2),
            b=nn.Conv2d(1, 1, 3, padding=3, dilation=3),
            c=nn.Conv2d(1, 1, 1),
        ),
        (1, 9, 9),
    ),
    "slices": (Calls(lambda s, x: s.f(x)[:, :, 1:-2, ::2], f=nn.Conv2d(2, 2, 3)), (2, 12, 11)),
    "a row": (Calls(lambda s, x: s.f(x)[:, :, 3], f=nn.Conv2d(2, 2, 3)), (2, 8, 9)),
    "indices": (Calls(lambda s, x: s.f(x[:, :, [0, 3, 5, 7]]), f=same()), (2, 8, 5)),
    "flip and roll": (Calls(lambda s, x: s.f(x.flip(2)).roll(2, 3), f=same()), (2, 6, 7)),
    "pixel shuffle": (S(same(4), nn.PixelShuffle(2), nn.Conv2d(1, 1, 3)), (4, 4, 5)),
    "pixel unshuffle": (S(nn.PixelUnshuffle(2), same(4)), (1, 6, 8)),
    "channels apart": (
        Calls(
            lambda s, x: s.g(torch.cat([x[:, :2], s.f(x[:, 2:])], 1))[:, :2],
            f=same(),
            g=nn.Conv2d(4, 4, 1, groups=4),
        ),
        (4, 5, 6),
    ),
    "chunks": (Calls(lambda s, x: x.chunk(2, 1)[0] + s.f(x.chunk(2, 1)[1]), f=same()), (4, 5, 6)),
    "halves": (Calls(lambda s, x: s.f(x.split(3, 2)[0]) + x.split(3, 2)[1], f=same()), (2, 6, 5)),
    "channels last": (
        Calls(
            lambda s, x: x + s.g(s.n(s.f(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2),
            f=nn.Conv2d(4, 4, 5, padding=2, groups=4),
            n=nn.LayerNorm(4),
            g=nn.Linear(4, 4),
        ),
        (4, 6, 7),
    ),
    "squeeze": (Calls(lambda s, x: s.f(x) * x.mean((2, 3), keepdim=True), f=same()), (2, 5, 6)),
    "batch norm": (S(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)), (2, 6, 7)),
    "group norm": (S(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4)), (2, 6, 7)),
    "instance norm": (S(nn.Conv2d(2, 4, 3), nn.InstanceNorm2d(4)), (2, 6, 7)),
    "by numpy's names": (
        Calls(lambda s, x: joined([s.f(x).softmax(axis=2), x.cumsum(axis=3)], axis=1), f=same()),
        (2, 6, 7),
    ),
    "norm over channels": (
        Calls(
            lambda s, x: x / (1 + torch.linalg.vector_norm(s.f(x), 2, 1, keepdim=True)), f=same()
        ),
        (2, 6, 7),
    ),
    "shuffled": (
        Calls(
            lambda s, x: F.pixel_unshuffle(
                F.pixel_shuffle(s.f(x), upscale_factor=2), downscale_factor=2
            ),
            f=nn.Conv2d(2, 4, 3),
        ),
        (2, 6, 7),
    ),
    "response norm": (S(nn.Conv2d(2, 4, 3), nn.LocalResponseNorm(3)), (2, 6, 7)),
    "gate": (S(nn.Conv2d(2, 4, 3), nn.GLU(1)), (2, 6, 7)),
    "patches": (S(nn.Unfold(2), nn.Conv1d(8, 2, 1)), (2, 4, 5)),
    "erased": (Calls(erased, f=nn.Conv1d(2, 2, 3, padding=1)), (2, 9)),
    "u-net": (
        Calls(
            u_net,
            a=nn.Conv2d(1, 2, 3, padding=1),
            b=nn.Conv2d(2, 4, 3, padding=1),
            u=nn.ConvTranspose2d(4, 2, 2, 2),
            d=nn.Conv2d(4, 1, 3, padding=1),
        ),
        (1, 8, 8),
    ),
    "encoder": (nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), (5, 8)),
    "causal": (
        Calls(
            lambda s, x: F.scaled_dot_product_attention(s.f(x), s.f(x), x, is_causal=True),
            f=nn.Linear(4, 4),
        ),
        (7, 4),
    ),
    "scores": (Calls(lambda s, x: (s.f(x) @ x.mT).softmax(-1) @ x, f=nn.Linear(4, 4)), (6, 4)),
    "running sum": (Calls(lambda s, x: s.f(x).cumsum(1), f=nn.Linear(4, 4)), (7, 4)),
    "tokens": (S(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)), (5,)),
    "repeated": (Calls(lambda s, x: s.f(x.repeat_interleave(2, 2)), f=nn.Conv1d(1, 1, 3)), (1, 7)),
    "smooth maximum": (Calls(lambda s, x: torch.logaddexp(s.f(x), x), f=same(1)), (1, 5, 6)),
}
"""Modules by name, with the shape of an example."""
