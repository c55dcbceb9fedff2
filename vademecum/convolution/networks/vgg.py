r"""VGG: nothing but $3 \times 3$ convolutions and poolings, and three dense layers.

Two stacked $3 \times 3$ layers see a window of $5 \times 5$ with $18 C^2$ weights in place of
$25 C^2$, and with one more nonlinearity. The five stages end in a pooling, so that $224$ becomes
$112, 56, 28, 14, 7$. Most parameters sit in the dense layers: 123,642,856 of VGG-16's 138,357,544.
Checked by `convolution.vgg16` and `convolution.stacked_3x3`.
"""

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import number, whole
from vademecum.convolution.networks._images import check_images, he_normal

__all__ = ["VGG"]

LAYERS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
"""How many convolutions each stage has, by the number of layers with weights."""


class VGG(nn.Module):
    """VGG, from images to logits, with torchvision's names.

    Args:
        depth: How many layers have weights: 11, 13, 16 or 19.
        num_classes: How many logits there are.
        channels: How many channels an image has.
        width: How many maps the first stage has; others grow with it.
        dropout: The rate after the first two dense layers.

    References:
        Simonyan, Zisserman, Very deep convolutional networks for large-scale image recognition,
        ICLR, 2015.

    Example:
        >>> net = VGG(11, num_classes=5, width=2)
        >>> net(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 5])
    """

    def __init__(
        self,
        depth: Literal[11, 13, 16, 19],
        num_classes: int = 1000,
        *,
        channels: int = 3,
        width: int = 64,
        dropout: float = 0.5,
    ):
        super().__init__()
        if depth not in LAYERS:
            raise ValueError(f"depth must be one of {', '.join(map(str, LAYERS))}, got {depth}")
        self.channels, width = whole("channels", channels, low=1), whole("width", width, low=1)
        number("dropout", dropout, low=0, high=1)
        layers: list[nn.Module] = []
        for stage, count in enumerate(LAYERS[depth]):
            for _ in range(count):
                maps = width * min(2**stage, 8)
                layers += [nn.Conv2d(channels, maps, 3, padding=1), nn.ReLU(inplace=True)]
                channels = maps
            layers += [nn.MaxPool2d(2)]
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(7)
        dense = 64 * width
        self.classifier = nn.Sequential(
            nn.Linear(49 * channels, dense), nn.ReLU(inplace=True), nn.Dropout(dropout),
            nn.Linear(dense, dense), nn.ReLU(inplace=True), nn.Dropout(dropout),
            nn.Linear(dense, whole("num_classes", num_classes, low=1)),
        )  # fmt: skip
        he_normal(self)

    def forward(self, x: Float[Tensor, " n c h w"]) -> Float[Tensor, " n k"]:
        """The logits of each image; 224 x 224, or any other size from 32 x 32 on."""
        check_images(x, self.channels, 32)
        return self.classifier(self.avgpool(self.features(x)).flatten(1))
