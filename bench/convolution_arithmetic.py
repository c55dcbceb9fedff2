"""Rows of the room `convolution`: counting multiply-adds, and receptive fields."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from bench.harness import Row, Skipped, in_turn
from vademecum.convolution.call_table import shape_trace
from vademecum.convolution.networks.resnet import ResNet
from vademecum.convolution.networks.vgg import VGG
from vademecum.convolution.receptive import receptive_field

__all__ = ["rows"]

IMAGE = (3, 224, 224)


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    if device.type == "cpu":  # shapes have no values, so a device is nothing to them
        yield from in_turn(_torch(device), _torchinfo(device), _fvcore(device), _fields(device))


def _networks(device: torch.device) -> Iterator[tuple[str, nn.Module]]:
    yield "ResNet-50", ResNet(50).to(device).eval()
    yield "VGG-16", VGG(16).to(device).eval()


def _count(model: nn.Module) -> int:
    return shape_trace(model, IMAGE).multiply_adds


def _same(mine: int, other: int) -> None:
    assert mine == other, (mine, other)


def _rows(device: torch.device, peers: dict[str, Callable[[nn.Module], int]]) -> Iterator[Row]:
    for name, model in _networks(device):
        asked = {peer: partial(count, model) for peer, count in peers.items()}
        yield Row(f"shape_trace of {name} at 224", partial(_count, model), asked, _same, rounds=3)


def _torch(device: torch.device) -> Iterator[Row]:
    def counted(model: nn.Module) -> int:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            model(torch.zeros(1, *IMAGE, device=device))
        return counter.get_total_flops() // 2

    yield from _rows(device, {"torch's FlopCounterMode": counted})


def _torchinfo(device: torch.device) -> Iterator[Row]:
    from torchinfo import summary  # type: ignore[import-not-found]

    def summed(model: nn.Module) -> int:
        return summary(model, (1, *IMAGE), verbose=0, device=device).total_params

    for name, model in _networks(device):
        ours = partial(lambda model: shape_trace(model, IMAGE).parameters, model)
        peers = {"torchinfo": partial(summed, model)}  # whose products count biases and norms
        yield Row(f"table of {name} at 224", ours, peers, _same, rounds=3)


def _fvcore(device: torch.device) -> Iterator[Row]:
    from fvcore.nn import FlopCountAnalysis  # type: ignore[import-not-found]

    def counted(model: nn.Module) -> int:
        found = FlopCountAnalysis(model, torch.zeros(1, *IMAGE, device=device))
        by = found.unsupported_ops_warnings(False).by_operator()
        return by["conv"] + by["linear"]

    yield from _rows(device, {"fvcore": counted})


def _fields(device: torch.device) -> Iterator[Row]:
    model, x = ResNet(50).to(device).eval(), (3, 1024, 1024)
    with torch.device("meta"):
        empty, image = ResNet(50).eval(), torch.zeros(1, *x)

    def passed() -> None:
        with torch.no_grad():
            empty(image)

    def agree(mine: Any, other: Any) -> None:
        assert mine.size == (427, 427)

    peers: dict[str, Callable[[], Any]] = {"one pass without values": passed}
    ours = partial(receptive_field, model, x)
    yield Row("receptive_field of ResNet-50 at 1024", ours, peers, agree, "1 s")
