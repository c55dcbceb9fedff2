r"""Euclidean projections onto norm balls and the simplex.

The point of a closed convex set $C$ nearest to $x$,
$P x = \operatorname{argmin}_{z \in C} \|x - z\|_2$, is the one with
$\langle x - Px, z - Px \rangle \le 0$ for all $z \in C$; $P$ does not increase distances. With
radius $r$:

- $\ell_\infty$ ball: $(Px)_i = \min(\max(x_i, -r), r)$;
- $\ell_2$ ball: $Px = x \, \min(1, r / \|x\|_2)$;
- simplex $\{z \ge 0, \sum_i z_i = r\}$: $(Px)_i = \max(x_i - \tau, 0)$, with $\tau$ such that
  $f(\tau) = \sum_i \max(x_i - \tau, 0) = r$;
- $\ell_1$ ball: $x$ inside, else $(Px)_i = \operatorname{sgn}(x_i) (P_\Delta |x|)_i$ with the
  projection $P_\Delta$ onto the simplex.

No sorting is needed: $f$ is convex, decreasing and piecewise linear, so Newton's iteration
$\tau \leftarrow \tau + (f(\tau) - r) / |\{i : x_i > \tau\}|$ climbs to the solution from below
(Michelot) and is there once the set of active entries no longer changes. By convexity excess
$f - r$ and number of active entries have a product that falls to a quarter or less in each step,
so that some fifty passes over the data are the most, whatever the data; about five are usual.
On CUDA, where kernels are started one by one and sorting is cheap, the iteration starts at
$\max_k (u_1 + \dots + u_k - r) / k$ with the sorted entries $u_1 \ge u_2 \ge \dots$, which is the
solution up to rounding.

Up to rounding the result is exact, and so is its derivative: on the simplex, and outside the
$\ell_1$ ball, $\mathrm{d}(Px) = s \odot (s \odot \mathrm{d}x - \frac1k \langle s, \mathrm{d}x
\rangle)$ with the signs $s$ of $Px$, of which $k$ are not zero. Points of the set, up to the
rounding of their norm, come back as they are, bit by bit. The claim is `projection_nearest`.
"""

import math
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import choice, number
from vademecum.foundations.norms import vectors

__all__ = ["l2_ball", "project"]

_BLOCK = 2**18  # entries that stay in the cache of a core from pass to pass


def project(
    x: Float[Tensor, " *batch d"],
    onto: Literal["l1", "l2", "linf", "simplex"],
    *,
    radius: float = 1.0,
) -> Float[Tensor, " *batch d"]:
    r"""The nearest point of a ball around zero, or of the simplex, in Euclidean distance.

    Args:
        x: Points, in the last axis.
        onto: The set: the ball of a norm, or the simplex of all vectors of non-negative entries
            that sum to `radius`.
        radius: The radius of the ball, or the sum; 0 leaves the origin alone.

    Returns:
        The projections, differentiable once and again, in reverse and in forward mode, almost
        everywhere; where not, with one of the limits of the Jacobians nearby.

    References:
        Held, Wolfe and Crowder, Validation of subgradient optimization, Mathematical Programming,
        1974.
        Michelot, A finite algorithm for finding the projection of a point onto the canonical
        simplex of R^n, Journal of Optimization Theory and Applications, 1986.
        Duchi, Shalev-Shwartz, Singer and Chandra, Efficient projections onto the l1-ball for
        learning in high dimensions, ICML, 2008.

    Example:
        >>> x = torch.tensor([3.0, -2.0, 0.5])
        >>> project(x, "simplex")
        tensor([1., 0., 0.])
        >>> project(x, "l1", radius=3)
        tensor([ 2., -1.,  0.])
        >>> project(x, "linf")
        tensor([ 1.0000, -1.0000,  0.5000])
        >>> project(torch.tensor([3.0, 4.0]), "l2")
        tensor([0.6000, 0.8000])
    """
    x = vectors("x", x)
    choice("onto", onto, ("l1", "l2", "linf", "simplex"))
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    limit = torch.finfo(wide.dtype).max / x.shape[-1]  # no sum overflows
    r = float(number("radius", radius, low=0.0, high=limit))
    if onto == "linf":
        return x.clamp(-r, r)
    nearest = l2_ball(wide, r) if onto == "l2" else _Threshold.apply(wide, r, onto == "l1")
    return nearest.to(x.dtype)


def _slack(x: Tensor, r: float) -> float:
    """What rounding may do to the norm of a point on the sphere, entries and sums together."""
    return 2 * (2 + math.log2(x.shape[-1])) * torch.finfo(x.dtype).eps * r


def l2_ball(x: Tensor, r: float) -> Tensor:
    """The projection onto the Euclidean ball, of arguments that have been checked.

    Example:
        >>> l2_ball(torch.tensor([3e30, 4e30]), 1.0)
        tensor([0.6000, 0.8000])
    """
    scale = x.detach().abs().amax(-1, keepdim=True)
    u = x / torch.where(scale > 0, scale, 1)  # no square overflows
    norm = torch.linalg.vector_norm(u, dim=-1, keepdim=True)
    inside = scale * norm <= r + _slack(x, r)
    return torch.where(inside, x, u * (r / norm.clamp(min=1)))  # less at zero only


class _Threshold(torch.autograd.Function):
    """The projections onto the l1 ball and the simplex; their Jacobians are symmetric."""

    @staticmethod
    def forward(x: Tensor, r: float, ball: bool) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        rows = max(1, _BLOCK // x.shape[-1]) if x.device.type == "cpu" else len(flat)
        result = torch.empty_like(flat)
        for source, target in zip(flat.split(rows), result.split(rows), strict=True):
            size = source.abs() if ball else source
            excess = size.sum(-1, keepdim=True) - r
            there = (excess if ball else excess.abs()) <= _slack(x, r)
            there &= size.amin(-1, keepdim=True) >= 0
            z = _newton(size, r)
            target.copy_(torch.where(there, source, z * source.sign() if ball else z))
        return result.reshape(x.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float, bool], output: Tensor) -> None:
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)
        ctx.r, ctx.ball = inputs[1:]

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor, None, None]:
        return _tangent(ctx, grad_outputs[0]), None, None

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Tensor:
        return _tangent(ctx, grad_inputs[0])


def _newton(x: Tensor, r: float) -> Tensor:
    y = x - x.amax(-1, keepdim=True)  # then tau is in [-r, 0]
    d = y.shape[-1]
    if y.is_cuda:
        sums = y.sort(-1, descending=True).values.cumsum(-1) - r
        tau = (sums / torch.arange(1, d + 1, device=y.device)).amax(-1, keepdim=True)
    else:
        tau = ((y.sum(-1, keepdim=True) - r) / d).clamp(min=-r)
    before = None
    while True:
        z = (y - tau).clamp_(min=0)
        count = z.sign().sum(-1, keepdim=True)
        step = (z.sum(-1, keepdim=True) - r) / count.clamp(min=1)
        if before is not None and torch.equal(count, before):
            return (z - z.sign() * step).clamp_(min=0)  # finer than tau resolves
        tau, before = tau + step.clamp(min=0), count


def _tangent(ctx: Any, v: Tensor) -> Tensor:
    (point,) = ctx.saved_tensors
    s = point.sign()
    k = s.abs().sum(-1, keepdim=True).clamp(min=1)
    along = s * (s * v - (s * v).sum(-1, keepdim=True) / k)
    if not ctx.ball:
        return along
    inside = point.abs().sum(-1, keepdim=True) < ctx.r - _slack(point, ctx.r)
    return torch.where(inside, v, along)
