"""Rows of the room `regularization`: signals of a network, beside one forward and backward pass."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from bench.harness import Row, Skipped
from vademecum.attention import ViT
from vademecum.convolution import ResNet
from vademecum.regularization import SignalPropagation, signal_propagation

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    torch.manual_seed(0)
    if device.type == "cpu":
        yield _row("ResNet-18, 8 images of 128", ResNet(18, 10), torch.randn(8, 3, 128, 128))
    else:
        x = torch.randn(128, 3, 224, 224, device=device)
        yield _row("ResNet-18, 128 images of 224", ResNet(18, 10).to(device), x)
        yield _row("ViT-B/16, 128 images of 224", ViT("B", 10).to(device), x)


def _row(name: str, net: nn.Module, x: Tensor) -> Row:
    """Both in evaluation; a ratio above 0.5 is at most two passes."""
    net.eval()
    y = torch.arange(len(x), device=x.device) % 10
    return Row(
        f"signals of {name}",
        partial(_signals, net, x, y),
        {"forward and backward": partial(_pass, net, x, y)},
        _agree,
        limit="0.5: two passes",
    )


def _signals(net: nn.Module, x: Tensor, y: Tensor) -> SignalPropagation:
    return signal_propagation(net, x, y)


def _pass(net: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The logits, and the gradient of the loss in them."""
    for p in net.parameters():
        p.grad = None
    logits = net(x)
    logits.retain_grad()
    cross_entropy(logits, y).backward()
    assert logits.grad is not None
    return logits.detach(), logits.grad


def _agree(ours: SignalPropagation, theirs: Any) -> None:
    last = ours.rows[-1]
    assert last.backward is not None
    for found, t in ((last.forward, theirs[0]), (last.backward, theirs[1])):
        wanted = float(t.double().square().mean())
        assert abs(found.second_moment / wanted - 1) < 1e-2, (found, wanted)
