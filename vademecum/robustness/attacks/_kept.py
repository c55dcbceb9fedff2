"""The best point so far of every example, and which examples are still in the fight.

An example whose point fools the model leaves; its point is kept. It must do so by a quarter of a
gap of rounding more than the model's last word will ask for, which comes from a pass with other
company. Of the others the point with the largest loss is kept.
"""

import torch
from torch import Tensor

from vademecum.robustness._threat import Threat, per_example
from vademecum.robustness.attacks._campaign import Battle, Proposal
from vademecum.robustness.attacks._goals import Goal

__all__ = ["Kept"]


class Kept:
    """What a search has found so far.

    Attributes:
        active: The places of the examples that are left.
        best: The best points of these.
        value: Their losses.

    Args:
        battle: The examples.
    """

    def __init__(self, battle: Battle):
        x, none = battle.x, torch.zeros_like(battle.goal.y)
        self.best = x
        self.value = torch.full((len(x),), -torch.inf, dtype=x.dtype, device=x.device)
        self.active = torch.arange(len(x), device=x.device)
        self._made = self._asked = 0  # by each of those that are left
        self._found = Proposal(x.clone(), none, none.clone(), none.bool())

    def own(self, battle: Battle) -> tuple[Tensor, Goal, Threat]:
        """Inputs, goal and threat of the examples that are left."""
        here = self.active
        return battle.x[here], battle.goal.rows(here), battle.threat.rows(here)

    def count(self, *, steps: int = 0, queries: int = 0) -> None:
        """Note that all who are left made so many steps, and asked the model so often."""
        self._made += steps
        self._asked += queries

    def look(
        self, battle: Battle, x: Tensor, goal: Goal, loss: str, *, gradient: bool = True
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Points of those that are left as they would be returned; logits, losses, gradients."""
        self.count(queries=1)
        x = battle.settled(self.active, x)
        if gradient:
            return x, *battle.logits.gradient(x, lambda z: goal.loss(z, loss))
        z = battle.logits(x)
        return x, z, goal.loss(z, loss), x

    def note(self, x: Tensor, z: Tensor, value: Tensor, goal: Goal) -> Tensor | None:
        """Keep points, and let examples go that are fooled: which ones stay, None for all."""
        there, value = goal.secured(z), value.to(self.value.dtype)
        better = there | (value > self.value)
        self.best = torch.where(per_example(better, x), x, self.best)
        self.value = torch.where(better, value, self.value)
        stay = (~there).nonzero()[:, 0]  # the one thing that a GPU is waited for
        if len(stay) == len(there):
            return None
        self._found.fooled[self.active] = there
        self._write()
        self.active, self.best, self.value = (t[stay] for t in (self.active, self.best, self.value))
        return stay

    def proposal(self) -> Proposal:
        """What there is."""
        self._write()
        return self._found

    def _write(self) -> None:
        """Put down what is known of those that are left."""
        self._found.x[self.active] = self.best
        self._found.steps[self.active] = self._made
        self._found.queries[self.active] = self._asked
