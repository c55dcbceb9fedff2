r"""GoogLeNet: nine Inception modules, which look at four scales side by side.

An Inception module concatenates $1 \times 1$, $3 \times 3$ and $5 \times 5$ convolutions, the last
two behind $1 \times 1$ reductions, and a pooling with a $1 \times 1$ convolution; its width is the
sum of theirs. Global average pooling leaves one dense layer: 6,998,552 parameters in 2014, with
biases and response normalisation. What torchvision calls GoogLeNet has batch normalisation, no
biases, and $3 \times 3$ where the paper has $5 \times 5$: 6,624,904. Checked by
`convolution.inception_module` and `convolution.googlenet`.
"""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import choice, number, whole
from vademecum.convolution.networks._images import check_images
from vademecum.results import one_line

__all__ = ["GoogLeNet", "GoogLeNetOutput", "InceptionModule"]

Variant = Literal["batch_norm", "2014"]
MODULES = {
    "3a": (64, 96, 128, 16, 32, 32), "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64), "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64), "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128), "5b": (384, 192, 384, 48, 128, 128),
}  # fmt: skip
"""The widths of each module: 1x1, reduction and 3x3, reduction and 5x5, after the pooling."""


class GoogLeNetOutput(NamedTuple):
    """What GoogLeNet with auxiliary heads gives in training.

    Example:
        >>> net = GoogLeNet(num_classes=5, width=4, auxiliary=True)
        >>> net(torch.zeros(2, 3, 64, 64)).auxiliary[0].shape
        torch.Size([2, 5])
    """

    logits: Tensor
    """Those of the network."""
    auxiliary: tuple[Tensor, Tensor]
    """Those of the heads behind the modules 4a and 4d."""

    __repr__ = one_line


class InceptionModule(nn.Module):
    r"""An Inception module, with torchvision's names.

    Args:
        in_channels: How many maps come in.
        widths: Those of the $1 \times 1$ branch, of the reduction and the convolution of the
            $3 \times 3$ branch, of the same in the $5 \times 5$ branch, and behind the pooling.
        variant: "2014": convolutions with biases; or "batch_norm": with batch normalisation, and a
            second $3 \times 3$ convolution in place of the $5 \times 5$ one, as in torchvision.

    References:
        Szegedy et al., Going deeper with convolutions, CVPR, 2015.

    Example:
        >>> module = InceptionModule(192, (64, 96, 128, 16, 32, 32), variant="2014")
        >>> sum(p.numel() for p in module.parameters())
        163696
        >>> module(torch.zeros(1, 192, 28, 28)).shape
        torch.Size([1, 256, 28, 28])
    """

    def __init__(
        self,
        in_channels: int,
        widths: tuple[int, int, int, int, int, int],
        *,
        variant: Variant = "batch_norm",
    ):
        super().__init__()
        maps = whole("in_channels", in_channels, low=1)
        norm = choice("variant", variant, ("batch_norm", "2014")) == "batch_norm"
        if len(widths) != 6:
            raise ValueError(f"widths must be six numbers, got {widths}")
        for i, width in enumerate(widths):
            whole(f"widths[{i}]", width, low=1)
        one, reduce3, three, reduce5, five, pooled = widths
        self.branch1 = _Conv(maps, one, 1, norm=norm)
        self.branch2 = nn.Sequential(
            _Conv(maps, reduce3, 1, norm=norm), _Conv(reduce3, three, 3, norm=norm)
        )
        self.branch3 = nn.Sequential(
            _Conv(maps, reduce5, 1, norm=norm), _Conv(reduce5, five, 3 if norm else 5, norm=norm)
        )
        self.branch4 = nn.Sequential(
            nn.MaxPool2d(3, 1, padding=1), _Conv(maps, pooled, 1, norm=norm)
        )

    def forward(self, x: Float[Tensor, " n c h w"]) -> Float[Tensor, " n c2 h w"]:
        """What the four branches make of the input, side by side."""
        branches = self.branch1, self.branch2, self.branch3, self.branch4
        return torch.cat([branch(x) for branch in branches], 1)


