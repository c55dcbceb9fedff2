r"""One direction of one layer of torch: its states, and with them its gates.

On the CPU the layer is unrolled. The products with all inputs come first, at once, into the memory
that will hold the gates; each step adds what the state before it contributes, in place.

On other devices a kernel for each operation of each step would take longer than cuDNN takes for all
steps. So torch's own layer runs, and then, with all states $h^{t-1}$ at hand, the gates of all
steps are two products, and only $c^t = f^t c^{t-1} + i^t g^t$ is a loop. (On a CPU that doubles the
arithmetic: measured 1.5 to 2 times slower than the loop for 256 units and 32 sequences.)

A chain that runs backwards reads the reversed sequences, and what it did is reversed again. What
lies beyond the end of a sequence is computed from zeros, and then erased.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.recurrence.elman import RNNTrace
from vademecum.recurrence.gated._torch_layers import Weights, torch_layer
from vademecum.recurrence.gated.gru_cell import GRUTrace
from vademecum.recurrence.gated.lstm_cell import LSTMTrace

__all__ = ["Ran", "run_direction"]

Trace = RNNTrace | LSTMTrace | GRUTrace


class Ran(NamedTuple):
    """What a direction did, and where it ended."""

    trace: Trace
    h: Tensor
    c: Tensor


@torch.no_grad()
def run_direction(
    mode: str,
    weights: Weights,
    x: Tensor,
    h: Tensor,
    c: Tensor,
    *,
    lengths: Tensor | None = None,
    backward: bool = False,
    fused: bool | None = None,
) -> Ran:
    """Run one direction of a layer.

    Args:
        mode: Which kind it is, as torch calls it.
        weights: Its weights.
        x: Its inputs, (T, n, d).
        h: The states before the first step, (n, p).
        c: The cells before the first step, (n, m), which only an LSTM has.
        lengths: How long the sequences are; all of them T by default.
        backward: Whether it begins at the end.
        fused: Whether torch's layer runs; by default on all devices but the CPU.
    """
    turned = _Turned(len(x), lengths, x.device) if backward else None
    x = x if turned is None else turned(x)
    fused = x.device.type != "cpu" if fused is None else fused
    run = {"LSTM": _lstm, "GRU": _gru}.get(mode, _rnn)
    before = _states_before(mode, weights, x, h, c) if fused else None
    trace = run(mode, weights, x, h, c, before)
    cells = trace.c if isinstance(trace, LSTMTrace) else trace.h
    if lengths is None:
        last = Ran(trace, trace.h[-1], cells[-1])
    else:
        ends = (lengths.to(x.device) - 1, torch.arange(x.shape[1], device=x.device))
        last = Ran(trace, trace.h[ends], cells[ends])
        valid = torch.arange(len(x), device=x.device)[:, None, None] <= ends[0][:, None]
        for field in trace:
            field.masked_fill_(~valid, 0)  # whatever is there, infinite numbers too
    if turned is None:
        return last
    return last._replace(trace=type(trace)(*map(turned, trace)))


class _Turned:
    """Reverses each sequence within its own length."""

    def __init__(self, T: int, lengths: Tensor | None, device: torch.device):
        self.order = None
        if lengths is not None:
            t, ends = torch.arange(T)[:, None], lengths - 1
            self.order = torch.where(t <= ends, ends - t, t).to(device)

    def __call__(self, x: Tensor) -> Tensor:
        if self.order is None:
            return x.flip(0)
        return x[self.order, torch.arange(x.shape[1], device=x.device)]


def _states_before(mode: str, weights: Weights, x: Tensor, h: Tensor, c: Tensor) -> Tensor:
    """The state that each step begins with, by torch's layer; and the last one."""
    layer = torch_layer(mode, [weights], batch_first=False)
    states, _ = layer(x, (h[None], c[None]) if mode == "LSTM" else h[None])
    return torch.cat((h[None], states))


