r"""Convexity on trial: the search for a chord that lies below the graph.

A function $f$ on a convex region $S$ is convex if no chord violates it, that is, if the gap

$$\operatorname{gap}(x, y, \lambda) = f(\lambda x + (1 - \lambda) y) - \lambda f(x)
- (1 - \lambda) f(y)$$

is at most zero for all $x, y \in S$ and $\lambda \in [0, 1]$. The search looks for the largest gap:
over random chords of all lengths, the most promising of which (by gap, and by gap per
$\lambda (1 - \lambda) \|x - y\|^2$) are then refined by projected ascent; and, if $f$ is
differentiable, over chords through the place of least curvature, in the direction of the
eigenvector of $\nabla^2 f$ or along the segment on which $\nabla f$ is not monotone.

A gap beyond rounding is a proof that $f$ is not convex, with $(x, y, \lambda)$ as the witness. Its
absence proves nothing. Rounding is taken to be $2 (d + 8)$ units of roundoff of
$\max |f| + \operatorname{Lip}(f) \max \|x\|$ over the chords tried. The claim is `convex_function`.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.foundations._ascent import Heights, ascend
from vademecum.foundations.curvature_constants import strong_convexity_constant
from vademecum.foundations.regions import Region
from vademecum.foundations.steepest import (
    DifferenceQuotient,
    differentiable,
    points_of,
    refuse_mixing,
    rounding,
    rows_of,
)
from vademecum.randomness import source
from vademecum.results import one_line

__all__ = ["ConvexityViolation", "convexity_violation"]


class ConvexityViolation(NamedTuple):
    r"""The largest gap that was found, and the chord that has it.

    Example:
        >>> worst = ConvexityViolation(0.0, torch.zeros(1), torch.ones(1), 0.5, 1e-6, "one chord")
        >>> worst.found
        False
    """

    gap: float
    """How far the graph is above the chord."""
    x: Float[Tensor, " d"]
    """One end of the chord."""
    y: Float[Tensor, " d"]
    """The other end."""
    lam: float
    r"""The weight $\lambda$ of `x`; `y` has the rest."""
    tol: float
    """The gap that rounding can explain."""
    tried: str
    """What was searched."""

    __repr__ = one_line

    @property
    def found(self) -> bool:
        """Whether the gap is a violation: larger than rounding."""
        return self.gap > self.tol


def convexity_violation(
    f: Callable[[Tensor], Tensor],
    region: Region,
    *,
    chords: int = 2048,
    starts: int = 16,
    steps: int = 60,
    tol: float | None = None,
    generator: torch.Generator | None = None,
) -> ConvexityViolation:
    r"""Look for a chord of a function that lies below its graph.

    Args:
        f: A function of points (n, d) to numbers (n,), row by row; it need not be differentiable.
        region: Where to look: a `Box`, a `Ball`, or any convex set that samples and projects.
        chords: The number of random chords.
        starts: The number of chords that are refined, of each kind.
        steps: The number of steps of the refinement.
        tol: The gap that counts as rounding; by default an estimate from the values of f. Give it
            if f loses more digits than a sum of d terms of the size of f does.
        generator: Where random numbers come from; torch's global generator by default.

    Returns:
        The largest gap with its chord. `found` says whether it exceeds rounding.

    Raises:
        ValueError: If f is not finite on the region, or mixes rows.

    Example:
        >>> from vademecum.foundations import Box
        >>> box = Box(-torch.ones(1), torch.ones(1))
        >>> convexity_violation(lambda x: x[:, 0] ** 2, box).found
        False
        >>> worst = convexity_violation(lambda x: -(x[:, 0] ** 2), box)
        >>> round(worst.gap, 6), round(worst.lam, 3), worst.found  # the chord from -1 to 1
        (1.0, 0.5, True)
    """
    whole("starts", starts, low=1)
    whole("steps", steps, low=0)
    x, y = points_of(region, 2 * whole("chords", chords, low=1), generator).chunk(2)
    size = float(torch.linalg.vector_norm(x - y, dim=1).max())
    noise = 2 * _noise(f, x, y)
    smooth = differentiable(f, x[:1])
    z = _promising(f, _random_chords(x, y, size, generator), size, starts)
    tried = f"{chords} random chords"
    if smooth:
        bend = strong_convexity_constant(
            f, region, pairs=min(chords, 256), starts=starts, steps=steps // 2, generator=generator
        )
        z = torch.cat([z, _through(bend, region, size)])
        tried += f", chords through a place of curvature {bend.value:.3g}"
    z, top = ascend(
        lambda z: _heights(f, z, size, smooth),
        z,
        lambda z: _project(region, z, size),
        step=size / 4,
        steps=steps,
        generator=generator,
    )
    x, y, lam = _unpack(z[top.value.argmax()][None], size)
    tried += f", {steps} steps of {'gradient ascent' if smooth else 'random search'} from {len(z)}"
    tol = noise if tol is None else number("tol", tol, low=0)
    return ConvexityViolation(float(top.value.max()), x[0], y[0], float(lam), tol, tried)


def _pack(x: Tensor, y: Tensor, lam: Tensor, size: float) -> Tensor:
    """Chords as rows, with the weight in units of the region's size, for the sake of the steps."""
    return torch.cat([x, y, size * lam[:, None]], 1)


