r"""Every gate, candidate and cell of a recurrent layer over time: what torch's fused kernels hide.

With the input and the state before it a step of an LSTM is

$$i, f, o = \sigma(W x^t + R h^{t-1} + b), \quad g = \tanh(\dots), \quad
c^t = f \odot c^{t-1} + i \odot g, \quad h^t = o \odot \tanh c^t,$$

and torch gives $h^t$ for all steps of the last layer, and $c^t$ for the last step. Here each layer
and direction is run by itself, and what it computes is kept. The model itself does not run: it is
left alone, and nothing is differentiated. What dropout would do in training is left out.

Exact up to rounding. The claims `recurrence.lstm`, `recurrence.gru`, `recurrence.stacked` and
`recurrence.bidirectional` compare with plain Python.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Int64
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from vademecum.models import evaluation, map_tensors, named_tensors, refuse_nan, unwrapped
from vademecum.recurrence._sequences import insist_on_kind, insist_on_sequence
from vademecum.recurrence._torch_cells import insist_on_torchs_own, kind_of
from vademecum.recurrence.elman import ElmanRNN, RNNTrace
from vademecum.recurrence.gated._directions import Ran, run_direction
from vademecum.recurrence.gated._torch_layers import Weights, weights_of
from vademecum.recurrence.gated.gru_cell import CourseGRU, GRUTrace
from vademecum.recurrence.gated.lstm_cell import CourseLSTM, LSTMState, LSTMTrace
from vademecum.results import one_line

__all__ = ["GateTrace", "gates"]

_OURS = (CourseLSTM, CourseGRU, ElmanRNN)


class GateTrace(NamedTuple):
    """What went on inside a recurrent network.

    Example:
        >>> trace = gates(nn.LSTM(2, 3, num_layers=2), torch.zeros(5, 1, 2))
        >>> len(trace.layers), trace.layers[1][0].i.shape
        (2, torch.Size([5, 1, 3]))
    """

    layers: tuple[tuple[RNNTrace | LSTMTrace | GRUTrace, ...], ...]
    """For each layer and each direction, the second of which runs from the end, what was computed:
    tensors laid out as the output is, padded with zeros where sequences were packed."""
    output: Any
    """What the network gives."""
    state: Any
    """The last state, as the network gives it."""
    lengths: Int64[Tensor, " n"] | None
    """How long the sequences are, if they were packed."""

    __repr__ = one_line


@torch.no_grad()
def gates(model: nn.Module, x: Any, state: Any = None) -> GateTrace:
    r"""Every gate, candidate and cell of a recurrent network over time.

    The model is taken in evaluation mode and in its own precision, under autocast too.

    Args:
        model: An `nn.RNN`, `nn.LSTM` or `nn.GRU` of any number of layers and directions, with or
            without projection; a cell of torch; `ElmanRNN`, `CourseLSTM` or `CourseGRU`.
        x: What it is called with: a tensor or, for torch's layers, a `PackedSequence`. Sequences
            for a cell have the shape (n, T, d).
        state: The state before the first step, as the model takes it; zeros by default.

    Returns:
        A `GateTrace`. `layers[l][0]` are the gates of layer $l$, `layers[l][1]` those of its
        backward direction: an `LSTMTrace` with i, f, o, g, c, h; a `GRUTrace` with r, z, n, h; or
        an `RNNTrace` with a, h.

    Raises:
        ValueError: If the model is another one, or its input or state has a wrong shape, holds
            integers or NaN, or lies elsewhere than its weights.

    Example:
        >>> layer = nn.LSTM(2, 3, bias=False)
        >>> layer.weight_ih_l0.data.zero_(), layer.weight_hh_l0.data.zero_()
        (tensor(...), tensor(...))
        >>> ((one,),), *_ = gates(layer, torch.ones(4, 1, 2))
        >>> one.f[:, 0, 0].tolist(), one.c.abs().max().item()  # sigma(0), and nothing is written
        ([0.5, 0.5, 0.5, 0.5], 0.0)
    """
    model = unwrapped(model)
    for name, given in (*named_tensors(x), *named_tensors(state, "state")):
        if given.is_meta:
            raise ValueError(f"{name} must hold numbers, got a tensor on the device meta")
    refuse_nan(x)
    for name, given in named_tensors(state, "state"):
        if given.isnan().any():
            raise ValueError(f"{name} must not hold NaN")
    kind = next((given.device.type for _, given in named_tensors(x)), "cpu")
    with torch.autocast(kind, enabled=False):
        return _traced(model, x, state)


def _traced(model: nn.Module, x: Any, state: Any) -> GateTrace:
    if isinstance(model, _OURS):
        with evaluation(model):
            return _ours(model, x, state)
    if isinstance(model, nn.RNNBase | nn.RNNCellBase):
        insist_on_torchs_own(model)
    if isinstance(model, nn.RNNCellBase):
        return _of_cell(model, x, state)
    if not isinstance(model, nn.RNNBase):
        raise ValueError(
            "model must be a recurrent layer or cell of torch, ElmanRNN, CourseLSTM or CourseGRU,"
            f" got {type(model).__name__}; hand in the layer itself with its own input"
        )
    names = [f"_l{i}{way}" for i in range(model.num_layers) for way in _ways(model)]
    weights = weights_of(model, names)
    packed, first = isinstance(x, PackedSequence), int(model.batch_first)
    _insist_on_input(x.data if packed else x, model.input_size, weights[0], packed=packed)
    alone = not packed and x.ndim == 2
    if alone:
        state = map_tensors(state, lambda t: t.unsqueeze(1))
        x = x.unsqueeze(1 - first)
    found = _of_layers(
        model.mode, weights, x, state, batch_first=bool(first), ways=len(_ways(model))
    )
    if not alone:
        return found
    layers, output = map_tensors((found.layers, found.output), lambda t: t.squeeze(1 - first))
    return GateTrace(layers, output, map_tensors(found.state, lambda t: t.squeeze(1)), None)


def _ways(model: nn.RNNBase) -> tuple[str, ...]:
    return ("", "_reverse") if model.bidirectional else ("",)


def _of_layers(
    mode: str, weights: list[Weights], given: Any, state: Any, *, batch_first: bool, ways: int = 1
) -> GateTrace:
    """The gates of torch's layers, one layer after the other."""
    x, lengths, packed = given, None, None
    if isinstance(given, PackedSequence):
        packed, (x, lengths) = given, pad_packed_sequence(given)
    elif batch_first:
        x = given.transpose(0, 1)
    h, c = _start(mode, weights, state, x.shape[1])
    ran: list[Ran] = []
    for at in range(0, len(weights), ways):
        ran += [
            run_direction(mode, weights[at + i], x, h[at + i], c[at + i], lengths=lengths,
                          backward=i == 1)
            for i in range(ways)
        ]  # fmt: skip
        x = torch.cat([way.trace.h for way in ran[at:]], -1) if ways > 1 else ran[at].trace.h
    traces = [way.trace for way in ran]
    output = x if packed is None else _packed_like(packed, x, lengths)
    if batch_first:
        traces, x = map_tensors((traces, x), lambda t: t.transpose(0, 1))
        output = x if packed is None else output
    layers = tuple(tuple(traces[at : at + ways]) for at in range(0, len(traces), ways))
    last = torch.stack([way.h for way in ran])
    if mode == "LSTM":
        last = (last, torch.stack([way.c for way in ran]))
    return GateTrace(layers, output, last, lengths)


