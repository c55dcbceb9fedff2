"""All that a run of training is at one moment, as plain attributes: what a checkpoint must hold.

A run that has the same attributes and the same random numbers goes on in the same way, bit by bit.
The position in the data is the number of steps taken and nothing else: the epoch and the batch
follow from it.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from vademecum.optimization import PolyakAveraging
from vademecum.regularization import EarlyStopping
from vademecum.train._late import may_wait

__all__ = ["Training"]


@dataclass
class Training:
    """A run at one moment.

    Attributes:
        objective: The plain module, neither compiled nor wrapped.
        optimizers: The optimiser of each player, in the order of their turns.
        scaler: What scales losses in float16; without effect in other precisions.
        stopping: The best score so far and its weights, where evaluations have a score.
        seed: What data order, augmentation and all random numbers come from.
        per_epoch: How many batches there are in an epoch.
        steps: How many steps there will be in all; None while `minutes` are being measured.
        step: How many steps were taken.
        schedules: The schedule of each player's learning rate.
        averages: The averages of each player's parameters, if there are any.
        scores: What the last evaluation found.
        kept: Tensors that instruments compare with later, such as the first tangent kernel.
        configuration: What the run was asked for, as JSON has it.
    """

    objective: nn.Module
    optimizers: dict[str, Optimizer]
    scaler: GradScaler
    stopping: EarlyStopping | None
    seed: int
    per_epoch: int
    steps: int | None
    step: int = 0
    schedules: dict[str, LRScheduler] = field(default_factory=dict)
    averages: dict[str, PolyakAveraging] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    kept: dict[str, Tensor] = field(default_factory=dict)
    configuration: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def alone(self) -> bool:
        """Whether one optimiser moves all parameters, so that every gradient is its own."""
        moved = [p for o in self.optimizers.values() for g in o.param_groups for p in g["params"]]
        everything = {id(p) for p in self.objective.parameters()}
        return len(self.optimizers) == 1 and everything <= {id(p) for p in moved}

    @cached_property
    def waits(self) -> bool:
        """Whether the numbers of a step can be read when the next one is under way."""
        return may_wait(self.objective, self.optimizers, scaled=self.scaler.is_enabled())

    @property
    def epoch(self) -> int:
        """The epoch that the next batch belongs to, from 0."""
        return self.step // self.per_epoch

    @property
    def batch(self) -> int:
        """The next batch's number in its epoch, from 0."""
        return self.step % self.per_epoch

    @property
    def finished(self) -> bool:
        """Whether all steps were taken."""
        return self.steps is not None and self.step >= self.steps
