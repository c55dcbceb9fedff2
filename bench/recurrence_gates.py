"""Rows of the room `recurrence`: the gates of a recurrent layer against unrolled cells."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bench.harness import Row, Skipped
from vademecum.recurrence import GateTrace, gates

__all__ = ["rows"]

SIZES = ((100, 1, 32, 32), (100, 32, 128, 256), (1000, 8, 64, 128))
"""Steps, sequences, inputs, units."""


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    for T, n, d, m in SIZES:
        for kind, cell in ((nn.LSTM, nn.LSTMCell), (nn.GRU, nn.GRUCell)):
            layer, one = kind(d, m, device=device), cell(d, m, device=device)
            own = {name.removesuffix("_l0"): p for name, p in layer.state_dict().items()}
            one.load_state_dict(own)
            x = torch.randn(T, n, d, device=device)
            name = f"gates of nn.{kind.__name__}, T {T}, batch {n}, {d} to {m}"
            peers: dict[str, Callable[[], Any]] = {
                f"unrolled nn.{cell.__name__}, without its gates": partial(_unrolled, one, x)
            }
            yield Row(name, partial(gates, layer, x), peers, _same)


@torch.no_grad()
def _unrolled(cell: nn.LSTMCell | nn.GRUCell, x: Tensor) -> tuple[Tensor, ...]:
    """All states, and for an LSTM all cells: what a cell shows of itself."""
    state, found = None, []
    for now in x:
        state = cell(now, state)  # type: ignore[arg-type]
        found.append(state if isinstance(state, tuple) else (state,))
    return tuple(map(torch.stack, zip(*found, strict=True)))


def _same(mine: GateTrace, other: tuple[Tensor, ...]) -> None:
    ((trace,),) = mine.layers
    ours = (trace.h, trace.c) if hasattr(trace, "c") else (trace.h,)  # type: ignore[union-attr]
    tf32 = torch.backends.cudnn.allow_tf32 and other[0].is_cuda  # cuDNN's products, by default
    rounding = 20 * trace.h.shape[-1] * torch.finfo(trace.h.dtype).eps  # two products, ten steps
    for a, b in zip(ours, other, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=2e-2 if tf32 else rounding), (a - b).abs().max()
