"""Outputs of a network as they come, and what of them counts.

All of an output counts, or its `.logits` where it has such; `output=` says otherwise: a key, an
index, an attribute, or a function of what the network gave. A loss may take what it likes;
derivatives of the output itself need a tensor.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from vademecum.models.inputs import Entangled

__all__ = ["Output", "chosen_output", "differentiable_output"]

Output = str | int | Callable[[Any], Any] | None
"""What counts of what a network gives: a key, an index, an attribute, a function, or None."""


def chosen_output(result: Any, output: Output = None) -> Any:
    """What of a network's result counts: the entry `output`, or `.logits`, or all of it.

    Args:
        result: What the network gave.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Raises:
        ValueError: If there is no such entry.

    Example:
        >>> chosen_output({"loss": 1.0, "scores": torch.ones(2)}, "scores")
        tensor([1., 1.])
    """
    if output is None:
        return result if isinstance(result, Tensor) else getattr(result, "logits", result)
    if callable(output):
        return output(result)
    if isinstance(result, Mapping) and output in result:
        return result[output]
    if isinstance(result, tuple | list) and isinstance(output, int):
        if -len(result) <= output < len(result):
            return result[output]
    elif isinstance(output, str) and hasattr(result, output):
        return getattr(result, output)
    names = list(result) if isinstance(result, Mapping) else getattr(result, "_fields", None)
    has = f"of {names}" if names else f"of what model gives, {type(result).__name__}"
    raise ValueError(f"output must be an entry {has}, got {output!r}")


def differentiable_output(value: Any, n: int | None = None, *, graph: bool = True) -> Tensor:
    """The output of a network if it is a real tensor with a derivative, with `n` rows if given.

    Args:
        value: What the network gave.
        n: The number of rows that it must have.
        graph: Whether autograd must know where it came from.
    """
    if not isinstance(value, Tensor):
        kind = type(value).__name__
        raise ValueError(
            f"model must give a tensor, got {kind}: say which entry counts with output="
        )
    if not value.is_floating_point():
        raise ValueError(f"outputs of model must be floating point, got {value.dtype}")
    if graph and not value.requires_grad:
        raise ValueError(
            "outputs of model must be differentiable, and these are constants"
            + (" in torch.inference_mode()" if torch.is_inference_mode_enabled() else "")
        )
    if n is not None and value.shape[:1] != (n,):
        raise Entangled(
            f"model must give one output for each of {n} examples, got shape {tuple(value.shape)}"
        )
    return value
