"""Random points of the ball to begin at, which do not depend on who else is still in the fight."""

import torch
from torch import Tensor

from vademecum.robustness._threat import per_example
from vademecum.robustness.attacks._campaign import Battle
from vademecum.robustness.uniform_draws import unit_ball

__all__ = ["start_in_ball"]


def start_in_ball(battle: Battle, active: Tensor) -> Tensor:
    """Uniform draws of the balls around some examples, brought into the box."""
    x0, threat = battle.x[active], battle.threat.rows(active)
    like = torch.empty(battle.n, *x0.shape[1:], dtype=x0.dtype, device=x0.device)
    drawn = unit_ball(like, threat.norm, battle.generator)[battle.whose[active]]
    return threat.nearest(x0, x0 + per_example(threat.radius, x0) * drawn)
