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
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from vademecum.arguments import number
from vademecum.train._guard import each_norm, norm_of, refuse
from vademecum.train._late import Late
from vademecum.train._losses import share
from vademecum.train._order import Part
from vademecum.train._ranks import Ranks
from vademecum.train._sharing import Sharing
from vademecum.train._training import Training

__all__ = ["Means", "MicroBatch", "Turn"]

MicroBatch = tuple[Part, Any]
_UNSCALED = GradScaler("cpu", enabled=False)
_TINY = 1e-6  # is added to a norm that gradients are divided by, as in torch's clip_grad_norm_


@dataclass
class Means:
    """What steps are made with.

    Attributes:
        losses: The objective's losses of a batch, perhaps compiled.
        casting: Makes contexts in which they are computed.
        clip: The largest norm of a gradient, or None.
        ranks: The processes.
        sharing: How they share weights and gradients.
        late: What the last step has found, where a GPU may still be computing it.
    """

    losses: Callable[[Any], Any]
    casting: Callable[[], AbstractContextManager[Any]]
    clip: float | None
    ranks: Ranks
    sharing: Sharing
    late: Late = field(default_factory=Late)

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
        self.means.late.settle()  # or a step in vain might be followed by another
        rate = float(self.optimizer.param_groups[0]["lr"])
        loss, norm = self._step_late(batches) if self._waits else self._step(batches)
        if after := getattr(type(self.training.objective), "after_step", None):
            after(self.training.objective, self.player)
        return {"loss": loss, "norm": norm, "rate": rate}

    @property
    def _waits(self) -> bool:
        return self.training.waits and any(p.grad is not None for p in self.free)

    def _step(self, batches: Sequence[MicroBatch]) -> tuple[float, float]:
        """Look at loss and norm, then step."""
        scaler = self.training.scaler if self.free else _UNSCALED
        scaler.unscale_(self.optimizer)
        gradients = [p.grad for p in self.free if p.grad is not None]
        value = self._mean(gradients, batches[0][0].whole)
        norm, loss = norm_of(gradients), value.item()  # in this order a GPU is waited for once
        safe = math.isfinite(loss) and math.isfinite(norm)
        if not safe and not self._only_scaled_too_much(loss):
            refuse(self.training, self.player, loss, batches, step=self.training.step + 1)
        if self.means.clip is not None and safe and norm + _TINY > self.means.clip:
            torch._foreach_mul_(gradients, self.means.clip / (norm + _TINY))
        scaler.step(self.optimizer)
        if safe:  # else the scaler has left it out
            self.training.schedules[self.player].step()
        return loss, norm

    def _step_late(self, batches: Sequence[MicroBatch]) -> tuple[float, float]:
        """Step behind a flag on the device; loss and norm are not known yet."""
        moving = [p for p in self.free if p.grad is not None]
        gradients = [p.grad for p in moving if p.grad is not None]
        loss, norms = self._mean(gradients, batches[0][0].whole), each_norm(gradients)
        norm, step = torch.linalg.vector_norm(norms), self.training.step + 1

        def explain(loss: float) -> None:
            each = dict(zip(moving, norms.tolist(), strict=True))
            refuse(self.training, self.player, loss, batches, step=step, norms=each)

        if self.means.clip is not None:
            factor = (self.means.clip / (norm + _TINY)).clamp(max=1.0)
            torch._foreach_mul_(gradients, factor.to(torch.float32))
        self.means.late.step(self.optimizer, loss, norm, explain)
        self.training.schedules[self.player].step()
        return math.nan, math.nan

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

    def _mean(self, gradients: list[Tensor], whole: int) -> Tensor:
        """Bring gradients to their mean over all terms of the step, and give that of the loss."""
        resting = not self.free and (len(self.training.optimizers) > 1 or _waiting(self.optimizer))
        if not gradients and not resting:
            raise ValueError(f"the loss of {self.player!r} must depend on its parameters")
        value, count = self.means.ranks.total(self.value, self.count)
        if isinstance(count, Tensor) or count != whole:
            mean = whole / count if isinstance(count, Tensor) or count else math.nan
            value = value * mean
            for gradient in gradients:
                gradient.mul_(mean)
        return value

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
