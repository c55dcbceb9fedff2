"""Rows of the room `kernels`: tangent kernels of infinitely wide networks."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench import neural_tangents
from bench.harness import Row, Skipped, in_turn
from vademecum.kernels import infinite_width

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    torch.manual_seed(0)
    if device.type == "cpu":
        yield from in_turn(_plain(device, 1000, 3), _jitted())
    else:
        yield from _plain(device, 10_000, 40)


def dense() -> nn.Sequential:
    """Three hidden layers."""
    hidden = [layer for _ in range(2) for layer in (nn.Linear(8, 8), nn.ReLU())]
    return nn.Sequential(nn.Linear(784, 8), nn.ReLU(), *hidden, nn.Linear(8, 10))


def myrtle() -> nn.Sequential:
    """Four convolutions and a linear layer, with pooling in between and global at the end."""

    def conv(channels: int) -> list[nn.Module]:
        return [nn.Conv2d(channels, 8, 3, padding=1), nn.ReLU()]

    return nn.Sequential(
        *conv(1), *conv(8), nn.AvgPool2d(2), *conv(8), nn.AvgPool2d(2), *conv(8),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10),
    )  # fmt: skip


def _plain(device: torch.device, n: int, images: int) -> Iterator[Row]:
    """Against the recursion as one writes it in torch, which holds what it needs at once."""
    x, y = (torch.randn(n, 784).to(device) for _ in range(2))
    yield Row(
        f"fully connected, 3 hidden layers, {n} x {n}",
        partial(infinite_width(dense()).ntk, x, y),
        {"torch, line by line": partial(_dense, x, y)},
        _close,
    )
    x, y = (torch.rand(m, 1, 28, 28).to(device) for m in (images, images + 1))
    yield Row(
        f"Myrtle-5, {len(x)} x {len(y)} images of 28",
        partial(infinite_width(myrtle()).ntk, x, y),
        {"torch, line by line": partial(_myrtle, x, y)},
        _close,
        rounds=5,
    )


def _jitted() -> Iterator[Row]:
    """Against neural-tangents, compiled, as it is on this machine."""
    x, y = (torch.randn(1000, 784) for _ in range(2))
    peer = partial(neural_tangents.infinite_width, get=("ntk",))
    yield Row(
        "fully connected, 3 hidden layers, 1000 x 1000, jitted",
        partial(infinite_width(dense()).ntk, x, y),
        {"neural-tangents": peer(dense(), x, y)},
        lambda ours, theirs: _close(ours, theirs.ntk),
    )
    x, y = torch.rand(3, 1, 28, 28), torch.rand(4, 1, 28, 28)
    yield Row(
        "Myrtle-5, 3 x 4 images of 28, jitted",
        partial(infinite_width(myrtle()).ntk, x, y),
        {"neural-tangents": peer(myrtle(), x, y)},
        lambda ours, theirs: _close(ours, theirs.ntk),
        rounds=5,
    )


def _close(ours: Tensor, theirs: Any) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def _relu(k: Tensor, q: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    size = (q * p).sqrt()
    angle = (k / size).clamp(-1, 1).acos()
    value = size * (angle.sin() + (math.pi - angle) * angle.cos()) / (2 * math.pi)
    return value, (math.pi - angle) / (2 * math.pi)


def _dense(x: Tensor, y: Tensor) -> Tensor:
    k, q, p = 2 * x @ y.T / 784, 2 * x.square().mean(1)[:, None], 2 * y.square().mean(1)[None]
    theta = k
    for _ in range(3):
        value, slope = _relu(k, q, p)
        k = 2 * value
        theta = k + 2 * theta * slope
    return theta


def _myrtle(x: Tensor, y: Tensor) -> Tensor:
    rows = [torch.cat([_pair(a, b) for b in y]) for a in x]
    return torch.stack(rows)


def _pair(x: Tensor, y: Tensor) -> Tensor:
    """The three tables of two images with themselves and each other, through all layers."""
    tables = [torch.einsum("cij,ckl->ijkl", a, b) for a, b in ((x, x), (x, y), (y, y))]
    k = torch.stack(tables)
    theta = torch.zeros_like(k)
    for pool in (1, 2, 2, 7):
        k = 2 * _taps(k)
        theta = k + 2 * _taps(theta)
        q, p = (torch.einsum("ijij->ij", k[i]) for i in (0, 2))
        one = torch.stack([q, q, p])[..., None, None]
        other = torch.stack([q, p, p])[:, None, None]
        k, slope = _relu(k, one, other)
        theta = theta * slope
        k, theta = (_pooled(t, pool) for t in (k, theta))
    return 2 * (k + theta)[1].reshape(1)


def _taps(k: Tensor) -> Tensor:
    n = k.shape[1]
    padded, total = F.pad(k, (1,) * 8), torch.zeros_like(k)
    for a in range(3):
        for b in range(3):
            h, w = slice(a, a + n), slice(b, b + n)
            total = total + padded[:, h, w, h, w]
    return total / 9


def _pooled(k: Tensor, size: int) -> Tensor:
    m = k.shape[1] // size
    return k.reshape(3, m, size, m, size, m, size, m, size).mean((2, 4, 6, 8))
