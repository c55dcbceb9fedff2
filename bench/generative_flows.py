"""Rows of the room `generative`: flows with the weights of zuko's, and as plain torch writes them.

Sizes: 32 coordinates, 6 layers, networks with two hidden layers of 128 units, 4096 rows.
"""

import importlib
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bench.harness import Row, Skipped
from vademecum.generative import MAF, RealNVP, SplineFlow

__all__ = ["rows"]

D, N, SIZES = 32, 4096, {"transforms": 6, "hidden": (128, 128)}
HIDDEN = {"transforms": 6, "hidden_features": (128, 128)}


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    torch.manual_seed(0)
    x = torch.randn(N, D, device=device)
    yield from _couplings(device, x)
    yield from _splines(device, x)
    yield from _autoregressive(device, x)


def _dense(net: nn.Module) -> list[Any]:
    return [layer for layer in net.modules() if hasattr(layer, "weight")]


def _by_parameter(rows: Tensor) -> Tensor:
    """Theirs has shift and scale of each coordinate, ours all scales and then all shifts."""
    return rows.unflatten(0, (-1, 2)).transpose(0, 1).flip(0).flatten(0, 1)


def _learn(flow: nn.Module, log_prob: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    for p in flow.parameters():
        p.grad = None
    found = log_prob(x)
    (-found.mean()).backward()
    return found.detach()


def _close(mine: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-2)


@torch.no_grad()
def _drawn(inverse: Callable[[Tensor], Tensor], device: torch.device) -> Tensor:
    """Samples from noise that both sides share, drawn as part of the work."""
    source = torch.Generator(device).manual_seed(1)
    return inverse(torch.randn(N, D, device=device, generator=source))


def _both_ways(
    name: str, ours: Any, peers: dict[str, Any], x: Tensor, limit: str = ""
) -> Iterator[Row]:
    """Density with its gradients, and samples."""
    learn = {peer: partial(_learn, flow, law(flow), x) for peer, (flow, law, _) in peers.items()}
    mine = partial(_learn, ours, ours.log_prob, x)
    yield Row(f"{name}, density of {N} x {D} with gradients", mine, learn, _close, limit)
    draw = {peer: partial(_drawn, back(flow), x.device) for peer, (flow, _, back) in peers.items()}
    mine = partial(_drawn, lambda z: ours.inverse(z).value, x.device)
    yield Row(f"{name}, {N} samples", mine, draw, _close)


def _zuko(flow: Any) -> tuple[Any, Any, Any]:
    return flow, lambda f: lambda x: f().log_prob(x), lambda f: lambda z: f().transform.inv(z)


class _Plain(nn.Module):
    """Affine couplings as a page of plain torch: indices, two halves, one network a layer."""

    def __init__(self, ours: RealNVP):
        super().__init__()
        self.networks = ours.networks
        halves = torch.arange(0, D, 2), torch.arange(1, D, 2)
        for i, index in enumerate(halves):
            self.register_buffer(f"half{i}", index)

    def halves(self, i: int) -> tuple[Any, Any]:
        return getattr(self, f"half{i % 2}"), getattr(self, f"half{1 - i % 2}")

    def numbers(self, i: int, x: Tensor) -> tuple[Tensor, Tensor]:
        s, t = self.networks[i](x[:, self.halves(i)[0]]).chunk(2, 1)
        return s / (1 + s.abs() / math.log(1000)), t

    def log_prob(self, x: Tensor) -> Tensor:
        total = x.new_zeros(len(x))
        for i in range(6):
            (s, t), moved = self.numbers(i, x), self.halves(i)[1]
            x = x.index_copy(1, moved, x[:, moved] * s.exp() + t)
            total = total + s.sum(1)
        return total - 0.5 * (x.square() + math.log(2 * math.pi)).sum(1)

    def inverse(self, z: Tensor) -> Tensor:
        for i in reversed(range(6)):
            (s, t), moved = self.numbers(i, z), self.halves(i)[1]
            z = z.index_copy(1, moved, (z[:, moved] - t) * (-s).exp())
        return z


def _couplings(device: torch.device, x: Tensor) -> Iterator[Row]:
    zuko: Any = importlib.import_module("zuko")
    ours = RealNVP(D, **SIZES).to(device)
    theirs = zuko.flows.RealNVP(D, **HIDDEN).to(device)
    for net, transform in zip(ours.networks, theirs.transform.transforms, strict=True):
        for mine, other in zip(_dense(net), _dense(transform.hyper), strict=True):
            last = mine is _dense(net)[-1]
            for p, q in zip(mine.parameters(), other.parameters(), strict=True):
                p.data = (_by_parameter(q.data) if last else q.data).clone()
    plain = _Plain(ours).to(device)
    peers = {
        "zuko": _zuko(theirs),
        "plain torch": (plain, lambda f: f.log_prob, lambda f: f.inverse),
    }
    yield from _both_ways("RealNVP", ours, peers, x, "10 GFLOP: 60 ms at 170 GFLOP/s")


def _splines(device: torch.device, x: Tensor) -> Iterator[Row]:
    """Splines that are the same everywhere: the two squash logits in different ways."""
    zuko: Any = importlib.import_module("zuko")
    ours = SplineFlow(D, **SIZES).to(device)
    spline: Any = {
        "univariate": zuko.transforms.MonotonicRQSTransform,
        "shapes": [(8,), (8,), (7,)],
    }
    theirs = zuko.flows.coupling.NICE(D, **HIDDEN, **spline).to(device)
    for net, transform in zip(ours.networks, theirs.transform.transforms, strict=True):
        numbers = torch.cat((torch.zeros(16), 0.5 * torch.randn(7))).to(device)  # equal bins
        _dense(net)[-1].bias.data = numbers.repeat_interleave(D // 2)
        _dense(transform.hyper)[-1].bias.data = numbers.repeat(D // 2)
        for layers in (_dense(net), _dense(transform.hyper)):
            layers[-1].weight.data.zero_()
    yield from _both_ways("SplineFlow, 8 bins", ours, {"zuko": _zuko(theirs)}, x)


def _autoregressive(device: torch.device, x: Tensor) -> Iterator[Row]:
    zuko: Any = importlib.import_module("zuko")
    ours, theirs = MAF(D, **SIZES).to(device), zuko.flows.MAF(D, **HIDDEN).to(device)
    for net, transform in zip(ours.networks, theirs.transform.transforms, strict=True):
        before = torch.arange(D)
        for mine, other in zip(_dense(net), _dense(transform.hyper), strict=True):
            after = (torch.arange(len(other.weight)) % (D - 1)).argsort(stable=True)
            if mine is _dense(net)[-1]:
                after = _by_parameter(torch.arange(2 * D))
            mine.weight.data = other.weight.data[after][:, before]
            mine.bias.data = other.bias.data[after]
            before = after
    yield from _both_ways("MAF", ours, {"zuko": _zuko(theirs)}, x)
