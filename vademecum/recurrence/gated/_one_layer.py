r"""One layer of torch, in one direction or two: it runs, and its gates are computed afterwards.

With the state before each step, $h^{t-1}$ (or $h^{t+1}$ for the backward direction), all
pre-activations are $X W^\top + H R^\top + b$. Packed sequences are padded for that; beyond its end
a cell keeps its value, so that the backward direction begins each with its own $c^{T+1}$.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from vademecum.recurrence.elman import RNNTrace
from vademecum.recurrence.gated._torch_layers import Weights, torch_layer
from vademecum.recurrence.gated.gru_cell import GRUTrace
from vademecum.recurrence.gated.lstm_cell import LSTMTrace

__all__ = ["Ran", "run_layer"]


class Ran(NamedTuple):
    """What a layer gave, and what each of its directions did."""

    output: Tensor | PackedSequence
    state: Any
    traces: tuple[RNNTrace | LSTMTrace | GRUTrace, ...]


class _Read(NamedTuple):
    """One direction of a layer, with its inputs, its outputs and where it began."""

    weights: Weights
    x: Tensor
    h: Tensor
    h0: Tensor
    c0: Tensor
    time: int
    backward: bool
    valid: Tensor | None


def run_layer(
    mode: str, ways: list[Weights], x: Any, h0: Tensor, c0: Tensor, *, batch_first: bool
) -> Ran:
    """Run one layer and compute its gates.

    Args:
        mode: Which kind it is, as torch calls it.
        ways: The weights of its directions.
        x: The inputs of a batch, packed or not.
        h0: The states before the first step, for each direction.
        c0: The cells before the first step, which only an LSTM has.
        batch_first: How inputs are laid out that are not packed.
    """
    layer = torch_layer(mode, ways, batch_first=batch_first)  # as cuDNN wants weights to lie
    output, state = layer(x, (h0, c0) if mode == "LSTM" else h0)
    valid, padded_x, padded = None, x, output
    time = int(batch_first)
    if isinstance(x, PackedSequence):
        padded_x, lengths = pad_packed_sequence(x, batch_first)
        padded, _ = pad_packed_sequence(output, batch_first)
        valid = torch.arange(padded.shape[time]) < lengths[:, None]
        valid = (valid if batch_first else valid.T)[..., None].to(padded.device)
    trace = {"LSTM": _lstm, "GRU": _gru}.get(mode, _rnn)
    halves = padded.chunk(len(ways), -1)
    reads = [
        _Read(weights, padded_x, halves[i], h0[i], c0[i], time, i == 1, valid)
        for i, weights in enumerate(ways)
    ]
    return Ran(output, state, tuple(trace(read) for read in reads))


def _sums(read: _Read, name: str, seen: Tensor) -> Tensor:
    bias = read.weights.get(f"bias_{name}")
    return F.linear(seen, read.weights[f"weight_{name}"], bias)


def _before(read: _Read) -> Tensor:
    """The state that each step began with."""
    first = read.h0.unsqueeze(read.time).to(read.h)
    T = read.h.shape[read.time]
    if not read.backward:
        return torch.cat((first, read.h.narrow(read.time, 0, T - 1)), read.time)
    before = torch.cat((read.h.narrow(read.time, 1, T - 1), first), read.time)
    if read.valid is None:
        return before
    going_on = read.valid.narrow(read.time, 1, T - 1)  # whether there is a step after it
    last = torch.zeros_like(read.valid.narrow(read.time, 0, 1))
    return torch.where(torch.cat((going_on, last), read.time), before, first)


def _masked(read: _Read) -> Callable[[Tensor], Tensor]:
    return lambda t: t if read.valid is None else t.mul_(read.valid)


def _rnn(read: _Read) -> RNNTrace:
    a = _sums(read, "ih", read.x).add_(_sums(read, "hh", _before(read)))
    return RNNTrace(_masked(read)(a), read.h)


def _gru(read: _Read) -> GRUTrace:
    a, b = _sums(read, "ih", read.x), _sums(read, "hh", _before(read))
    m = a.shape[-1] // 3
    both, n = a[..., : 2 * m], a[..., 2 * m :]
    r, z = both.add_(b[..., : 2 * m]).sigmoid_().chunk(2, -1)
    n.addcmul_(r, b[..., 2 * m :]).tanh_()
    _masked(read)(a)
    return GRUTrace(r, z, n, read.h)


def _lstm(read: _Read) -> LSTMTrace:
    a = _sums(read, "ih", read.x).add_(_sums(read, "hh", _before(read)))
    m = a.shape[-1] // 4
    i, f = a[..., : 2 * m].sigmoid_().chunk(2, -1)
    g, o = a[..., 2 * m : 3 * m].tanh_(), a[..., 3 * m :].sigmoid_()
    c = _cells(read, f, i * g)
    _masked(read)(a)
    return LSTMTrace(i, f, o, g, _masked(read)(c), read.h)


def _cells(read: _Read, f: Tensor, written: Tensor) -> Tensor:
    """The cells after each step, in the memory of what is written to them."""
    if read.valid is not None:
        f, written = torch.where(read.valid, f, 1), written.mul_(read.valid)
    steps = list(zip(f.unbind(read.time), written.unbind(read.time), strict=True))
    before = read.c0.to(written)
    for keep, cell in reversed(steps) if read.backward else steps:
        before = cell.addcmul_(keep, before)
    return written
