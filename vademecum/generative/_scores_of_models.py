r"""Any network as a score: called with one time for all examples.

From what a network predicts follows the noise, and from that the score $-\epsilon / \sigma_t$,
unless it predicts scores itself. Exact.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.arguments import floats
from vademecum.generative._marginals import Predicts, Process, beside, noise_from

__all__ = ["Score", "called", "examples", "home", "score_from"]

Score = Callable[[Tensor, Tensor], Tensor]


def examples(name: str, x: Any) -> Tensor:
    """Examples (n, *shape) as an argument: real, finite, each with axes and entries."""
    if isinstance(x, Tensor) and (x.ndim < 2 or 0 in x.shape[1:]):
        raise ValueError(f"{name} must be (n, *shape) with entries, got shape {tuple(x.shape)}")
    if isinstance(x, Tensor) and x.is_complex():
        raise ValueError(f"{name} must be real, got {x.dtype}")
    return floats(name, x, empty=True)


def called(model: Any, x: Tensor, t: Tensor | None, context: Any) -> Tensor:
    """What a network gives, which must have the shape of what it was given."""
    inputs = (x,) if t is None else (x, t) if context is None else (x, t, context)
    found = model(*inputs)
    if not isinstance(found, Tensor) or found.shape != x.shape:
        given = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(f"model must give a tensor of shape {tuple(x.shape)}, got {given}")
    return found


def score_from(model: Any, process: Process, predicts: Predicts, context: Any = None) -> Score:
    """The score that a network stands for, as a function of examples and one time for all."""
    if not callable(getattr(process, "marginal", None)):
        raise ValueError(f"process must have marginal(t), got {type(process).__name__}")

    def score(x: Tensor, t: Tensor) -> Tensor:
        time = t.to(x.dtype) if t.is_floating_point() else t  # steps of a schedule are integers
        found = called(model, x, time.expand(len(x)), context)
        if predicts == "score":
            return found
        marginal = process.marginal(t)
        return -noise_from(predicts, found, x, marginal) / beside(marginal.std, x)

    return score


def home(model: Any, dtype: torch.dtype | None, device: Any) -> tuple[torch.dtype, torch.device]:
    """The dtype and the device to draw in: those given, or those of the network's first tensor."""
    tensors = [*model.parameters(), *model.buffers()] if isinstance(model, nn.Module) else []
    first = next((p for p in tensors if p.is_floating_point()), torch.empty(0))
    return dtype or first.dtype, torch.device(device) if device is not None else first.device
