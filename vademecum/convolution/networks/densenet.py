r"""DenseNet: every layer of a block reads the outputs of all layers before it.

Layer $l$ of a block takes the concatenation $[x_0, x_1, \dots, x_{l-1}]$ and adds $g$ maps, so that
$L$ layers end with $c_0 + L g$ maps and have $L (L + 1) / 2$ direct connections. A layer is
normalisation, ReLU, $1 \times 1$ convolution to $4 g$ maps, and the same with $3 \times 3$ to $g$.
Between blocks a transition halves maps and size. Checked by `convolution.densenet`.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import number, whole
from vademecum.convolution.networks._images import check_images, he_normal

__all__ = ["DenseBlock", "DenseNet"]

BLOCKS = {
    **{121: (6, 12, 24, 16), 161: (6, 12, 36, 24)},
    **{169: (6, 12, 32, 32), 201: (6, 12, 48, 32)},
}
"""How many layers each block has, by the number of layers with weights."""


class DenseBlock(nn.Module):
    r"""A dense block, from `in_channels` maps to `in_channels + layers * growth`.

    Args:
        layers: How many layers it has.
        in_channels: How many maps come in.
        growth: How many maps a layer adds.
        bottleneck: How many times as many the $1 \times 1$ convolution before it makes.
        dropout: The rate at which what a layer adds is dropped in training.

    References:
        Huang, Liu, van der Maaten, Weinberger, Densely connected convolutional networks, CVPR,
        2017.

    Example:
        >>> block = DenseBlock(3, 4, 2)
        >>> block(torch.zeros(2, 4, 5, 5)).shape
        torch.Size([2, 10, 5, 5])
    """

    def __init__(
        self,
        layers: int,
        in_channels: int,
        growth: int,
        *,
        bottleneck: int = 4,
        dropout: float = 0.0,
    ):
        super().__init__()
        whole("in_channels", in_channels, low=1)
        whole("growth", growth, low=1)
        whole("bottleneck", bottleneck, low=1)
        number("dropout", dropout, low=0, high=1)
        for i in range(whole("layers", layers, low=1)):
            layer = _DenseLayer(in_channels + i * growth, growth, bottleneck * growth, dropout)
            self.add_module(f"denselayer{i + 1}", layer)

    def forward(self, x: Float[Tensor, " n c h w"]) -> Float[Tensor, " n c2 h w"]:
        """The input and what all layers add, side by side."""
        features = [x]
        for layer in self.children():
            features.append(layer(torch.cat(features, 1)))
        return torch.cat(features, 1)


class DenseNet(nn.Module):
    """DenseNet, from images to logits, with torchvision's names.

    Args:
        depth: How many layers have weights: 121, 161, 169 or 201.
        num_classes: How many logits there are.
        channels: How many channels an image has.
        width: How many maps a layer adds, the growth rate; by default 48 for 161 layers, else 32.
            The first convolution has twice as many.
        dropout: The rate at which what a layer adds is dropped in training.

    References:
        Huang, Liu, van der Maaten, Weinberger, Densely connected convolutional networks, CVPR,
        2017.

    Example:
        >>> net = DenseNet(121, num_classes=5, width=2)
        >>> net(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 5])
    """

    old_names = ((r"(denselayer\d+\.(?:norm|conv))\.([12])\.", r"\1\2."),)

    def __init__(
        self,
        depth: Literal[121, 161, 169, 201],
        num_classes: int = 1000,
        *,
        channels: int = 3,
        width: int | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        if depth not in BLOCKS:
            raise ValueError(f"depth must be one of {', '.join(map(str, BLOCKS))}, got {depth}")
        self.channels = whole("channels", channels, low=1)
        growth = (48 if depth == 161 else 32) if width is None else whole("width", width, low=1)
        maps = 2 * growth
        self.features = nn.Sequential()
        self.features.add_module("conv0", nn.Conv2d(channels, maps, 7, 2, 3, bias=False))
        self.features.add_module("norm0", nn.BatchNorm2d(maps))
        self.features.add_module("relu0", nn.ReLU(inplace=True))
        self.features.add_module("pool0", nn.MaxPool2d(3, 2, padding=1))
        for i, layers in enumerate(BLOCKS[depth], 1):
            if i > 1:
                self.features.add_module(f"transition{i - 1}", _transition(maps))
                maps //= 2
            block = DenseBlock(layers, maps, growth, dropout=dropout)
            self.features.add_module(f"denseblock{i}", block)
            maps += layers * growth
        self.features.add_module("norm5", nn.BatchNorm2d(maps))
        self.classifier = nn.Linear(maps, whole("num_classes", num_classes, low=1))
        he_normal(self)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, x: Float[Tensor, " n c h w"]) -> Float[Tensor, " n k"]:
        """The logits of each image; 224 x 224, or any other size from 29 x 29 on."""
        check_images(x, self.channels, 29)
        return self.classifier(torch.relu_(self.features(x)).mean((2, 3)))


class _DenseLayer(nn.Module):
    def __init__(self, maps: int, growth: int, inner: int, dropout: float):
        super().__init__()
        self.norm1 = nn.BatchNorm2d(maps)
        self.conv1 = nn.Conv2d(maps, inner, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, growth, 3, padding=1, bias=False)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(torch.relu_(self.norm1(x)))
        y = self.conv2(torch.relu_(self.norm2(y)))
        if self.dropout:
            y = nn.functional.dropout(y, self.dropout, self.training)
        return y


def _transition(maps: int) -> nn.Sequential:
    transition = nn.Sequential()
    transition.add_module("norm", nn.BatchNorm2d(maps))
    transition.add_module("relu", nn.ReLU(inplace=True))
    transition.add_module("conv", nn.Conv2d(maps, maps // 2, 1, bias=False))
    transition.add_module("pool", nn.AvgPool2d(2))
    return transition