def _unpack(z: Tensor, size: float) -> tuple[Tensor, Tensor, Tensor]:
    x, y = z[:, :-1].chunk(2, 1)
    return x, y, z[:, -1] / size


def _gap(f: Callable[[Tensor], Tensor], z: Tensor, size: float) -> Tensor:
    x, y, lam = _unpack(z, size)
    middle = torch.lerp(y, x, lam[:, None])
    fm, fx, fy = rows_of(f)(torch.cat([middle, x, y]))[:, 0].chunk(3)
    return fm - torch.lerp(fy, fx, lam)


def _heights(f: Callable[[Tensor], Tensor], z: Tensor, size: float, smooth: bool) -> Heights:
    if not smooth:
        return Heights(_gap(f, z, size).detach(), torch.zeros_like(z), z)
    z = z.detach().requires_grad_()
    with torch.enable_grad():
        gap = _gap(f, z, size)
        gradient = torch.autograd.grad(gap.sum(), z)[0]
    return Heights(gap.detach(), gradient, z.detach())


def _project(region: Region, z: Tensor, size: float) -> Tensor:
    x, y, lam = _unpack(z, size)
    return _pack(region.project(x), region.project(y), lam.clamp(0, 1), size)


def _random_chords(x: Tensor, y: Tensor, size: float, generator: torch.Generator | None) -> Tensor:
    """Chords from x towards y with random weights, half of them shortened up to a thousandfold."""
    u = torch.rand(len(x), 2, dtype=x.dtype, **source(generator, x.device)).to(x.device)
    share = torch.where(u[:, :1] < 0.5, 1.0, 0.5 ** (20 * u[:, :1] - 10))
    return _pack(x, torch.lerp(x, y, share), u[:, 1], size)


def _promising(f: Callable[[Tensor], Tensor], z: Tensor, size: float, starts: int) -> Tensor:
    """The chords with the largest gaps, and those with the largest gaps for their length."""
    gap = _gap(f, z, size).detach()
    x, y, lam = _unpack(z, size)
    share = (lam * (1 - lam) * (x - y).square().sum(1)).clamp(min=torch.finfo(z.dtype).tiny)
    k = min(starts, len(z))
    return z[torch.cat([gap.topk(k).indices, (gap / share).topk(k).indices])]


def _through(bend: DifferenceQuotient, region: Region, size: float) -> Tensor:
    """Chords of all lengths around the place of least curvature, in its direction."""
    h = size * 0.5 ** torch.arange(20, device=bend.x.device, dtype=bend.x.dtype)[:, None]
    middle = bend.x + bend.distance / 2 * bend.direction
    x, y = (region.project(middle + side * h * bend.direction) for side in (1, -1))
    return _pack(x, y, torch.full_like(h[:, 0], 0.5), size)


def _noise(f: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> float:
    """What rounding may do to a value of f, or to its argument."""
    fx, fy = (rows_of(f)(end).detach() for end in (x, y))
    if fx.shape[1] != 1:
        raise ValueError(f"f must return one number a point, got {fx.shape[1]}")
    refuse_mixing(fx[:1], rows_of(f)(x[:1]).detach(), fx)
    length = torch.linalg.vector_norm(x - y, dim=1).clamp(min=torch.finfo(x.dtype).tiny)
    slope = ((fx - fy)[:, 0].abs() / length).max()
    reach = torch.linalg.vector_norm(x, dim=1).max()
    return float(rounding(x, torch.maximum(fx.abs().max(), fy.abs().max()) + slope * reach))
