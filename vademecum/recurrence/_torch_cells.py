r"""One step of torch's recurrent layers, by their equations.

With the parts $a = W_{ih} x + b_{ih}$ and $r = W_{hh} h + b_{hh}$ of the pre-activations,

- RNN: $h' = \phi(a + r)$, $\phi$ = tanh or ReLU;
- LSTM: $(i, f, g, o) = a + r$, $c' = \sigma(f)\, c + \sigma(i) \tanh(g)$,
  $h' = P\, \sigma(o) \tanh(c')$ with a projection $P$ where there is one;
- GRU: $u = \sigma(a_u + r_u)$, $s = \sigma(a_s + r_s)$, $n = \tanh(a_n + s\, r_n)$,
  $h' = (1 - u)\, n + u\, h$.

These are torch's own numbers up to rounding, in operations that can be differentiated any number of
times and mapped; tests compare both.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = [
    "NAMES", "Cells", "cell_step", "insist_on_torchs_own", "kind_of", "layer_step", "torch_start",
]  # fmt: skip

Cells = dict[str, Tensor]
"""The states of torch's layers by name: h_l0, for an LSTM also c_l0, and so on."""
NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
"""The weights of inputs and of states, their constants, and a projection."""
_OWN = (nn.RNN, nn.LSTM, nn.GRU, nn.RNNCell, nn.LSTMCell, nn.GRUCell)


def insist_on_torchs_own(model: nn.Module) -> None:
    """Refuse a layer or cell that does not run by the equations above."""
    if not any(isinstance(model, own) and type(model).forward is own.forward for own in _OWN):
        raise ValueError(
            "model must run as torch's layers and cells do, got"
            f" {type(model).__name__} with a forward of its own"
        )


def cell_step(cell: nn.RNNCellBase, x: Tensor, state: Cells) -> tuple[Tensor, Cells]:
    """A step of `nn.RNNCell`, `nn.LSTMCell` or `nn.GRUCell`."""
    a = F.linear(x, cell.weight_ih, cell.bias_ih)
    r = F.linear(state["h"], cell.weight_hh, cell.bias_hh)
    c = state.get("c")
    h, c = _update(kind_of(cell), a, r, state["h"], c, None)
    return h, {"h": h} if c is None else {"h": h, "c": c}


def layer_step(
    model: nn.RNNBase, places: list[str], x: Tensor, state: Cells
) -> tuple[Tensor, Cells]:
    """A step of the layers at these places ("l0", "l1_reverse"), each above the one before."""
    after: Cells = {}
    for place in places:
        weights = [getattr(model, f"{name}_{place}", None) for name in NAMES]
        W_x, W_h, b_x, b_h, P = weights
        assert isinstance(W_x, Tensor)
        assert isinstance(W_h, Tensor)
        h, c = state[f"h_{place}"], state.get(f"c_{place}")
        a, r = F.linear(x, W_x, b_x), F.linear(h, W_h, b_h)
        x, c = _update(kind_of(model), a, r, h, c, P)
        after[f"h_{place}"] = x
        if c is not None:
            after[f"c_{place}"] = c
    return x, after


def torch_start(model: Any, places: list[str], x: Tensor) -> Cells:
    """The states before the first step: zeros, for inputs (n, T, d)."""
    like: dict[str, Any] = {"dtype": x.dtype, "device": x.device}
    m, found = model.hidden_size, Cells()
    for place in places:
        tail = f"_{place}" if place else ""
        found[f"h{tail}"] = torch.zeros(len(x), getattr(model, "proj_size", 0) or m, **like)
        if kind_of(model) == "LSTM":
            found[f"c{tail}"] = torch.zeros(len(x), m, **like)
    return found


def kind_of(model: Any) -> str:
    """RNN_TANH, RNN_RELU, LSTM or GRU, of a layer or a cell."""
    if isinstance(model, nn.RNNBase):
        return model.mode
    if isinstance(model, nn.RNNCell):
        return f"RNN_{model.nonlinearity.upper()}"
    return "LSTM" if isinstance(model, nn.LSTMCell) else "GRU"


_UNITS: dict[str, Callable[[Tensor], Tensor]] = {"RNN_TANH": torch.tanh, "RNN_RELU": torch.relu}


def _update(
    kind: str, a: Tensor, r: Tensor, h: Tensor, c: Tensor | None, P: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    if kind in _UNITS:
        return _UNITS[kind](a + r), None
    if kind == "GRU":
        (a_s, a_u, a_n), (r_s, r_u, r_n) = a.chunk(3, -1), r.chunk(3, -1)
        u, s = torch.sigmoid(a_u + r_u), torch.sigmoid(a_s + r_s)
        return (1 - u) * torch.tanh(a_n + s * r_n) + u * h, None
    assert c is not None
    i, f, g, o = (a + r).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return (h if P is None else F.linear(h, P)), c
