r"""Any recurrent network as a map $(x_t, z_{t-1}) \mapsto (y_t, z_t)$ that is applied at each step.

A *chain* is such a map with the state before its first step. A network is a sequence of layers of
chains, of which a layer has two if it is read in both directions: their outputs are joined, and are
the inputs of the layer above. In one direction a stack of layers is one chain, whose state is that
of all layers; in two directions it is not, since a state that comes from the end and one that comes
from the beginning belong to no common time.

| network | inputs | state |
|---|---|---|
| `nn.RNN`, `nn.GRU`, `nn.LSTM` | as torch's layer takes them | `h_l0`, `c_l0`, `h_l1`, ... |
| `nn.RNNCell`, `nn.GRUCell`, `nn.LSTMCell` | (n, T, d) | `h`, `c` |
| any module with `step(x_t, state)` | (n, T, ...) | what it returns, None at first |
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.arguments import floats
from vademecum.models import described, map_tensors, named_tensors
from vademecum.recurrence._torch_cells import (
    cell_step,
    insist_on_torchs_own,
    layer_step,
    torch_start,
)

__all__ = ["Chain", "Network", "State", "is_smooth", "network_of", "new_leaves", "smooth_leaves"]

State = Any
"""What a step hands to the next one: None before the first, or tensors in any structure."""
_CELLS = (nn.RNNCell, nn.LSTMCell, nn.GRUCell)


class Chain(NamedTuple):
    """One map that is applied at every step."""

    step: Callable[[Tensor, State], tuple[Tensor, State]]
    """Inputs (n, ...) and the state to outputs (n, ...) and the next state."""
    start: Callable[[Tensor], State]
    """The state before the first step, for inputs (n, T, ...)."""
    places: tuple[str, ...] = ()
    """Which of torch's layers it runs through, such as "l0" and "l1"."""
    reverse: bool = False
    """Whether it begins with the last input."""

    def times(self, T: int) -> range:
        """The places of the inputs in the order in which it reads them."""
        return range(T - 1, -1, -1) if self.reverse else range(T)


class Network(NamedTuple):
    """A recurrent network as chains, and its inputs in their order."""

    layers: list[list[Chain]]
    """The layers, of one chain or of two that run against each other."""
    x: Tensor
    """The inputs, (n, T, ...)."""
    as_given: Callable[[Tensor], Tensor]
    """From (n, T, ...) to the order of axes in which the model takes inputs and gives outputs."""

    @property
    def one_way(self) -> bool:
        """Whether there is one state at each time."""
        return len(self.layers) == len(self.layers[0]) == 1


def network_of(model: nn.Module, x: Any) -> Network:
    """A recurrent network as chains.

    Raises:
        ValueError: If it is none, or the inputs do not fit it.
    """
    if isinstance(model, (nn.RNNBase, *_CELLS)):
        insist_on_torchs_own(model)
    if isinstance(model, nn.RNNBase):
        return _torch_layers(model, x)
    if isinstance(model, _CELLS):
        _insist_on_inputs(model, x, 3, "(n, T, d)", model.input_size)
        chain = Chain(partial(cell_step, model), partial(torch_start, model, [""]))
    elif callable(step := getattr(model, "step", None)):
        _insist_on_inputs(model, x, None, "(n, T, ...)")
        chain = Chain(lambda x_t, state: _pair(step(x_t, state)), lambda x: None)
    else:
        raise ValueError(
            "model must be a recurrent layer or cell of torch, or have a method step(x_t, state),"
            f" got {type(model).__name__}"
        )
    return Network([[chain]], x, lambda y: y)


def _torch_layers(model: nn.RNNBase, x: Any) -> Network:
    ndim = x.ndim if isinstance(x, Tensor) and x.ndim == 2 else 3
    axes = "(T, d)" if ndim == 2 else "(n, T, d)" if model.batch_first else "(T, n, d)"
    _insist_on_inputs(model, x, ndim, axes, model.input_size)
    if ndim == 2:
        x, as_given = x[None], partial(torch.squeeze, dim=0)
    elif model.batch_first:
        as_given = partial(torch.clone)
    else:
        x, as_given = x.transpose(0, 1), partial(torch.transpose, dim0=0, dim1=1)
    names = [f"l{i}" for i in range(model.num_layers)]
    if not model.bidirectional:
        return Network([[_torch_chain(model, names)]], x, as_given)
    layers = [
        [_torch_chain(model, [name]), _torch_chain(model, [f"{name}_reverse"], reverse=True)]
        for name in names
    ]
    return Network(layers, x, as_given)


def _torch_chain(model: nn.RNNBase, places: list[str], *, reverse: bool = False) -> Chain:
    step, start = partial(layer_step, model, places), partial(torch_start, model, places)
    return Chain(step, start, tuple(places), reverse)


def _insist_on_inputs(
    model: nn.Module, x: Any, ndim: int | None, axes: str, width: int | None = None
) -> None:
    if not isinstance(x, Tensor):
        raise ValueError(f"x must be a tensor of shape {axes}, got {type(x).__name__}")
    if x.ndim < 2 or (ndim is not None and x.ndim != ndim) or not x.numel():
        raise ValueError(f"x must have the shape {axes}, T >= 1, got {tuple(x.shape)}")
    for name, p in model.named_parameters():
        if p.device != x.device:
            raise ValueError(f"x must be on {p.device} as model is, got {x.device}")
        if p.is_floating_point() and x.is_floating_point() and p.dtype != x.dtype:
            raise ValueError(f"x must be {p.dtype} as {name} of model is, got {x.dtype}")
    if is_smooth(x) or width is not None:
        floats("x", x, width=width)


def _pair(result: Any) -> tuple[Tensor, State]:
    """What a module's own step gave, if it is an output and a state."""
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[0], Tensor):
        kinds = [described(r) for r in result] if isinstance(result, tuple) else described(result)
        raise ValueError(f"model.step must give (output, state), got {kinds}")
    return result[0], result[1]


def is_smooth(t: Tensor) -> bool:
    """Whether a tensor has derivatives: not so counters and masks."""
    return t.is_floating_point() or t.is_complex()


def smooth_leaves(state: State) -> dict[str, Tensor]:
    """The tensors of a state that have derivatives, by name."""
    named = state.items() if isinstance(state, Mapping) else [("state", state)]
    leaves = (leaf for name, part in named for leaf in named_tensors(part, str(name)))
    return {name: t for name, t in leaves if is_smooth(t)}


def new_leaves(state: State) -> State:
    """The state without its past, as leaves of a graph to come."""
    return map_tensors(state, lambda t: t.detach().requires_grad_() if is_smooth(t) else t)
