"""Rows of the room `geometry`: convolutions on planar groups."""

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bench.harness import Row, Skipped, in_turn
from vademecum.geometry import GroupConv2d

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    yield from in_turn(_layers(device), _escnn(device))


def _pass(layer: Callable[[Tensor], Tensor], x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The output, and the gradient in the input; that in the weights is taken, too."""
    y = layer(x)
    moved, _ = torch.autograd.grad(y.square().sum(), (x, weight))
    return y.detach(), moved


def _close(mine: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> None:
    for a, b in zip(mine, other, strict=True):
        b = b.reshape(a.shape)
        torch.testing.assert_close(a, b, rtol=0, atol=1e-3 * float(b.abs().max()))


def _layers(device: torch.device) -> Iterator[Row]:
    """Ours beside a plain convolution with as many multiply-adds, whose filters are there."""
    torch.manual_seed(0)
    n, size = (8, 32) if device.type == "cpu" else (64, 56)
    cases: list[tuple[Literal["p4", "p4m"], int]] = [("p4", 16), ("p4m", 8), ("p4", 32)]
    for group, channels in cases:
        layer = GroupConv2d(channels, channels, 3, group=group, padding=1, bias=False).to(device)
        wide = channels * layer.group.order
        x = torch.randn(n, channels, layer.group.order, size, size, device=device,
                        requires_grad=True)  # fmt: skip
        flat = x.detach().flatten(1, 2).requires_grad_()
        plain = nn.Conv2d(wide, wide, 3, padding=1, bias=False).to(device)
        with torch.no_grad():
            plain.weight.copy_(layer.filters())
        yield Row(
            f"GroupConv2d {group}, {channels} channels, {n} images of {size}, forward and backward",
            partial(_pass, layer, x, layer.weight),
            {"plain convolution": partial(_pass, plain, flat, plain.weight)},
            _close,
        )


def _escnn(device: torch.device) -> Iterator[Row]:
    """The same symmetry in escnn, if it is there: it needs a compiler, and is no peer to install.

    Its filters are made of a basis, so that only shapes can agree.
    """
    if importlib.util.find_spec("escnn") is None:
        return
    torch.manual_seed(0)
    library: Any = importlib.import_module("escnn")
    n, size, channels = (8, 32, 16) if device.type == "cpu" else (64, 56, 16)
    space = library.gspaces.rot2dOnR2(4)
    kind = library.nn.FieldType(space, channels * [space.regular_repr])
    theirs = library.nn.R2Conv(kind, kind, 3, padding=1, bias=False).to(device)
    layer = GroupConv2d(channels, channels, 3, padding=1, bias=False).to(device)
    x = torch.randn(n, channels, 4, size, size, device=device, requires_grad=True)
    flat = x.detach().flatten(1, 2).requires_grad_()

    def peer(z: Tensor) -> Tensor:
        return theirs(library.nn.GeometricTensor(z, kind)).tensor

    def same_shape(mine: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> None:
        assert mine[0].numel() == other[0].numel()

    yield Row(f"GroupConv2d p4, {channels} channels, {n} images of {size}, beside escnn",
              partial(_pass, layer, x, layer.weight),
              {"escnn": partial(_pass, peer, flat, next(theirs.parameters()))},
              same_shape)  # fmt: skip
