r"""Better slopes below hinges, by gradient ascent on the bound itself (alpha-CROWN).

Below a rectifier whose interval has 0 inside any line $\alpha z$, $0 \le \alpha \le 1$, will do,
and which is best depends on the layers above. So each bound is maximised over all slopes, with
Adam, and the largest value on the way is kept; every one of them is a bound.

References:
    Xu et al., Fast and complete: enabling complete verification with rapid and massively parallel
    incomplete verifiers, ICLR, 2021.
"""

import torch
from torch import Tensor

from vademecum.robustness.bounds._descent import Descent, Functions, Slopes
from vademecum.robustness.bounds._unit_steps import UnitStep
from vademecum.robustness.bounds._windows import Window, spread

__all__ = ["ascended"]

_RATE = 0.5  # Adam's first step, of slopes between 0 and 1; as its authors have it
_DECAY = 0.98


def ascended(descent: Descent, functions: Functions, max_iter: int) -> tuple[Tensor, Slopes]:
    """Lower bounds `(n, r)` of linear functions, after so many steps on the slopes; and these."""
    seen: dict[int, Window | None] = {}
    best = descent.least(functions, seen=seen)
    slopes, ends = _first(descent, functions, seen) if max_iter else ({}, {})
    if not slopes:
        return best, {}
    kept = {at: each.clone() for at, each in slopes.items()}
    with torch.enable_grad():
        adam = torch.optim.Adam(slopes.values(), lr=_RATE, maximize=True)
        for step in range(max_iter + 1):
            least = descent.least(functions, _inserted(descent, slopes, seen))
            better = least.detach() > best
            best = torch.where(better, least.detach(), best)
            for at, each in slopes.items():
                mask = better.view(*better.shape, *[1] * (each.ndim - 2))
                kept[at] = torch.where(mask, each.detach(), kept[at])
            if step == max_iter:
                break
            adam.zero_grad()
            least.sum().backward()
            adam.step()
            adam.param_groups[0]["lr"] *= _DECAY
            for at, each in slopes.items():
                each.data.clamp_(min=ends[at], max=1)
    return best, _inserted(descent, kept, seen)


def _first(
    descent: Descent, functions: Functions, seen: dict[int, Window | None]
) -> tuple[Slopes, dict[int, float]]:
    """Slopes to begin with, for each function its own, and the least that they may be."""
    slopes, ends = {}, {}
    for at, window in seen.items():
        step, lines = descent.network.steps[at], descent.passages[at].lines
        if isinstance(step, UnitStep) and isinstance(step.unit.hinge, float) and lines is not None:
            first = spread(lines.low_slope, window)
            if window is None:
                first = first.expand(-1, functions.rows.shape[1], *first.shape[2:])
            slopes[at], ends[at] = first.clone().requires_grad_(), step.unit.hinge
    return slopes, ends


def _inserted(descent: Descent, slopes: Slopes, seen: dict[int, Window | None]) -> Slopes:
    """The slopes where 0 lies inside, and elsewhere the ones that there are."""
    found = {}
    for at, window in seen.items():
        lines = descent.passages[at].lines
        if at in slopes and lines is not None:
            low, high = spread(lines.low_slope, window), spread(lines.high_slope, window)
            found[at] = torch.where(low == high, low, slopes[at])
    return found
