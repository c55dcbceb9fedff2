r"""The largest risk that a divergence allows: the inverse of the divergence of two coins.

$$\mathrm{kl}^{-1}_+(q, c) = \max \{p \ge q : \mathrm{kl}(q \| p) \le c\}, \qquad
\mathrm{kl}^{-1}_-(q, c) = \min \{p \le q : \mathrm{kl}(q \| p) \le c\}.$$

Newton's method in $\ln(1 - p)$ (from above) or $\ln p$ (from below), in which the divergence is
convex, starts outside and stays there: a few steps do. The last number is then moved outwards until
a lower bound of its divergence, rounding included, is at least $c$. So the result is never below
the largest risk and never above the smallest, and where a divergence within $64 \cdot 2^{-52}\, c$
of $c$ would be; below the smallest normal number it is 0. The ends are exact: $q$ itself for $c =
0$, 0 or 1 for $c = \infty$, and $\mathrm{kl}^{-1}_+(0, c) = 1 - e^{-c}$, $\mathrm{kl}^{-1}_-(1, c)
= e^{-c}$ up to rounding, outwards.

Derivatives are those of the implicit function,

$$\frac{\partial p}{\partial c} = \frac{p (1 - p)}{p - q}, \qquad
\frac{\partial p}{\partial q} = \frac{p (1 - p)}{p - q} \ln \frac{p (1 - q)}{q (1 - p)}.$$
"""

from typing import Any, Literal

import torch
from torch import Tensor

from vademecum.arguments import choice
from vademecum.generalization._bernoulli_divergence import ERROR, UNDERFLOW, bernoulli_divergence
from vademecum.generalization._real_arguments import Real, real_tensors

__all__ = ["kl_inverse"]

Result = Any  # a number for numbers, a tensor for tensors

_TINY = torch.finfo(torch.float64).tiny
_BELOW_ONE = 1 - 2.0**-53
_PORTION = 2**14  # entries: a dozen arrays of doubles stay in the cache, twice as fast (measured)
_STEPS = 60  # of Newton's method; some 10 do, and what has not converged is moved outwards


def kl_inverse(q: Real, c: Real, *, side: Literal["upper", "lower"]) -> Result:
    r"""The largest or the smallest $p$ with $\mathrm{kl}(q \| p) \le c$, rounded outwards.

    Numbers give a number, tensors, which broadcast, a tensor: of double precision if one of them
    is. Differentiable, also twice and under `torch.func`. Derivatives that are infinite, by $q$ at
    0 and by $c$ at 0, are given as large numbers.

    Args:
        q: Observed frequencies or risks, in [0, 1].
        c: Divergences in nats, >= 0; infinity is allowed.
        side: "upper" for the largest $p$, never below the true one, or "lower" for the smallest,
            never above.

    Raises:
        ValueError: If `q` or `c` are outside, NaN, or neither float32 nor float64.

    References:
        Langford, Tutorial on practical prediction theory for classification, JMLR, 2005.

    Example:
        >>> kl_inverse(0.0, 0.5, side="upper")  # 1 - exp(-1/2)
        0.3934...
        >>> kl_inverse(torch.tensor([0.0, 0.1, 1.0]), torch.tensor(0.5), side="lower")
        tensor([0.0000e+00, 2.6166e-04, 6.0653e-01])
    """
    choice("side", side, ("upper", "lower"))
    a, b = real_tensors(q=q, c=c)
    dtype = torch.promote_types(a.dtype, b.dtype)
    if not (isinstance(q, Tensor) and isinstance(c, Tensor)):
        dtype = next((x.dtype for x in (q, c) if isinstance(x, Tensor)), dtype)
    wide = torch.broadcast_tensors(a.double(), b.double())
    p = _Inverse.apply(*wide, side == "upper", dtype).to(dtype)
    return p if isinstance(q, Tensor) or isinstance(c, Tensor) else p.item()


class _Inverse(torch.autograd.Function):
    """The inverse in double precision, already rounded outwards to numbers of a given dtype."""

    @staticmethod
    def forward(q: Tensor, c: Tensor, upper: bool, dtype: torch.dtype) -> Tensor:
        for name, x, good, rule in (
            ("q", q, (q >= 0) & (q <= 1), "in [0, 1]"),
            ("c", c, c >= 0, ">= 0"),
        ):
            if not good.all():
                raise ValueError(f"{name} must be {rule}, got {x[~good][0].item():g}")
        size = _PORTION if q.device.type == "cpu" else max(q.numel(), 1)
        portions = zip(q.flatten().split(size), c.flatten().split(size), strict=True)
        p = torch.cat([(_above if upper else _below)(*each) for each in portions]).view(q.shape)
        narrow = p.to(dtype)
        away = torch.full_like(narrow, 2.0 if upper else -1.0)
        inside = narrow.double() < p if upper else narrow.double() > p
        return torch.where(inside, narrow.nextafter(away), narrow).double()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)
        ctx.save_for_forward(inputs[0], output)
        ctx.upper = inputs[2]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        q, p = ctx.saved_tensors
        by_q, by_c = _derivatives(q, p, ctx.upper)
        return grads[0] * by_q, grads[0] * by_c, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        q, p = ctx.saved_tensors
        by_q, by_c = _derivatives(q, p, ctx.upper)
        parts = zip(tangents[:2], (by_q, by_c), strict=True)
        return sum((t * by for t, by in parts if t is not None), torch.zeros_like(by_q))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
        """Each entry is on its own: the axis in front is one more to go over."""
        q, c = (
            x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip(args[:2], in_dims, strict=False)
        )
        return _Inverse.apply(q, c, *args[2:]), 0


