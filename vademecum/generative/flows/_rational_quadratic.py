r"""Increasing rational-quadratic splines on $[-B, B]$, the identity outside.

Between two knots with width $w$, height $h$, mean slope $s = h / w$ and slopes $d_0, d_1$ at the
ends, with $\theta = (x - x_0) / w$ and $q = s + (d_0 + d_1 - 2 s)\, \theta (1 - \theta) \ge s / 2$:

$$y = y_0 + h \frac{s \theta^2 + d_0 \theta (1 - \theta)}{q}, \qquad
y' = s^2 \frac{d_1 \theta^2 + 2 s \theta (1 - \theta) + d_0 (1 - \theta)^2}{q^2} .$$

The inverse solves a quadratic equation. With $t = (y - y_0) / h$ and $p = d_0 (1 - t) - d_1 t$ its
discriminant is $h^2 r^2$, $r^2 = p^2 + 4 s^2 t (1 - t)$: a sum of squares, which rounding cannot
make negative; and

$$\theta = \frac{2 s t}{p + r + 2 s t} \ (p \ge 0), \qquad
1 - \theta = \frac{2 s (1 - t)}{-p + r + 2 s (1 - t)} \ (p < 0)$$

add numbers of one sign only. Points outside are moved to 0 before anything is computed, and put
back afterwards, so that their gradients are finite, too. Exact up to rounding.

References:
    Durkan, Bekasov, Murray and Papamakarios, Neural spline flows, NeurIPS 2019.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.generative.flows._couplings import Bent

__all__ = ["bent_by_spline", "unbent_by_spline"]

_SHARE = 1e-3  # the least width and height of a bin, as a share of what equal bins would have
_LIMIT = math.log(1000)  # of the logarithms of slopes at knots


class _Bin(NamedTuple):
    """The bin of each point: its left lower corner, its sizes, and the slopes at both ends."""

    x0: Tensor
    y0: Tensor
    w: Tensor
    h: Tensor
    d0: Tensor
    d1: Tensor


def bent_by_spline(x: Tensor, numbers: Tensor, bound: float) -> Bent:
    """A spline with K bins, entry by entry.

    Args:
        x: Where, (n, m).
        numbers: Logits of K widths and of K heights, and logarithms of the K - 1 inner slopes,
            (n, 3 K - 1, m); all 0 gives the identity.
        bound: The outermost knots are at minus and plus this.
    """
    inside = x.abs() < bound
    safe = torch.where(inside, x, 0.0)
    at = _bin(safe, numbers, bound, along=0)
    theta = ((safe - at.x0) / at.w).clamp(0, 1)
    s, inner = at.h / at.w, theta * (1 - theta)
    q = s + (at.d0 + at.d1 - 2 * s) * inner
    y = at.y0 + at.h * (s * theta.square() + at.d0 * inner) / q
    return Bent(torch.where(inside, y, x), torch.where(inside, _log_slope(at, theta, s, q), 0.0))


def unbent_by_spline(y: Tensor, numbers: Tensor, bound: float) -> Bent:
    """The inverse of `bent_by_spline`, with the same arguments."""
    inside = y.abs() < bound
    safe = torch.where(inside, y, 0.0)
    at = _bin(safe, numbers, bound, along=1)
    t = ((safe - at.y0) / at.h).clamp(0, 1)
    s = at.h / at.w
    p = at.d0 * (1 - t) - at.d1 * t
    r = (p.square() + 4 * s.square() * t * (1 - t)).sqrt()
    near = 2 * s * torch.where(p >= 0, t, 1 - t)
    part = near / (p.abs() + r + near)
    theta = torch.where(p >= 0, part, 1 - part)
    q = s + (at.d0 + at.d1 - 2 * s) * theta * (1 - theta)
    x = at.x0 + at.w * theta
    return Bent(torch.where(inside, x, y), torch.where(inside, -_log_slope(at, theta, s, q), 0.0))


def _log_slope(at: _Bin, theta: Tensor, s: Tensor, q: Tensor) -> Tensor:
    other = 1 - theta
    rise = at.d1 * theta.square() + 2 * s * theta * other + at.d0 * other.square()
    return torch.log((s / q).square() * rise)


def _bin(x: Tensor, numbers: Tensor, bound: float, *, along: int) -> _Bin:
    """Find the bin of each point, among widths (0) or heights (1)."""
    n, total, m = numbers.shape
    K = (total + 1) // 3
    shares = numbers[:, : 2 * K].view(n, 2, K, m).softmax(2)
    least = _SHARE / K
    ends = shares.cumsum(2)
    with torch.no_grad():
        inner = least * torch.arange(1, K, dtype=x.dtype, device=x.device)[:, None]
        knots = inner + (1 - _SHARE) * ends[:, along, :-1]
        k = (knots <= ((x / bound + 1) / 2)[:, None]).sum(1, keepdim=True)
    index = k[:, None].expand(n, 2, 1, m)
    share = shares.gather(2, index)[:, :, 0]
    start = ends.gather(2, index)[:, :, 0] - share
    size = 2 * bound * (least + (1 - _SHARE) * share)
    corner = 2 * bound * (least * k.to(x.dtype) + (1 - _SHARE) * start) - bound
    slopes = numbers[:, 2 * K :]
    left = torch.where(k > 0, slopes.gather(1, (k - 1).clamp_min(0)), 0.0)
    right = torch.where(k < K - 1, slopes.gather(1, k.clamp_max(K - 2)), 0.0)
    d = torch.cat((left, right), 1)
    d = (d / (1 + d.abs() / _LIMIT)).exp()
    return _Bin(corner[:, 0], corner[:, 1], size[:, 0], size[:, 1], d[:, 0], d[:, 1])
