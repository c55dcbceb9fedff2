"""Losses and gradients that are no numbers: found before they reach the weights, and named.

A loop that goes on after NaN writes NaN into all its weights and, a while later, into all its
checkpoints. Two numbers tell whether a step is safe, the loss and the norm of the gradient; only
if one of them is not finite is the rest looked through for the parameter and the batch.
"""

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.utils import get_total_norm

from vademecum.errors import UsageError
from vademecum.models import named_tensors
from vademecum.train._order import Part
from vademecum.train._training import Training

__all__ = ["NotFiniteError", "finite_norm", "refuse", "total_norm"]


class NotFiniteError(UsageError):
    """A loss or a gradient that is NaN or infinite; no weight of that player has changed."""


def total_norm(gradients: list[Tensor], order: float = 2.0) -> Tensor:
    """The norm of all gradients together, whole where they are split among processes."""
    if isinstance(gradients[0], DTensor):
        norm: Any = get_total_norm(gradients, order)
        return norm.full_tensor()
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients, order)), order)


def finite_norm(gradients: list[Tensor]) -> float:
    """The norm of gradients whose squares overflow, or infinity or NaN if they are such."""
    largest = total_norm(gradients, math.inf).item()
    if not 0 < largest < math.inf:
        return largest
    return largest * total_norm([g / largest for g in gradients]).item()


def refuse(
    training: Training, player: str, loss: float, batches: Sequence[tuple[Part, Any]]
) -> NoReturn:
    """Say what is not finite: whose loss, or which parameter's gradient, and in which batch.

    Raises:
        NotFiniteError: Always.
    """
    first, last = batches[0][0], batches[-1][0]
    end = last.start + len(last.examples) - 1
    place = f"positions {first.start} to {end} of epoch {first.epoch}"
    odd = next((name for _, batch in batches for name in _odd_inputs(batch)), "")
    also = f", where {odd} is not finite either" if odd else ""
    if not math.isfinite(loss):
        what = f"the loss of {player!r} must be finite, got {loss}"
    else:
        name, value, others = _odd_gradient(training.objective)
        more = f" and {others} more" if others else ""
        paid = f"the loss of {player!r} is {loss:.6g}"
        what = f"the gradient of {name}{more} must be finite, got {value} ({paid})"
    players = list(training.optimizers)
    moved = ", ".join(map(repr, players[: players.index(player)]))
    rest = f", those of {moved} were" if moved else ""
    raise NotFiniteError(
        f"{what} in step {training.step + 1}, for {place}{also}; its weights were not changed{rest}"
    )


def _odd_gradient(objective: nn.Module) -> tuple[str, float, int]:
    """The first parameter whose gradient is not finite, an entry of it, and how many more."""
    found = [
        (name, p.grad)
        for name, p in objective.named_parameters()
        if p.grad is not None and not torch.isfinite(p.grad).all()
    ]
    if not found:
        return "a parameter outside the objective", math.nan, 0
    name, gradient = found[0]
    return name, float(gradient[~torch.isfinite(gradient)][0]), len(found) - 1


def _odd_inputs(batch: object) -> list[str]:
    return [
        name
        for name, leaf in named_tensors(batch, "batch")
        if leaf.is_floating_point() and not torch.isfinite(leaf).all()
    ]
