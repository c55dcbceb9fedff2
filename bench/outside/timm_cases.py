"""Models of the library timm, narrow and on small images, with random weights.

timm imports torchvision for the transforms of its data sets, which none of its models needs. Where
torchvision is not installed a stand-in takes its place while timm is imported.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch.nn import functional as F

from bench.outside.cases import Case, Subject

__all__ = ["cases"]

N = 3  # examples
DOUBLE = torch.float64


class _StandIn(ModuleType):
    """A module in which every name is a class without anything in it."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def _timm() -> Any:
    if importlib.util.find_spec("torchvision") is not None:
        return importlib.import_module("timm")
    names = ["torchvision", "torchvision.transforms", "torchvision.transforms.functional"]
    for name in names:
        sys.modules[name] = _StandIn(name)
    try:
        return importlib.import_module("timm")
    finally:
        for name in names:
            del sys.modules[name]


def _sees(name: str, size: int = 32, **options: Any) -> Callable[[], Subject]:
    def make() -> Subject:
        model = _timm().create_model(name, num_classes=2, **options).to(DOUBLE)
        x = torch.randn(N, 3, size, size, dtype=DOUBLE)
        return Subject(model, x, torch.tensor([0, 1, 1]), F.cross_entropy)

    return make


def cases() -> list[Case]:
    """Convolutions, mixers and transformers of images."""
    _timm()
    return [
        Case("resnet18", _sees("resnet18", channels=(4, 4, 8, 8), stem_width=4), kinks=True),
        Case("regnetx_002", _sees("regnetx_002"), kinks=True),
        Case("efficientnet_lite0", _sees("efficientnet_lite0"), kinks=True),
        Case("vit_tiny", _sees("vit_tiny_patch16_224", 16, img_size=16, patch_size=8, embed_dim=12,
                               depth=2)),
        Case("mixer_s32", _sees("mixer_s32_224", 16, img_size=16, patch_size=8, embed_dim=8,
                                num_blocks=2)),
        Case("convnext_femto", _sees("convnext_femto", dims=(4, 4, 8, 8), depths=(1, 1, 1, 1))),
        Case("densenet121", _sees("densenet121", growth_rate=4, block_config=(1, 2, 1, 1)),
             kinks=True),
    ]  # fmt: skip