class GoogLeNet(nn.Module):
    """GoogLeNet, from images to logits, with torchvision's names.

    The weights that torchvision offers want pixels in [-1, 1], `(pixel - 0.5) / 0.5`: there the
    module takes images in ImageNet's normalisation back to this before anything else.

    Args:
        num_classes: How many logits there are.
        channels: How many channels an image has.
        width: How many maps the first convolution has, an even number; others grow with it.
        auxiliary: Whether there are two more heads, which help in training: there the output is a
            `GoogLeNetOutput` then.
        dropout: The rate before the dense layer; 0.7 in auxiliary heads.
        variant: "batch_norm" as in torchvision, or "2014" as in the paper.

    References:
        Szegedy et al., Going deeper with convolutions, CVPR, 2015.

    Example:
        >>> net = GoogLeNet(num_classes=5, width=4)
        >>> net(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 5])
    """

    inception3a: InceptionModule
    inception3b: InceptionModule
    inception4a: InceptionModule
    inception4b: InceptionModule
    inception4c: InceptionModule
    inception4d: InceptionModule
    inception4e: InceptionModule
    inception5a: InceptionModule
    inception5b: InceptionModule

    def __init__(
        self,
        num_classes: int = 1000,
        *,
        channels: int = 3,
        width: int = 64,
        auxiliary: bool = False,
        dropout: float = 0.2,
        variant: Variant = "batch_norm",
    ):
        super().__init__()
        self.channels = whole("channels", channels, low=1)
        number("dropout", dropout, low=0, high=1)
        if whole("width", width, low=2) % 2:
            raise ValueError(f"width must be even, got {width}")
        norm = choice("variant", variant, ("batch_norm", "2014")) == "batch_norm"
        self.response = nn.Identity() if norm else nn.LocalResponseNorm(5, alpha=5e-4, k=2)
        self.conv1 = _Conv(channels, width, 7, stride=2, norm=norm)
        self.maxpool1 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.conv2 = _Conv(width, width, 1, norm=norm)
        self.conv3 = _Conv(width, 3 * width, 3, norm=norm)
        self.maxpool2 = nn.MaxPool2d(3, 2, ceil_mode=True)
        maps, places = 3 * width, {}
        for name, full in MODULES.items():
            a, b, c, d, e, f = (max(1, w * width // 64) for w in full)
            module = InceptionModule(maps, (a, b, c, d, e, f), variant=variant)
            self.add_module(f"inception{name}", module)
            maps = places[name] = a + c + e + f
        self.maxpool3 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.maxpool4 = nn.MaxPool2d(2 if norm else 3, 2, ceil_mode=True)
        self.smallest = 15 if norm else 31
        self.aux1 = _Head(places["4a"], num_classes, width, norm=norm) if auxiliary else None
        self.aux2 = _Head(places["4d"], num_classes, width, norm=norm) if auxiliary else None
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(maps, whole("num_classes", num_classes, low=1))
        _initialise(self)

    def forward(self, x: Float[Tensor, " n c h w"]) -> Float[Tensor, " n k"] | GoogLeNetOutput:
        """The logits of each image; 224 x 224, or any other from 15 x 15 on (2014: 31 x 31)."""
        check_images(x, self.channels, self.smallest)
        x = self.response(self.maxpool1(self.conv1(x)))
        x = self.maxpool2(self.response(self.conv3(self.conv2(x))))
        x = self.maxpool3(self.inception3b(self.inception3a(x)))
        first = self.inception4a(x)
        second = self.inception4d(self.inception4c(self.inception4b(first)))
        x = self.inception5b(self.inception5a(self.maxpool4(self.inception4e(second))))
        logits = self.fc(self.dropout(x.mean((2, 3))))
        if self.training and self.aux1 is not None and self.aux2 is not None:
            return GoogLeNetOutput(logits, (self.aux1(first), self.aux2(second)))
        return logits


class _Conv(nn.Module):
    """A convolution that keeps the size, normalised or with a bias, and rectified."""

    def __init__(self, maps: int, out: int, kernel: int, *, stride: int = 1, norm: bool):
        super().__init__()
        self.conv = nn.Conv2d(maps, out, kernel, stride, padding=kernel // 2, bias=not norm)
        self.bn = nn.BatchNorm2d(out, eps=0.001) if norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu_(self.bn(self.conv(x)))


class _Head(nn.Module):
    """An auxiliary head: means of a 4 x 4 grid, a convolution and two dense layers."""

    def __init__(self, maps: int, num_classes: int, width: int, *, norm: bool):
        super().__init__()
        self.conv = _Conv(maps, 2 * width, 1, norm=norm)
        self.fc1 = nn.Linear(32 * width, 16 * width)
        self.fc2 = nn.Linear(16 * width, num_classes)
        self.dropout = nn.Dropout(0.7)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(nn.functional.adaptive_avg_pool2d(x, 4)).flatten(1)
        return self.fc2(self.dropout(torch.relu_(self.fc1(x))))


def _initialise(model: nn.Module) -> None:
    """Weights from a truncated normal law, as torchvision's."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.01, a=-0.02, b=0.02)