def _packed_like(packed: PackedSequence, y: Tensor, lengths: Any) -> PackedSequence:
    """Padded outputs, packed in the order of the inputs."""
    order = packed.sorted_indices
    if order is not None:
        y, lengths = y[:, order], lengths[order.cpu()]
    data = pack_padded_sequence(y, lengths).data
    return PackedSequence(data, packed.batch_sizes, order, packed.unsorted_indices)


def _of_cell(cell: nn.RNNCellBase, x: Any, state: Any) -> GateTrace:
    """The gates of a cell that reads sequences (n, T, d)."""
    weights = weights_of(cell, [""])
    insist_on_sequence(x, cell.input_size, weights[0]["weight_ih"])
    state = map_tensors(state, lambda t: t.unsqueeze(0))
    found = _of_layers(kind_of(cell), weights, x, state, batch_first=True)
    return found._replace(state=map_tensors(found.state, lambda t: t.squeeze(0)))


def _ours(model: ElmanRNN | CourseLSTM | CourseGRU, x: Any, state: Any) -> GateTrace:
    """The gates of a network of this library, step by step."""
    insist_on_sequence(x, model.d, model.V)
    steps = list(model._steps(x, state))
    trace = type(steps[0])(*(torch.stack(values, 1) for values in zip(*steps, strict=True)))
    last = steps[-1]
    state = LSTMState(last.h, last.c) if isinstance(last, LSTMTrace) else last.h
    return GateTrace(((trace,),), model._read(trace.h), state, None)


def _insist_on_input(x: Any, d: int, weights: Weights, *, packed: bool) -> None:
    axes = (2,) if packed else (2, 3)
    if not isinstance(x, Tensor) or x.ndim not in axes or x.shape[-1] != d or not x.numel():
        kind = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(
            f"x must be a PackedSequence, or a tensor of 2 or 3 axes, not empty and {d} wide,"
            f" got {kind}"
        )
    insist_on_kind("x", x, weights["weight_ih"])


def _start(mode: str, weights: list[Weights], state: Any, n: int) -> tuple[Tensor, Tensor]:
    """The states and the cells before the first step, for each layer and direction."""
    W, P = weights[0]["weight_hh"], weights[0].get("weight_hr")
    m = len(W) // {"LSTM": 4, "GRU": 3}.get(mode, 1) if P is None else P.shape[1]
    shapes = [(len(weights), n, W.shape[1]), (len(weights), n, m)]
    if state is None:
        return W.new_zeros(shapes[0]), W.new_zeros(shapes[1])
    if (mode == "LSTM") != isinstance(state, tuple | list):
        wanted = "the pair (h, c)" if mode == "LSTM" else "a tensor"
        raise ValueError(f"state must be {wanted}, got {type(state).__name__}")
    if mode == "LSTM" and len(state) != 2:
        raise ValueError(f"state must be the pair (h, c), got {len(state)} tensors")
    given = state if mode == "LSTM" else (state, W.new_zeros(shapes[1]))
    for name, tensor, shape in zip("hc", given, shapes, strict=True):
        if not isinstance(tensor, Tensor) or tensor.shape != shape:
            kind = tuple(tensor.shape) if isinstance(tensor, Tensor) else type(tensor).__name__
            raise ValueError(f"{name} of state must have the shape {shape}, got {kind}")
        insist_on_kind("state", tensor, W)
    return given[0], given[1]
