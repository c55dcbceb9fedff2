"""PixelCNN: masked convolutions, the network of them, and its samples pixel by pixel."""

from vademecum.generative.pixels.masks import MaskedConv2d
from vademecum.generative.pixels.network import PixelCNN

__all__ = ["MaskedConv2d", "PixelCNN"]
