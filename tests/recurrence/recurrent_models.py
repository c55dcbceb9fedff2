"""Recurrent models of many kinds for tests, and torch's cells as an oracle for their states."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

KINDS: dict[str, Callable[..., nn.RNNBase]] = {
    "tanh": nn.RNN,
    "relu": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k),
    "lstm": nn.LSTM,
    "projected": lambda *a, **k: nn.LSTM(*a, proj_size=2, **k),
    "gru": nn.GRU,
}
SHAPES = {
    "one layer": {},
    "stacked": {"num_layers": 3, "dropout": 0.5},
    "both ways": {"bidirectional": True},
    "all": {"num_layers": 2, "bidirectional": True, "dropout": 0.5},
    "without bias": {"bias": False},
}


class TupleState(nn.Module):
    """A state of two tensors in two orders of axes, beside a counter and a mask."""

    def __init__(self):
        super().__init__()
        self.A, self.B = nn.Parameter(torch.randn(4, 4) / 3), nn.Parameter(torch.randn(3, 4))
        self.W = nn.Parameter(torch.randn(4, 2))

    def step(self, x: Tensor, state: Any) -> Any:
        """Odd steps shrink."""
        if state is None:
            state = (x.new_zeros(4, len(x)), {"slow": x.new_zeros(len(x), 4), "count": 0})
        fast, rest = state
        slow = 0.9 * rest["slow"] + 0.1 * (x @ self.B)
        scale = 0.5 if rest["count"] % 2 else 1.0
        fast = scale * torch.tanh((fast.T @ self.A + x @ self.B + slow).T)
        return fast.T @ self.W, (fast, {"slow": slow, "count": rest["count"] + 1})


class ComplexStack(nn.Module):
    """Two layers of complex diagonal states in one tensor, as linear recurrent units have them."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.polar(torch.rand(2, 5) * 0.9, 6 * torch.rand(2, 5)))
        self.B, self.C = nn.Parameter(torch.randn(3, 5)), nn.Parameter(torch.randn(5, 3))

    def step(self, x: Tensor, state: Any) -> Any:
        """The state of each layer is read before it is stacked."""
        if state is None:
            state = torch.zeros(2, len(x), 5, dtype=self.a.dtype)
        states = []
        for a, h in zip(self.a, state, strict=True):
            h = a * h + x @ self.B
            x = torch.tanh(h.real @ self.C) + x
            states.append(h)
        return x, torch.stack(states)


class InPlace(nn.Module):
    """A state that is written into."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(0.7))

    def step(self, x: Tensor, state: Any) -> Any:
        """A moving average."""
        state = x.clone() if state is None else state
        state.mul_(self.w).add_(x)
        return state.sin(), state


class Tokens(nn.Module):
    """Integers in, scores out."""

    def __init__(self):
        super().__init__()
        self.embed, self.cell, self.out = nn.Embedding(7, 3), nn.GRUCell(3, 4), nn.Linear(4, 7)

    def step(self, x: Tensor, state: Any) -> Any:
        """A cell between two tables."""
        state = self.cell(self.embed(x), state)
        return self.out(state), state


STEPPING = {"tuple": TupleState, "complex": ComplexStack, "in place": InPlace}
CELLS = {"tanh": nn.RNNCell, "lstm": nn.LSTMCell, "gru": nn.GRUCell}


def torch_step(model: nn.RNNBase, place: str, x: Tensor, h: Tensor, c: Tensor) -> Any:
    """One step of a layer by torch's own cells."""
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    w: list[Any] = [getattr(model, f"{name}_{place}", None) for name in names]
    if model.mode == "LSTM":
        P = getattr(model, f"weight_hr_{place}", None)
        if P is None:
            return torch.lstm_cell(x, (h, c), *w)
        zero = torch.zeros_like(w[1][:, 0])  # torch's cell knows no projections
        i, f, g, o = (x @ w[0].T + h @ w[1].T + (zero if w[2] is None else w[2] + w[3])).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return (o.sigmoid() * c.tanh()) @ P.T, c
    cells = {"GRU": torch.gru_cell, "RNN_TANH": torch.rnn_tanh_cell}
    return cells.get(model.mode, torch.rnn_relu_cell)(x, h, *w), c


def unrolled(model: nn.RNNBase, x: Tensor, cut: int | None = None) -> Any:
    """Outputs and states of a layer for x of shape (T, n, d), by torch's cells, with one graph."""
    states: dict[str, list[Tensor]] = {}
    T, n, _ = x.shape
    seen = list(x)
    for layer in range(model.num_layers):
        columns = []
        for tail in ["", "_reverse"][: 1 + model.bidirectional]:
            place = f"l{layer}{tail}"
            h = x.new_zeros(n, model.proj_size or model.hidden_size)
            c = x.new_zeros(n, model.hidden_size)
            hs: list[Any] = [None] * T
            cs: list[Any] = [None] * T
            for i, t in enumerate(range(T - 1, -1, -1) if tail else range(T)):
                if cut is not None and i % cut == 0:
                    h, c = h.detach(), c.detach()
                h, c = hs[t], cs[t] = torch_step(model, place, seen[t], h, c)
            states[f"h_{place}"] = hs
            if model.mode == "LSTM":
                states[f"c_{place}"] = cs
            columns.append(hs)
        seen = [torch.cat(h, -1) for h in zip(*columns, strict=True)]
    return torch.stack(seen), states
