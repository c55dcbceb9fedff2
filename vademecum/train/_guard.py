"""Losses and gradients that are no numbers: found before they reach the weights, and named.

A loop that goes on after NaN writes NaN into all its weights and, a while later, into all its
checkpoints. Two numbers tell whether a step is safe, the loss and the norm of the gradient; only
if one of them is not finite is the rest looked through for the parameter and the batch.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.utils import get_total_norm

from vademecum.errors import UsageError
from vademecum.models import named_tensors
from vademecum.train._order import Part
from vademecum.train._training import Training

__all__ = ["NotFiniteError", "each_norm", "norm_of", "refuse"]


class NotFiniteError(UsageError):
    """A loss or a gradient that is NaN or infinite; no weight of that player has changed."""


def each_norm(gradients: list[Tensor]) -> Tensor:
    """The norm of each gradient, in float64, where squares of narrower numbers do not overflow."""
    return torch.stack(torch._foreach_norm(gradients, 2.0, dtype=torch.float64))


def _total_norm(gradients: list[Tensor], order: float = 2.0) -> Tensor:
    """The norm of all gradients together, whole where they are split among processes."""
    if isinstance(gradients[0], DTensor):
        norm: Any = get_total_norm(gradients, order)
        return norm.full_tensor()
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients, order)), order)


def norm_of(gradients: list[Tensor]) -> float:
    """The norm of all gradients together as a number; infinity or NaN only if they are such."""
    if not gradients:
        return 0.0
    if gradients[0].is_cpu and not isinstance(gradients[0], DTensor):  # numbers are at hand
        norm = math.hypot(*[norm.item() for norm in torch._foreach_norm(gradients)])
    else:
        norm = _total_norm(gradients).item()
    return _finite_norm(gradients) if math.isinf(norm) else norm


def _finite_norm(gradients: list[Tensor]) -> float:
    """The norm of gradients whose squares overflow, or infinity or NaN if they are such."""
    largest = _total_norm(gradients, math.inf).item()
    if not 0 < largest < math.inf:
        return largest
    return largest * _total_norm([g / largest for g in gradients]).item()


def refuse(
    training: Training,
    player: str,
    loss: float,
    batches: Sequence[tuple[Part, Any]],
    *,
    step: int,
    norms: Mapping[Tensor, float] | None = None,
) -> NoReturn:
    """Say what is not finite: whose loss, or which parameter's gradient, and in which batch.

    Args:
        training: The run.
        player: Whose turn it was.
        loss: Its loss.
        batches: The micro-batches of the step.
        step: The number of the step, from 1.
        norms: The norms of gradients that are gone; otherwise they are looked through.

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
        name, value, others = _odd_gradient(training.objective, norms)
        more = f" and {others} more" if others else ""
        paid = f"the loss of {player!r} is {loss:.6g}"
        what = f"the gradient of {name}{more} must be finite, got {value} ({paid})"
    players = list(training.optimizers)
    moved = ", ".join(map(repr, players[: players.index(player)]))
    rest = f", those of {moved} were" if moved else ""
    raise NotFiniteError(
        f"{what} in step {step}, for {place}{also}; its weights were not changed{rest}"
    )


def _odd_gradient(
    objective: nn.Module, norms: Mapping[Tensor, float] | None
) -> tuple[str, float, int]:
    """The first parameter whose gradient is not finite, an entry of it, and how many more."""
    found = []
    for name, p in objective.named_parameters():
        if norms is None and p.grad is not None:
            value = next(iter(p.grad[~torch.isfinite(p.grad)].tolist()), 0.0)
        else:
            value = (norms or {}).get(p, 0.0)
        if not math.isfinite(value):
            found.append((name, value))
    if not found:
        return "a parameter outside the objective", math.nan, 0
    return *found[0], len(found) - 1


def _odd_inputs(batch: object) -> list[str]:
    return [name for name, leaf in named_tensors(batch, "batch") if not torch.isfinite(leaf).all()]
