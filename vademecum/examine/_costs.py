"""What a network takes: multiply-adds of a pass, and bytes that the graph of one holds."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.models import (
    SlowPathWarning,
    call_arguments,
    chosen_output,
    evaluation,
    map_tensors,
    named_tensors,
)

__all__ = ["called", "free_memory", "graph_bytes", "multiply_adds"]


def multiply_adds(model: nn.Module, x: Any) -> int:
    """The multiply-adds of a forward pass."""
    from vademecum.convolution import shape_trace

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowPathWarning)  # of one pass, which anatomy tells of
        return shape_trace(model, x).multiply_adds


def graph_bytes(network: nn.Module, x: Any) -> int:
    """The bytes that the graph of a forward pass keeps for a backward pass, parameters aside."""
    own = {p.untyped_storage().data_ptr() for p in network.parameters()}
    kept: dict[int, int] = {}

    def note(t: Tensor) -> Tensor:
        if t.layout == torch.strided:
            storage = t.untyped_storage()
            if storage.data_ptr() not in own:
                kept[storage.data_ptr()] = storage.nbytes()
        return t

    hooks = torch.autograd.graph.saved_tensors_hooks(note, lambda t: t)
    with torch.enable_grad(), evaluation(network), hooks:
        z = called(network, map_tensors(x, Tensor.clone))
    return max(sum(kept.values()), sum(t.nbytes for _, t in named_tensors((x, z))), 1)


def free_memory(device: torch.device) -> int:
    """The bytes that are free on a device; 2 GiB where nobody says."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return 2**31


def called(network: Callable[..., Any], x: Any) -> Any:
    """What counts of what the network gives for inputs of any structure."""
    args, kwargs = call_arguments(x)
    return chosen_output(network(*args, **kwargs))
