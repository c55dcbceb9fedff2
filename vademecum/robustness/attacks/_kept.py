"""The best point so far of every example, and which examples are still in the fight.

An example whose point fools the model leaves; its point is kept. It must do so by half a gap of
rounding more than the model's last word will ask for, which comes from a pass with other company.
Of the others the point with the largest loss is kept.
"""

import torch
from torch import Tensor

from vademecum.robustness._threat import Threat
from vademecum.robustness.attacks._campaign import Battle, Proposal
from vademecum.robustness.attacks._goals import Goal

__all__ = ["Kept"]


class Kept:
    """What a search has found so far.

    Args:
        battle: The examples.
    """

    def __init__(self, battle: Battle):
        x = battle.x
        self.x = x.clone()
        self.value = torch.full((len(x),), -torch.inf, dtype=x.dtype, device=x.device)
        self.fooled = torch.zeros_like(battle.goal.y, dtype=torch.bool)
        self.steps = torch.zeros_like(battle.goal.y)
        self.queries = torch.zeros_like(battle.goal.y)
        self.active = torch.arange(len(x), device=x.device)

    def own(self, battle: Battle) -> tuple[Tensor, Goal, Threat]:
        """Inputs, goal and threat of the examples that are left."""
        here = self.active
        return battle.x[here], battle.goal.rows(here), battle.threat.rows(here)

    def look(
        self, battle: Battle, x: Tensor, goal: Goal, loss: str, *, gradient: bool = True
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Points of those that are left as they would be returned; logits, losses, gradients."""
        self.queries[self.active] += 1
        x = battle.settled(self.active, x)
        if gradient:
            return x, *battle.logits.gradient(x, lambda z: goal.loss(z, loss))
        z = battle.logits(x)
        return x, z, goal.loss(z, loss), x

    def note(self, x: Tensor, z: Tensor, value: Tensor, goal: Goal) -> Tensor | None:
        """Keep points, and let examples go that are fooled: which ones stay, None for all."""
        there = goal.secured(z)
        better = there | (value > self.value[self.active])
        mine = self.active[better]
        self.x[mine], self.value[mine] = x[better], value[better].to(self.value.dtype)
        if not bool(there.any()):
            return None
        self.fooled[self.active[there]] = True
        stay = (~there).nonzero()[:, 0]
        self.active = self.active[stay]
        return stay

    def proposal(self) -> Proposal:
        """What there is."""
        return Proposal(self.x, self.steps, self.queries, self.fooled)