def _bias(weights: Weights, *names: str) -> Tensor | None:
    found = [weights[name] for name in names if name in weights]
    return torch.stack(found).sum(0) if found else None


def _rnn(
    mode: str, weights: Weights, x: Tensor, h: Tensor, c: Tensor, before: Tensor | None
) -> RNNTrace:
    a = F.linear(x, weights["weight_ih"], _bias(weights, "bias_ih", "bias_hh"))
    R = weights["weight_hh"].T.contiguous()
    if before is not None:
        return RNNTrace(a.add_(before[:-1] @ R), before[1:])
    states = torch.empty_like(a)
    for sums, made in zip(a, states, strict=True):
        sums.addmm_(h, R)
        h = torch.tanh(sums, out=made) if mode == "RNN_TANH" else made.copy_(sums).relu_()
    return RNNTrace(a, states)


def _gru(
    mode: str, weights: Weights, x: Tensor, h: Tensor, c: Tensor, before: Tensor | None
) -> GRUTrace:
    a = F.linear(x, weights["weight_ih"], _bias(weights, "bias_ih"))
    R, bias, m = weights["weight_hh"], _bias(weights, "bias_hh"), h.shape[1]
    both, n = a[..., : 2 * m], a[..., 2 * m :]
    r, z = both.chunk(2, -1)
    if before is not None:
        b = F.linear(before[:-1], R, bias)
        both.add_(b[..., : 2 * m]).sigmoid_()
        n.addcmul_(r, b[..., 2 * m :]).tanh_()
        return GRUTrace(r, z, n, before[1:])
    states, b = torch.empty_like(n), a.new_empty(a.shape[1:])
    of_gates, of_candidate = b[:, : 2 * m], b[:, 2 * m :]
    R, bias = R.T.contiguous(), a.new_zeros(3 * m) if bias is None else bias
    for gate, r_t, z_t, n_t, made in zip(both, r, z, n, states, strict=True):
        torch.addmm(bias, h, R, out=b)
        gate.add_(of_gates).sigmoid_()
        n_t.addcmul_(r_t, of_candidate).tanh_()
        h = torch.lerp(n_t, h, z_t, out=made)
    return GRUTrace(r, z, n, states)


def _lstm(
    mode: str, weights: Weights, x: Tensor, h: Tensor, c: Tensor, before: Tensor | None
) -> LSTMTrace:
    W, R = (_gates_first(weights[name]) for name in ("weight_ih", "weight_hh"))
    bias, P = _bias(weights, "bias_ih", "bias_hh"), weights.get("weight_hr")
    a = F.linear(x, W, None if bias is None else _gates_first(bias))
    R, m = R.T.contiguous(), a.shape[-1] // 4
    (i, f, o, g), sigmoids = a.chunk(4, -1), a[..., : 3 * m]
    if before is not None:
        a.add_(before[:-1] @ R)
        sigmoids.sigmoid_()
        cells = i * g.tanh_()
        for keep, cell in zip(f, cells, strict=True):
            c = cell.addcmul_(keep, c)
        return LSTMTrace(i, f, o, g, cells, before[1:])
    cells, states = torch.empty_like(i), a.new_empty(*x.shape[:2], h.shape[1])
    shown = states if P is None else torch.empty_like(cells)
    parts = zip(a, sigmoids, i, f, o, g, cells, shown, states, strict=True)
    for sums, gates_t, i_t, f_t, o_t, g_t, cell, show, made in parts:
        sums.addmm_(h, R)
        gates_t.sigmoid_()
        c = torch.mul(f_t, c, out=cell).addcmul_(i_t, g_t.tanh_())
        h = torch.tanh(c, out=show).mul_(o_t)
        h = h if P is None else torch.mm(h, P.T, out=made)
    return LSTMTrace(i, f, o, g, cells, states)


def _gates_first(blocks: Tensor) -> Tensor:
    """The blocks i, f, g, o of torch in the order i, f, o, g."""
    i, f, g, o = blocks.chunk(4)
    return torch.cat((i, f, o, g))
