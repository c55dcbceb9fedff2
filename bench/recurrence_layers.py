"""Rows of the room `recurrence`: a training step of a linear recurrent unit, steps of inference."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from bench.harness import Row, Skipped, in_turn
from vademecum.recurrence import LRU, linear_units

__all__ = ["rows"]

Scan = Callable[..., Tensor]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    yield from in_turn(_training(device), _steps(device))


def _training(device: torch.device) -> Iterator[Row]:
    for d, m in ((64, 256), (256, 256)):
        torch.manual_seed(0)
        net, x = LRU(d, m, r_min=0.5).to(device), torch.randn(8, 4096, d, device=device)
        peers = {
            f"the layer on {name}": partial(_on, scan, net, x)
            for name, scan in (
                ("a loop", _loop), ("a chunked loop", _chunks), ("doubling", _doubling),
                ("associative_scan", _associative),
            )
        }  # fmt: skip
        if device.type == "cuda":
            del peers["the layer on a loop"]  # 4096 launches and their backward
        yield Row(f"LRU of {d} features and {m} states, 8 x 4096, forward and backward",
                  partial(_pass, net, x), peers, _close)  # fmt: skip


def _pass(net: LRU, x: Tensor) -> list[Tensor]:
    """Gradients in all parameters."""
    return list(torch.autograd.grad(net(x).output.square().mean(), list(net.parameters())))


def _on(scan: Scan, net: LRU, x: Tensor) -> list[Tensor]:
    """The same with another scan in the layer."""
    with mock.patch.object(linear_units, "scan", scan):
        return _pass(net, x)


def _close(mine: list[Tensor], other: list[Tensor]) -> None:
    for a, b in zip(mine, other, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3 * float(b.abs().max()))


def _loop(a: Tensor, b: Tensor, **_: Any) -> Tensor:
    h, states = torch.zeros_like(b[:, 0]), []
    for x in b.unbind(1):
        h = torch.addcmul(x, a, h)
        states.append(h)
    return torch.stack(states, 1)


def _chunks(a: Tensor, b: Tensor, size: int = 64, **_: Any) -> Tensor:
    """All chunks side by side, then what each takes over from those before."""
    parts = b.unflatten(1, (-1, size))
    inside = _loop(a, parts.flatten(0, 1)).view_as(parts)
    carried, h = [], torch.zeros_like(b[:, 0])
    for last in inside[:, :, -1].unbind(1):
        carried.append(h)
        h = torch.addcmul(last, a**size, h)
    powers = a ** torch.arange(1, size + 1, device=a.device)[:, None]
    return torch.addcmul(inside, powers, torch.stack(carried, 1)[:, :, None]).flatten(1, 2)


def _doubling(a: Tensor, b: Tensor, **_: Any) -> Tensor:
    span, T = 1, b.shape[1]
    while span < T:
        b = torch.cat((b[:, :span], torch.addcmul(b[:, span:], a**span, b[:, :-span])), 1)
        span *= 2
    return b


def _associative(a: Tensor, b: Tensor, **_: Any) -> Tensor:
    from torch._higher_order_ops import associative_scan

    def after(first: Any, second: Any) -> Any:
        return second[0] * first[0], second[0] * first[1] + second[1]

    return associative_scan(after, (a.expand_as(b), b), 1, combine_mode="generic")[1]


def _steps(device: torch.device) -> Iterator[Row]:
    for m in (128, 256):
        for n in (1, 32):
            torch.manual_seed(0)
            net, cell = LRU(256, m).to(device), nn.GRUCell(256, 256).to(device)
            x = torch.randn(n, 256, device=device)
            yield Row(f"step of an LRU of 256 features and {m} states, batch {n}, 100 times",
                      partial(_stepped, net.step, x), {"nn.GRUCell of width 256": partial(
                          _stepped, lambda x, h, cell=cell: (x, cell(x, h)), x)},
                      lambda mine, other: None, rounds=15)  # fmt: skip


@torch.no_grad()
def _stepped(step: Callable[..., Any], x: Tensor) -> Any:
    state = None
    for _ in range(100):
        _, state = step(x, state)
    return state