def _derivatives(q: Tensor, p: Tensor, upper: bool) -> tuple[Tensor, Tensor]:
    inner = (p > 0) & (p < 1)  # else it is stuck at an end
    p = torch.where(inner, p, 0.5)
    q = q.clamp(_TINY, _BELOW_ONE)
    d = (p - q).abs()
    least = 2.0**-53 * p  # where p = q the derivative by c is infinite
    d = torch.where(d > least, d, least)
    by_c = p * (1 - p) / d * (1.0 if upper else -1.0)
    odds = ((p - q) / q).log1p() - ((q - p) / (1 - q)).log1p()
    by_q = torch.where((p - q).abs() > least, by_c * odds, 1.0)
    return torch.where(inner, by_q, 0.0), torch.where(inner, by_c, 0.0)


def _above(q: Tensor, c: Tensor) -> Tensor:
    """The upper inverse: Newton from above in ln(1 - p), then outwards until it is certain."""
    inner = (q > 0) & (q < 1) & (c > 0) & (c < torch.inf)
    a, b = torch.where(inner, q, 0.5), _goal(torch.where(inner, c, 0.1))
    far = -(-(b + _entropy(a)) / (1 - a)).expm1()
    starts = [a + (b / 2).sqrt(), a + (2 * (1 - a) * b).sqrt(), a + (2 * a * b).sqrt() + 2 * b]
    p = torch.stack([far, *starts]).amin(0).clamp(max=_BELOW_ONE)
    floor = a.nextafter(torch.ones_like(a)).clamp(max=_BELOW_ONE)
    for _ in range(_STEPS):
        p = torch.maximum(p, floor)
        excess = bernoulli_divergence(a, p) - b
        step = (1 - p) * (excess * p / (p - a)).expm1()
        p = (p - step).clamp(max=_BELOW_ONE)
        if not ((step > 2.0**-50 * p) & (excess > ERROR / 8 * b)).any():
            break
    p = _certain(a, torch.where(inner, c, 0.1), torch.maximum(p, floor), 1.0)
    edge = -(-c).expm1()  # for q = 0
    edge = torch.where(edge > 0, edge * (1 + 2.0**-50), edge).clamp(max=1)
    outer = torch.where((q == 1) | (c == torch.inf), 1.0, torch.where(c == 0, q, edge))
    return torch.where(inner, p, outer)


def _below(q: Tensor, c: Tensor) -> Tensor:
    """The lower inverse: Newton from below in ln p, then outwards until it is certain."""
    inner = (q > 0) & (c > 0) & (c < torch.inf) & (q < 1)
    a, b = torch.where(inner, q, 0.5), _goal(torch.where(inner, c, 0.1))
    far = (-(b + _entropy(a)) / a).exp()
    starts = [a - (b / 2).sqrt(), a - (2 * a * b).sqrt(), a - (2 * (1 - a) * b).sqrt() - 2 * b]
    p = torch.stack([far, *starts]).amax(0).clamp(min=_TINY)
    ceiling = a.nextafter(torch.zeros_like(a))
    for _ in range(_STEPS):
        p = torch.minimum(p, ceiling)
        excess = bernoulli_divergence(a, p) - b
        rate = (excess * (1 - p) / (a - p)).expm1()
        p = (p + p * rate).clamp(min=_TINY)
        if not ((rate > 2.0**-50) & (excess > ERROR / 8 * b)).any():
            break
    p = _certain(a, torch.where(inner, c, 0.1), torch.minimum(p, ceiling), 0.0)
    edge = (-c).exp() * (1 - 2.0**-50)  # for q = 1
    outer = torch.where((q == 0) | (c == torch.inf), 0.0, torch.where(c == 0, q, edge))
    return torch.where(inner, p, outer)


def _goal(c: Tensor) -> Tensor:
    """A divergence that exceeds c even after the error of computing it is taken off."""
    return c * (1 + 1.2 * ERROR) + 2 * UNDERFLOW


def _certain(q: Tensor, c: Tensor, p: Tensor, end: float) -> Tensor:
    """Move p towards the end, in doubling steps, until its divergence is at least c for certain."""
    goal = torch.full_like(p, end)
    units = 1.0
    while True:
        least = bernoulli_divergence(q, p) * (1 - ERROR) - UNDERFLOW
        short = ~(least >= c) & (p != end)
        if not short.any():
            return p
        moved = p + (goal - p).sign() * units * 2.0**-53 * p
        moved = torch.where(moved == p, p.nextafter(goal), moved)
        moved = torch.where((moved >= 1) | (moved <= _TINY), goal, moved)
        p, units = torch.where(short, moved, p), 2 * units


def _entropy(q: Tensor) -> Tensor:
    return -(q * q.log() + (1 - q) * (-q).log1p())
