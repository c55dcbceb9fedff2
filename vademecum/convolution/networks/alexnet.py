r"""AlexNet: five convolutions, the first of them large and strided, and three dense layers.

The network of 2012 was trained on two GPUs, so its layers 2, 4 and 5 have two groups:
$2{,}334{,}080 + 58{,}631{,}144 = 60{,}965{,}224$ parameters, and on images of $227$ the maps have
the sides $55, 27, 13, 13, 13, 6$. The single tower of 2014, which is what torchvision calls
AlexNet, has fewer maps and no groups: 61,100,840. Checked by `convolution.alexnet`.
"""

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import choice, number, whole
from vademecum.convolution.networks._images import check_images

__all__ = ["AlexNet"]


class AlexNet(nn.Module):
    """AlexNet, from images to logits, with torchvision's names.

    Args:
        num_classes: How many logits there are.
        channels: How many channels an image has.
        width: How many maps the first convolution has; others grow with it. By default 64, or 96
            in 2012, where it must be a multiple of 6.
        dropout: The rate before the first two dense layers.
        variant: "2014", the single tower; or "2012", with two groups and response normalisation.

    References:
        Krizhevsky, Sutskever, Hinton, ImageNet classification with deep convolutional neural
        networks, NeurIPS, 2012. Krizhevsky, One weird trick for parallelizing convolutional neural
        networks, 2014.

    Example:
        >>> net = AlexNet(num_classes=5, width=4)
        >>> net(torch.zeros(2, 3, 224, 224)).shape
        torch.Size([2, 5])
    """

    def __init__(
        self,
        num_classes: int = 1000,
        *,
        channels: int = 3,
        width: int | None = None,
        dropout: float = 0.5,
        variant: Literal["2014", "2012"] = "2014",
    ):
        super().__init__()
        self.channels = whole("channels", channels, low=1)
        original = choice("variant", variant, ("2014", "2012")) == "2012"
        width = (96 if original else 64) if width is None else whole("width", width, low=1)
        if original and width % 6:
            raise ValueError(f"width must be a multiple of 6 in 2012, got {width}")
        number("dropout", dropout, low=0, high=1)
        self.features = _groups_of_2012(channels, width) if original else _tower(channels, width)
        maps, dense = (8 * width // 3, 128 * width // 3) if original else (4 * width, 64 * width)
        self.smallest = 67 if original else 63
        self.avgpool = nn.AdaptiveAvgPool2d(6)
        self.classifier = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(maps * 36, dense), nn.ReLU(inplace=True),
            nn.Dropout(dropout), nn.Linear(dense, dense), nn.ReLU(inplace=True),
            nn.Linear(dense, whole("num_classes", num_classes, low=1)),
        )  # fmt: skip

    def forward(self, x: Float[Tensor, " n c h w"]) -> Float[Tensor, " n k"]:
        """The logits of each image; 227 x 227 in 2012, 224 x 224 else, or any other size."""
        check_images(x, self.channels, self.smallest)
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def _tower(channels: int, w: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, w, 11, stride=4, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        nn.Conv2d(w, 3 * w, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        nn.Conv2d(3 * w, 6 * w, 3, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(6 * w, 4 * w, 3, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(4 * w, 4 * w, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
    )  # fmt: skip


def _groups_of_2012(channels: int, w: int) -> nn.Sequential:
    def normalisation() -> nn.LocalResponseNorm:
        return nn.LocalResponseNorm(5, alpha=5e-4, beta=0.75, k=2)  # torch divides alpha by 5

    second, third = 8 * w // 3, 4 * w
    return nn.Sequential(
        nn.Conv2d(channels, w, 11, stride=4), nn.ReLU(inplace=True), normalisation(),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(w, second, 5, padding=2, groups=2), nn.ReLU(inplace=True), normalisation(),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(second, third, 3, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(third, third, 3, padding=1, groups=2), nn.ReLU(inplace=True),
        nn.Conv2d(third, second, 3, padding=1, groups=2), nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2),
    )  # fmt: skip
