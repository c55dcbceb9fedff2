r"""ResNet: stages of residual blocks $x \mapsto \sigma(S x + F(x))$.

The shortcut $S$ is the identity, or a $1 \times 1$ convolution where size or width change. A basic
block has two $3 \times 3$ convolutions, a bottleneck $1 \times 1$, $3 \times 3$, $1 \times 1$ with
four times as many maps at its ends. With the last scale of every branch at zero a block begins as
its rectified shortcut, so that further blocks begin as the identity. The stride of a bottleneck is
that of its $3 \times 3$ layer, as in torchvision; the paper has it in the first. Checked by
`convolution.resnet`.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import whole
from vademecum.convolution.networks._images import check_images, he_normal

__all__ = ["ResNet", "ResidualBlock"]

BLOCKS = {
    **{18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)},
    **{101: (3, 4, 23, 3), 152: (3, 8, 36, 3)},
}
"""How many blocks each stage has, by the number of layers with weights."""
EXPANSION = 4


class ResidualBlock(nn.Module):
    """A residual block: its branch beside a shortcut, added and rectified.

    Args:
        in_channels: How many maps come in.
        width: How many its inner convolutions have; four times as many come out of a bottleneck.
        stride: By which the size shrinks.
        bottleneck: Whether it has three convolutions in place of two.

    References:
        He, Zhang, Ren, Sun, Deep residual learning for image recognition, CVPR, 2016.

    Example:
        >>> block = ResidualBlock(8, 4, stride=2, bottleneck=True)
        >>> block(torch.zeros(2, 8, 6, 6)).shape
        torch.Size([2, 16, 3, 3])
    """

    def __init__(self, in_channels: int, width: int, *, stride: int = 1, bottleneck: bool = False):
        super().__init__()
        whole("in_channels", in_channels, low=1)
        whole("width", width, low=1)
        whole("stride", stride, low=1)
        self.bottleneck = bottleneck
        out = width * EXPANSION if bottleneck else width
        first = (1, 1) if bottleneck else (3, stride)
        self.conv1, self.bn1 = _conv(in_channels, width, *first), nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3, stride if bottleneck else 1)
        self.bn2 = nn.BatchNorm2d(width)
        if bottleneck:
            self.conv3, self.bn3 = _conv(width, out, 1, 1), nn.BatchNorm2d(out)
        self.downsample = None
        if stride != 1 or in_channels != out:
            self.downsample = nn.Sequential(_conv(in_channels, out, 1, stride), nn.BatchNorm2d(out))

    @property
    def last_norm(self) -> nn.BatchNorm2d:
        """The normalisation at the end of the branch, whose scale decides how much it adds."""
        return self.bn3 if self.bottleneck else self.bn2

    def forward(self, x: Float[Tensor, " n c h w"]) -> Float[Tensor, " n c2 h2 w2"]:
        """The shortcut plus the branch, rectified."""
        shortcut = x if self.downsample is None else self.downsample(x)
        y = torch.relu_(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        if self.bottleneck:
            y = self.bn3(self.conv3(torch.relu_(y)))
        return torch.relu_(y.add_(shortcut))


class ResNet(nn.Module):
    """ResNet, from images to logits, with torchvision's names.

    Args:
        depth: How many layers have weights: 18, 34, 50, 101 or 152.
        num_classes: How many logits there are.
        channels: How many channels an image has.
        width: How many maps the first stage has; others grow with it.
        zero_last: Whether the last scale of every branch begins at zero.

    References:
        He, Zhang, Ren, Sun, Deep residual learning for image recognition, CVPR, 2016.

    Example:
        >>> net = ResNet(18, num_classes=5, width=4)
        >>> net(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 5])
    """

    layer1: nn.Sequential
    layer2: nn.Sequential
    layer3: nn.Sequential
    layer4: nn.Sequential

    def __init__(
        self,
        depth: Literal[18, 34, 50, 101, 152],
        num_classes: int = 1000,
        *,
        channels: int = 3,
        width: int = 64,
        zero_last: bool = False,
    ):
        super().__init__()
        if depth not in BLOCKS:
            raise ValueError(f"depth must be one of {', '.join(map(str, BLOCKS))}, got {depth}")
        self.channels, width = whole("channels", channels, low=1), whole("width", width, low=1)
        bottleneck = depth >= 50
        self.conv1 = nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False)
        self.bn1, self.maxpool = nn.BatchNorm2d(width), nn.MaxPool2d(3, 2, padding=1)
        maps = width
        for stage, count in enumerate(BLOCKS[depth]):
            inner, blocks = width * 2**stage, []
            for i in range(count):
                stride = 2 if stage and not i else 1
                blocks.append(ResidualBlock(maps, inner, stride=stride, bottleneck=bottleneck))
                maps = inner * EXPANSION if bottleneck else inner
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(maps, whole("num_classes", num_classes, low=1))
        he_normal(self)
        if zero_last:
            for block in self.modules():
                if isinstance(block, ResidualBlock):
                    nn.init.zeros_(block.last_norm.weight)

    def forward(self, x: Float[Tensor, " n c h w"]) -> Float[Tensor, " n k"]:
        """The logits of each image, of any size."""
        check_images(x, self.channels, 1)
        x = self.maxpool(torch.relu_(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def _conv(maps: int, out: int, kernel: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(maps, out, kernel, stride=stride, padding=kernel // 2, bias=False)
