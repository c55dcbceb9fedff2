"""Vision transformers: images cut into patches, which are the tokens."""

from vademecum.attention.vision.patches import patchify, unpatchify
from vademecum.attention.vision.vit import ViT

__all__ = ["ViT", "patchify", "unpatchify"]
