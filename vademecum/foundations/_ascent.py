r"""Projected ascent: many climbers at once, each with a step length of its own.

A climber at $z$ goes to $P(z + s\,u)$, where $P$ projects onto a convex region and $u$ is the
direction of the gradient $g$, or a random one where there is none. Unless the score rises it stays,
and $s$ is halved. After a success the next length is that of Barzilai and Borwein,
$s = \|g\|\,\|\Delta z\|^2 / |\langle \Delta z, \Delta g \rangle|$ up to a factor of 4, since plain
steepest ascent would zigzag along ridges. So the score never falls, and what is found is a local
maximum at best.

Barzilai and Borwein, Two-point step size gradient methods, IMA Journal of Numerical Analysis, 1988.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.randomness import source

__all__ = ["Heights", "ascend"]


class Heights(NamedTuple):
    """What a score tells of a batch of points; rows of `gradient` may be zero where it has none."""

    value: Tensor
    gradient: Tensor
    extra: Tensor
    """What the caller wants to know of the highest point."""


def ascend(
    score: Callable[[Tensor], Heights],
    z: Tensor,
    project: Callable[[Tensor], Tensor],
    *,
    step: float,
    steps: int,
    generator: torch.Generator | None,
) -> tuple[Tensor, Heights]:
    """Climb from every row of z; the points that were reached and what the score tells of them."""
    here = score(z)
    s = torch.full_like(z[:, :1], step)
    for _ in range(steps):
        u = torch.randn(z.shape, dtype=z.dtype, **source(generator, z.device)).to(z.device)
        slope = here.gradient.nan_to_num(posinf=0.0, neginf=0.0)
        u = torch.where((slope != 0).any(1, keepdim=True), slope, u)
        there = project(z + s * torch.nn.functional.normalize(u, dim=1))
        found = score(there)
        up = found.value > here.value
        rows = up[:, None]
        moved, turned = there - z, found.gradient - here.gradient
        s = torch.where(rows, _stride(moved, turned, found.gradient).clamp(s / 4, 4 * s), s / 2)
        z = torch.where(rows, there, z)
        here = Heights(
            torch.where(up, found.value, here.value),
            torch.where(rows, found.gradient, here.gradient),
            torch.where(rows, found.extra, here.extra),
        )
    return z, here


def _stride(moved: Tensor, turned: Tensor, gradient: Tensor) -> Tensor:
    """The length of Barzilai and Borwein; infinite where the gradient did not turn."""
    square, bend = (moved * moved).sum(1, keepdim=True), (moved * turned).sum(1, keepdim=True)
    stride = square / bend.abs() * torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
    return stride.nan_to_num(nan=torch.inf)
