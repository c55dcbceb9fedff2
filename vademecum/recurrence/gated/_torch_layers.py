"""Weights of torch's recurrent layers, and layers of torch made of weights.

The weights of a direction of a layer are called `weight_ih` and `weight_hh` (of inputs and of
states), and where they exist `bias_ih`, `bias_hh` and `weight_hr`, which projects.
"""

from typing import Any

import torch
from torch import Tensor, nn

from vademecum.models import evaluation
from vademecum.recurrence._torch_cells import NAMES

__all__ = ["Weights", "simple_weights", "torch_layer", "weights_of"]

Weights = dict[str, Tensor]
_KINDS: dict[str, tuple[Any, int, dict[str, Any]]] = {
    "RNN_TANH": (nn.RNN, 1, {"nonlinearity": "tanh"}),
    "RNN_RELU": (nn.RNN, 1, {"nonlinearity": "relu"}),
    "LSTM": (nn.LSTM, 4, {}),
    "GRU": (nn.GRU, 3, {}),
}


def weights_of(model: nn.Module, ends: list[str]) -> list[Weights]:
    """Those of a layer or cell whose names end so; where it computes them, nothing moves."""
    with evaluation(model):
        found = [{name: getattr(model, name + end, None) for name in NAMES} for end in ends]
    return [{k: w.detach() for k, w in each.items() if w is not None} for each in found]


def simple_weights(layer: Any, kind: type[nn.RNNBase], cell: type[nn.RNNCellBase]) -> Weights:
    """Those of a cell, or of a layer that is as simple as one.

    Raises:
        ValueError: If it is neither.
    """
    if not isinstance(layer, kind | cell):
        names = f"nn.{kind.__name__} or an nn.{cell.__name__}"
        raise ValueError(f"layer must be an {names}, got {type(layer).__name__}")
    many = isinstance(layer, nn.RNNBase)
    if many and (layer.num_layers > 1 or layer.bidirectional or layer.proj_size):
        raise ValueError(
            "layer must have one layer, one direction and no projection, got"
            f" num_layers={layer.num_layers}, bidirectional={layer.bidirectional},"
            f" proj_size={layer.proj_size}"
        )
    return weights_of(layer, ["_l0" if many else ""])[0]


@torch.no_grad()
def torch_layer(mode: str, ways: list[Weights], *, batch_first: bool) -> Any:
    """A layer with copies of these weights, which draws no random numbers.

    Args:
        mode: Which kind it is, as torch calls it.
        ways: The weights of its one or two directions.
        batch_first: How its inputs are laid out.
    """
    kind, blocks, options = _KINDS[mode]
    W, R, projection = (ways[0].get(name) for name in ("weight_ih", "weight_hh", "weight_hr"))
    assert W is not None
    assert R is not None
    if projection is not None:
        options = {"proj_size": len(projection)}
    sizes = W.shape[1], len(R) // blocks
    layer = kind(
        *sizes, bias="bias_ih" in ways[0], batch_first=batch_first, dtype=W.dtype,
        bidirectional=len(ways) == 2, device="meta", **options,
    ).to_empty(device=W.device)  # fmt: skip
    for weights, way in zip(ways, ("", "_reverse"), strict=False):
        for name, weight in weights.items():
            getattr(layer, f"{name}_l0{way}").copy_(weight)
    return layer
