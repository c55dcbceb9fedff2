r"""One player's turn in a step: gradients of micro-batches add up, then its optimiser steps.

It steps along

$$g = \frac{N}{\sum_i n_i} \sum_i \nabla s_i,$$

for the shares $s_i$ and counts $n_i$ of all micro-batches and processes (see `_losses`), but only
if the loss and the norm of $g$ are finite: they are looked at once, before any weight changes.
Parameters that are frozen, for good or for a while, are no part of $g$ and of its norm; a player
all of whose parameters are frozen rests.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.nn.utils import clip_grads_with_norm_
from torch.optim import Optimizer

from vademecum.arguments import number
from vademecum.train._guard import finite_norm, refuse, total_norm
from vademecum.train._losses import share
from vademecum.train._order import Part
from vademecum.train._ranks import Ranks
from vademecum.train._sharing import Sharing
from vademecum.train._training import Training

__all__ = ["Means", "MicroBatch", "Turn"]

MicroBatch = tuple[Part, Any]
_UNSCALED = GradScaler("cpu", enabled=False)


@dataclass
class Means:
    """What steps are made with.

    Attributes:
        losses: The objective's losses of a batch, perhaps compiled.
        casting: Makes contexts in which they are computed.
        clip: The largest norm of a gradient, or None.
        ranks: The processes.
        sharing: How they share weights and gradients.
    """

    losses: Callable[[Any], Any]
    casting: Callable[[], AbstractContextManager[Any]]
    clip: float | None
    ranks: Ranks
    sharing: Sharing

    def __post_init__(self) -> None:
        if self.clip is not None:
            number("clip", self.clip, above=0)

    def paid(self, ask: Callable[[], Any]) -> Any:
        """What a function says of losses, in this precision and with all weights at hand."""
        with self.casting():
            return self.sharing.inside(ask)


class Turn:
    """A player's turn."""

    def __init__(self, player: str, training: Training, means: Means):
        self.player, self.training, self.means = player, training, means
        self.optimizer = training.optimizers[player]
        self.optimizer.zero_grad()
        self.free = _free(self.optimizer)
        self.value: Tensor | None = None
        self.count: Any = 0

    def add(self, part: Part, loss: Any, *, shared: bool = False) -> None:
        """Add the gradient of a micro-batch's loss, whose graph others may share."""
        value, count = share(self.player, loss, part)
        if self.free:
            self._differentiate(value, last=part.last, shared=shared)
        value = value.detach()
        self.value = value if self.value is None else self.value + value
        self.count += count

    def end(self, batches: Sequence[MicroBatch]) -> dict[str, float]:
        """Step along the gradient of all that was added, if it is finite."""
        scaler = self.training.scaler if self.free else _UNSCALED
        scaler.unscale_(self.optimizer)
        gradients = [p.grad for p in self.free if p.grad is not None]
        norm, loss, size = self._measured(gradients, batches[0][0].whole)
        rate = float(self.optimizer.param_groups[0]["lr"])
        safe = math.isfinite(loss) and math.isfinite(size)
        if not safe and not self._only_scaled_too_much(loss):
            refuse(self.training, self.player, loss, batches)
        if self.means.clip is not None and safe:
            clip_grads_with_norm_(self.free, self.means.clip, norm)
        scaler.step(self.optimizer)
        if safe:  # else the scaler has left it out
            self.training.schedules[self.player].step()
        if after := getattr(type(self.training.objective), "after_step", None):
            after(self.training.objective, self.player)
        return {"loss": loss, "norm": size, "rate": rate}

    def _differentiate(self, value: Tensor, *, last: bool, shared: bool) -> None:
        if not value.requires_grad:
            raise ValueError(f"the loss of {self.player!r} must depend on its parameters")
        size, sharing = self.means.ranks.size, self.means.sharing
        total = value if size == 1 else value * size  # for processes average their gradients
        watched = sharing.watch(self.player, self.free, total, last=last)
        scaled: Any = self.training.scaler.scale(watched)
        if sharing.split or (self.training.alone and not _waiting(self.optimizer)):
            scaled.backward()
        else:  # others' parameters are none of this player's business
            scaled.backward(inputs=self.free, retain_graph=shared)

    def _measured(self, gradients: list[Tensor], whole: int) -> tuple[Tensor, float, float]:
        """Bring gradients to their mean; their norm, the loss, and the norm as a number."""
        resting = not self.free and (len(self.training.optimizers) > 1 or _waiting(self.optimizer))
        if not gradients and not resting:
            raise ValueError(f"the loss of {self.player!r} must depend on its parameters")
        value, count = self.means.ranks.total(self.value, self.count)
        if isinstance(count, Tensor) or count != whole:
            mean = whole / count if isinstance(count, Tensor) or count else math.nan
            value = value * mean
            for gradient in gradients:
                gradient.mul_(mean)
        norm = total_norm(gradients) if gradients else torch.zeros(())
        loss, size = value.item(), norm.item()
        if math.isinf(size):
            size = finite_norm(gradients)
            norm = torch.full_like(norm, size, dtype=torch.float64)
        return norm, loss, size

    def _only_scaled_too_much(self, loss: float) -> bool:
        """Whether a gradient in float16 has overflown, as it may now and then."""
        scaler = self.training.scaler
        return math.isfinite(loss) and scaler.is_enabled() and scaler.get_scale() > 1


def _waiting(optimizer: Optimizer) -> bool:
    """Whether some of its parameters are frozen for a while."""
    return any(group.get("frozen_for") for group in optimizer.param_groups)


def _free(optimizer: Optimizer) -> list[Tensor]:
    """The parameters that may move in this step."""
    groups = [group for group in optimizer.param_groups if not group.get("frozen_for")]
    return [p for group in groups for p in group["params"] if p.requires_grad]
