r"""Uniform draws from the balls of three norms.

In $d$ dimensions, with independent $U$ uniform on $[0, 1]$, $g_i$ normal, $E_i$ exponential and
random signs $s_i$,

- $p = \infty$: the entries are independent and uniform on $[-\epsilon, \epsilon]$;
- $p = 2$: $\epsilon\, U^{1/d}\, g / \|g\|_2$;
- $p = 1$: $\epsilon\, s_i E_i / (E_1 + \dots + E_{d+1})$, since the spacings of $d$ uniform numbers
  are uniform on the simplex.

For all three $P(\|r\|_p \le \rho) = (\rho / \epsilon)^d$. Up to rounding, towards 0, so that no
draw lies outside, the law is exact. The claim is `robustness.uniform_ball_start`.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import choice, number, whole
from vademecum.randomness import place, source

__all__ = ["sample_ball", "unit_ball"]


def sample_ball(
    n: int,
    shape: Sequence[int],
    *,
    norm: Literal["linf", "l2", "l1"],
    radius: float,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    generator: torch.Generator | None = None,
) -> Float[Tensor, " {n} ..."]:
    r"""Draw n points of the ball around 0, uniformly.

    Args:
        n: How many.
        shape: The shape of one.
        norm: The norm of the ball.
        radius: Its radius.
        dtype: The dtype of the result; torch's default if None.
        device: The device of the result; that of the generator, or torch's default, if None.
        generator: Where random numbers come from; torch's global generator by default.

    Example:
        >>> x = sample_ball(1000, (3, 5), norm="l1", radius=2.0)
        >>> x.shape, bool(x.flatten(1).abs().sum(1).max() <= 2)
        (torch.Size([1000, 3, 5]), True)
    """
    whole("n", n, low=1)
    choice("norm", norm, ("linf", "l2", "l1"))
    r = float(number("radius", radius, low=0))
    shape = tuple(whole("shape", size, low=1) for size in shape)
    dtype, device = place(generator, dtype, device)
    drawn = source(generator, device)
    like = torch.empty(n, *shape, dtype=dtype, device=drawn["device"])
    return _narrowed(r * _wide(like, norm, generator), dtype).view(like.shape).to(device)


def unit_ball(like: Tensor, norm: str, generator: torch.Generator | None) -> Tensor:
    """Draws from the unit ball, one for each example of a tensor, drawn where it lies.

    Example:
        >>> unit_ball(torch.empty(2, 3), "linf", torch.Generator()).abs().max() <= 1
        tensor(True)
    """
    return _narrowed(_wide(like, norm, generator), like.dtype).view(like.shape)


def _wide(like: Tensor, norm: str, generator: torch.Generator | None) -> Tensor:
    """Draws (n, d) from the unit ball, in single precision at least: sums need it."""
    v = like.new_empty(
        len(like), like[0].numel(), dtype=torch.promote_types(like.dtype, torch.float32)
    )
    eps, tiny = torch.finfo(v.dtype).eps, torch.finfo(v.dtype).tiny
    if norm == "linf":
        return v.uniform_(-1, 1, generator=generator).mul_(1 - 4 * eps)
    if norm == "l2":
        v.normal_(generator=generator)
        u = v.new_empty(len(v), 1).uniform_(generator=generator) ** (1 / v.shape[1])
        size = torch.linalg.vector_norm(v, dim=1, keepdim=True).clamp(min=tiny)
    else:
        v.exponential_(generator=generator)
        size = v.sum(1, keepdim=True) + torch.empty_like(v[:, :1]).exponential_(generator=generator)
        v *= torch.empty_like(v).uniform_(-1, 1, generator=generator).sign()
        u = torch.ones_like(size)
    shrink = 1 - (4 + len(v[0]) ** 0.5) * eps  # what rounding of entries and sums may add
    return v * (shrink * u / size)


def _narrowed(v: Tensor, dtype: torch.dtype) -> Tensor:
    """The same in another dtype, rounded towards 0."""
    if v.dtype == dtype:
        return v
    near = v.to(dtype)
    beyond = near.to(v.dtype).abs() > v.abs()
    return torch.where(beyond, torch.nextafter(near, torch.zeros_like(near)), near)
