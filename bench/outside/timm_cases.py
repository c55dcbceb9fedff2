"""Models of the library timm, narrow and on small images, with random weights.

timm imports torchvision for the transforms of its data sets, which none of its models needs. Where
torchvision is not installed a stand-in takes its place while timm is imported.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, MutableSequence
from functools import cache, partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from bench.outside.cases import Case, Subject

__all__ = ["cases"]

N = 3  # examples
DOUBLE = torch.float64


class _Empty(type):
    """A class that has any attribute, and nothing in it."""

    def __getattr__(cls, name: str) -> str:
        return name


class _StandIn(ModuleType):
    """A module in which every name is an empty class."""

    __path__: MutableSequence[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Empty(name, (), {})


class _Finder(MetaPathFinder, Loader):
    """Finds stand-ins for torchvision and whatever would be in it."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        ours = fullname.partition(".")[0] == "torchvision"
        return ModuleSpec(fullname, self, is_package=True) if ours else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


@cache
def _timm() -> Any:
    if importlib.util.find_spec("torchvision") is not None:
        return importlib.import_module("timm")
    finder = _Finder()
    sys.meta_path.append(finder)
    try:
        return importlib.import_module("timm")
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]


def _sees(build: Callable[[Any], nn.Module], size: int = 32) -> Callable[[], Subject]:
    def make() -> Subject:
        model = build(_timm().models).to(DOUBLE)
        x = torch.randn(N, 3, size, size, dtype=DOUBLE)
        return Subject(model, x, torch.tensor([0, 1, 1]), F.cross_entropy)

    return make


def _named(name: str, size: int = 32, **options: Any) -> Callable[[], Subject]:
    return _sees(lambda models: models.create_model(name, num_classes=2, **options), size)


def _regnet(models: Any) -> nn.Module:
    shape = models.regnet.RegNetCfg(depth=6, w0=8, wa=8.0, wm=2.0, group_size=4, stem_width=4)
    return models.regnet.RegNet(shape, num_classes=2)


def _lite(models: Any) -> nn.Module:
    """The blocks of efficientnet_lite0, a tenth as wide and each once."""
    blocks = models._efficientnet_builder.decode_arch_def(
        [["ds_r1_k3_s1_e1_c16"], ["ir_r1_k3_s2_e6_c24"], ["ir_r1_k5_s2_e6_c40"]]
    )
    narrow = partial(models._efficientnet_builder.round_channels, multiplier=0.1, divisor=4)
    return models.efficientnet.EfficientNet(
        blocks, num_classes=2, num_features=8, stem_size=8, round_chs_fn=narrow,
        act_layer=nn.ReLU6,
    )  # fmt: skip


def cases() -> list[Case]:
    """Convolutions, mixers and transformers of images."""
    _timm()
    mixer = {"img_size": 16, "patch_size": 8, "embed_dim": 8, "num_blocks": 2, "num_classes": 2}
    return [
        Case("resnet18", _named("resnet18", channels=(4, 4, 8, 8), stem_width=4), kinks=True),
        Case("regnetx", _sees(_regnet), kinks=True),
        Case("efficientnet_lite0", _sees(_lite), kinks=True),
        Case("vit_tiny", _named("vit_tiny_patch16_224", 16, img_size=16, patch_size=8, embed_dim=12,
                                depth=2)),
        Case("mixer", _sees(lambda models: models.mlp_mixer.MlpMixer(**mixer), 16)),
        Case("convnext_femto", _named("convnext_femto", dims=(4, 4, 8, 8), depths=(1, 1, 1, 1))),
        Case("densenet121", _named("densenet121", growth_rate=4, block_config=(1, 2, 1, 1)),
             kinks=True),
    ]  # fmt: skip
