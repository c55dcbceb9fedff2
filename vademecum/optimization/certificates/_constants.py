r"""Constants that nobody gave, searched in the ball around the optimum that holds the start.

$L$ and $\mu$ are the largest and the least curvature that `smoothness_constant` and
`strong_convexity_constant` find there, of $f$ or, where single terms are drawn, of each $f_i$; $G$
is the longest gradient of a term on the line through start and optimum. So $L$ and $G$ are at most
the true constants and $\mu$ is at least the true one: each makes the bound smaller than it should
be, and a violation proves nothing. On quadratics $L$ and $\mu$ are exact up to rounding.
"""

import torch
from torch import Tensor

from vademecum.foundations import Ball, smoothness_constant, strong_convexity_constant
from vademecum.optimization.certificates._objectives import Objective

__all__ = ["least_curvature", "longest_gradient", "most_curvature"]

_FEW = {"pairs": 16, "starts": 4, "steps": 10}  # for one of many terms, or many variables
_MANY = 256  # variables


def most_curvature(
    f: Objective, optimum: Tensor, *, terms: bool, generator: torch.Generator | None
) -> float:
    """The largest $L$ found, of the function or of any of its terms."""
    region = _ball(f, optimum)
    if not terms:
        return smoothness_constant(f.values, region, generator=generator, **_effort(f)).value
    return max(
        smoothness_constant(
            lambda points, i=i: f.rows(points)[:, i], region, generator=generator, **_FEW
        ).value
        for i in range(f.count)
    )


def least_curvature(f: Objective, optimum: Tensor, *, generator: torch.Generator | None) -> float:
    r"""The least $\mu$ found."""
    region = _ball(f, optimum)
    found = strong_convexity_constant(f.values, region, generator=generator, **_effort(f))
    if found.value <= 0:
        raise ValueError(
            "f must be strongly convex, got the curvature"
            f" {found.value:.3g} at a distance of {float((found.x - optimum).norm()):.3g} from"
            " the optimum; or mu must be given"
        )
    return found.value


def longest_gradient(f: Objective, optimum: Tensor) -> float:
    """The largest $G$ found."""
    way = f.start - optimum
    places = torch.linspace(-1, 1, 33, dtype=way.dtype, device=way.device)
    return max(float(f.slopes(optimum + s * way).norm(dim=1).max()) for s in places)


def _ball(f: Objective, optimum: Tensor) -> Ball:
    return Ball(optimum, float((f.start - optimum).norm()) or 1.0)


def _effort(f: Objective) -> dict[str, int]:
    return _FEW if len(f.start) > _MANY else {}
