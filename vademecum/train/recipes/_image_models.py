"""Networks for images of any size, by name, in widths that a CPU can train."""

from typing import Any

from torch import Tensor, nn

from vademecum.attention import ViT
from vademecum.convolution import VGG, AlexNet, DenseNet, GoogLeNet, LeNet5, ResNet
from vademecum.errors import UsageError
from vademecum.models import mlp
from vademecum.recurrence import LRU

__all__ = ["image_network"]

_SIDES = {"lenet5": 16, "alexnet": 64, "vgg": 32, "googlenet": 32, "resnet": 32, "densenet": 32}
"""The smallest sides for which the networks leave something at the end."""
_DEPTHS = {"mlp": 2, "vgg": 11, "resnet": 18, "densenet": 121, "vit": 2, "lru": 2}
_WIDTHS = {"mlp": 128, "lenet5": 6, "alexnet": 8, "vgg": 8, "googlenet": 8, "resnet": 8,
           "densenet": 4, "vit": 48, "lru": 48}  # fmt: skip


def image_network(
    name: str, width: int | None, depth: int | None, *, outputs: int, channels: int, side: int
) -> nn.Module:
    """A network from images to numbers; images smaller than it can take are enlarged first.

    Args:
        name: Which one.
        width: Of its first layer; small by default.
        depth: How many layers it has; the least by default.
        outputs: How many numbers it gives.
        channels: How many channels an image has.
        side: The height and width of an image.
    """
    if depth is not None and name not in _DEPTHS:
        raise UsageError(f"model.depth must be left out for {name}, which has one, got {depth}")
    size = max(side, _SIDES.get(name, 0))
    sizes = (
        _WIDTHS[name] if width is None else width,
        _DEPTHS.get(name, 0) if depth is None else depth,
    )
    net = _made(name, *sizes, outputs, channels, size)
    if size == side:
        return net
    larger = nn.Upsample(size=(size, size), mode="bilinear", align_corners=False)
    return nn.Sequential(larger, net)


def _made(name: str, width: int, depth: Any, k: int, channels: int, size: int) -> nn.Module:
    options: dict[str, Any] = {"channels": channels, "width": width}
    if name == "mlp":
        sizes = [channels * size * size, *[width] * depth, k]
        return nn.Sequential(nn.Flatten(), *mlp(sizes))
    if name == "lenet5":
        return LeNet5(k, size=size, padding=2 if size < 32 else 0, **options)
    if name == "vit":
        patch = 2 if size < 16 else 4
        return ViT("Ti", k, size=size, patch=patch, depth=depth, heads=4, **options)
    if name == "lru":
        return PixelSequence(channels, width, depth, k)
    if name in ("alexnet", "googlenet"):
        made = {"alexnet": AlexNet, "googlenet": GoogLeNet}[name]
        return made(k, **options)
    return {"vgg": VGG, "resnet": ResNet, "densenet": DenseNet}[name](depth, k, **options)


class PixelSequence(nn.Module):
    """A linear recurrent network that reads an image pixel by pixel, row after row.

    Args:
        channels: How many channels an image has.
        width: How wide the sequence is inside.
        layers: How many layers there are.
        outputs: How many numbers it gives.
    """

    def __init__(self, channels: int, width: int, layers: int, outputs: int):
        super().__init__()
        self.reading = nn.Linear(channels, width)
        self.units = LRU(width, width, layers=layers, r_min=0.5, r_max=0.99, norm=True)
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Numbers for each image."""
        pixels = x.flatten(2).mT
        return self.head(self.units(self.reading(pixels)).output.mean(1))
