r"""The steepest place of a map: the search behind the Lipschitz and curvature constants.

For $g : S \to \mathbb R^m$ on a convex region it maximises the difference quotient

$$q(x, y) = \frac{\langle u, g(y) - g(x) \rangle}{\|y - x\|}, \qquad
u = \frac{g(y) - g(x)}{\|g(y) - g(x)\|} \quad\text{or}\quad u = -v = -\frac{y - x}{\|y - x\|},$$

whose limit at $x$ is $u^\top Dg(x)\, v$: the first $u$ leads to the largest singular value of the
Jacobian, the second to minus the least eigenvalue of its symmetric part.

*Halving.* Of the two halves of a segment one has a quotient at least as large as the whole, so that
bisection runs into the steepest place of the segment, kinks and jumps included. *Climbing.* The
limit is climbed by projected gradient ascent, with $u$ and $v$ from the Jacobian or from a small
Krylov space.

A pair counts if its quotient beats the best derivative by more than rounding can: $g$ is taken to
be computed to $d + 8$ units of roundoff of its largest value.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats, whole
from vademecum.foundations._ascent import ascend
from vademecum.foundations._tangents import Map, Tangents, derivative
from vademecum.foundations.regions import Region
from vademecum.results import one_line

__all__ = [
    "DifferenceQuotient", "differentiable", "gradient_of", "points_of", "refuse_mixing", "rounding",
    "rows_of", "steepest",
]  # fmt: skip

_HALVINGS = 20
_REFUSALS = ("requires grad", "derivative for")  # in the words of torch


class DifferenceQuotient(NamedTuple):
    r"""A difference quotient between $x$ and $x + t v$, or its limit at $x$ if $t = 0$.

    Example:
        >>> found = DifferenceQuotient(2.0, torch.zeros(1), torch.ones(1), 0.5)
        >>> found.x + found.distance * found.direction
        tensor([0.5000])
    """

    value: float
    """The quotient."""
    x: Float[Tensor, " d"]
    """Where the segment begins."""
    direction: Float[Tensor, " d"]
    """The unit vector $v$."""
    distance: float
    """The length $t$; 0 if `value` is a derivative at `x`."""

    __repr__ = one_line


def steepest(
    g: Map,
    region: Region,
    pairs: int,
    starts: int,
    steps: int,
    generator: torch.Generator | None,
    *,
    bend: bool = False,
) -> DifferenceQuotient:
    """The largest difference quotient of a map that halving and climbing find."""
    whole("starts", starts, low=1)
    whole("steps", steps, low=0)
    x, y = points_of(region, 2 * whole("pairs", pairs, low=1), generator).chunk(2)
    size = float(torch.linalg.vector_norm(x - y, dim=1).max())
    segment, q = _halve(g, x, y, bend)
    j = int(q.argmax())
    if differentiable(g, x[:1]):
        k = min(len(q), starts // 2)
        best = q.topk(k).indices
        guides = torch.cat([(segment[1] - segment[0])[best], (y - x)[: starts - k]])
        score = Tangents(g, guides, bend=bend)
        z, top = ascend(
            score,
            torch.cat([segment[0][best], x[: starts - k]]),
            region.project,
            step=size / 4,
            steps=steps,
            generator=generator,
        )
        i, top = score.best(z, top)
        if q[j] <= top.value[0]:
            return DifferenceQuotient(float(top.value[0]), z[i], top.extra[0], 0.0)
    x, y = segment[0][j], segment[1][j]
    distance = torch.linalg.vector_norm(y - x)
    value = _quotient((g(y[None]) - g(x[None])).detach(), (y - x)[None], bend)
    return DifferenceQuotient(float(value), x, (y - x) / distance, float(distance))


def _halve(g: Map, x: Tensor, y: Tensor, bend: bool) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """The best segment inside each of the segments from x to y, and its quotient less rounding."""
    gx, gy = (floats("the gradient of f", g(end).detach()) for end in (x, y))
    refuse_mixing(gx[:1], g(x[:1]).detach(), gx)
    scale, reach = float(gx.abs().max()), float(torch.maximum(x.abs(), y.abs()).max())
    best, best_x, best_y = torch.full_like(x[:, 0], -torch.inf), x, y
    for _ in range(_HALVINGS):
        q = _quotient(gy - gx, y - x, bend)
        sure = q - 2 * rounding(x, scale + reach * q.abs()) / _length(y - x)
        better = sure > best
        best = torch.where(better, sure, best)
        best_x, best_y = (
            torch.where(better[:, None], new, old) for new, old in ((x, best_x), (y, best_y))
        )
        z = (x + y) / 2
        gz = g(z).detach()
        left = _quotient(gz - gx, z - x, bend) >= _quotient(gy - gz, y - z, bend)
        x, y, gx, gy = (
            torch.where(left[:, None], first, second)
            for first, second in ((x, z), (z, y), (gx, gz), (gz, gy))
        )
    return (best_x, best_y), best


def _length(dx: Tensor) -> Tensor:
    return torch.linalg.vector_norm(dx, dim=1).clamp(min=torch.finfo(dx.dtype).tiny)


def _quotient(dg: Tensor, dx: Tensor, bend: bool) -> Tensor:
    length = _length(dx)
    if bend:
        return -((dg / length[:, None]) * (dx / length[:, None])).sum(1)
    return torch.linalg.vector_norm(dg, dim=1) / length


def differentiable(f: Map, x: Tensor) -> bool:
    """Whether autograd can follow a map that has values at x."""
    try:
        with torch.enable_grad():
            y = f(x := x.detach().requires_grad_())
            derivative(y.sum(), x)
            return y.requires_grad
    except RuntimeError as error:  # as `x.numpy()` and operations without a derivative raise
        if not any(words in str(error) for words in _REFUSALS):
            raise
        return False


def rows_of(f: Map) -> Map:
    """The map with its values checked: one row for each row of x, finite, as vectors."""

    def g(x: Tensor) -> Tensor:
        y = f(x)
        if not isinstance(y, Tensor) or y.ndim == 0 or len(y) != len(x):
            what = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
            raise ValueError(f"f must return one row for each of {len(x)} points, got {what}")
        if floats("f(x)", y).is_complex():
            raise ValueError(f"f(x) must be real, got {y.dtype}")
        return y.reshape(len(x), -1)

    return g


def gradient_of(f: Map) -> Map:
    """The gradient of a function, as a map that can be differentiated again."""
    values = rows_of(f)

    def g(x: Tensor) -> Tensor:
        x = x if x.requires_grad else x.detach().requires_grad_()
        with torch.enable_grad():
            y = values(x)
            if y.shape[1] != 1:
                raise ValueError(f"f must return one number a point, got {y.shape[1]}")
            if not y.requires_grad:
                raise ValueError("f must be differentiable by autograd, its values have no graph")
            return derivative(y.sum(), x)

    return g


def refuse_mixing(one: Tensor, alone: Tensor, values: Tensor) -> None:
    """Compare the value of a row in company with its value alone."""
    slack = torch.finfo(values.dtype).eps ** 0.5 * values.abs().max()
    if (one - alone).abs().max() > slack:
        raise ValueError(
            "f must act on each row by itself, got"
            f" {one.flatten()[0].item():.6g} in company and {alone.flatten()[0].item():.6g} alone"
        )


def points_of(region: Region, n: int, generator: torch.Generator | None) -> Tensor:
    """A sample of the region, checked."""
    if not isinstance(region, Region):
        raise ValueError(
            f"region must have the methods sample and project, got {type(region).__name__}"
        )
    return floats("region.sample", region.sample(n, generator=generator), ndim=2)


def rounding(x: Tensor, scale: Tensor | float) -> Tensor | float:
    """What rounding may do to a value of that scale, computed from points like x."""
    return (x.shape[1] + 8) * torch.finfo(x.dtype).eps * scale
