"""An activation of two Gaussian signals: moments of what it gives, and of its slopes."""

import math
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

__all__ = ["slope_of", "through"]


@cache
def _grid(n: int) -> tuple[Tensor, Tensor]:
    z = torch.linspace(-9, 9, n, dtype=torch.float64)
    w = torch.exp(-z * z / 2)
    return z, w / w.sum()


def slope_of(function: Callable[[Tensor], Tensor], u: Tensor) -> tuple[Tensor, Tensor]:
    """What a function of each entry gives, and its slope there."""
    with torch.enable_grad():
        u = u.detach().requires_grad_()
        out = function(u * 1)
        if not out.requires_grad:
            return out, torch.zeros_like(out)
        (slope,) = torch.autograd.grad(out.sum(), u)
    return out.detach(), slope


def through(
    function: Callable[[Tensor], Tensor], q: float, p: float, m: float
) -> tuple[float, float, float, float, float]:
    """E phi(u)^2, E phi(u) phi(u'), E phi(u), E phi'(u)^2, E phi'(u) phi'(u')."""
    s = math.sqrt(max(q - m * m, 0.0))
    cov = min(max((p - m * m) / (s * s), 0.0), 1.0) if s else 1.0
    z, w = _grid(4001)
    out, slope = slope_of(function, m + s * z)
    first = float(out @ w), float((out * out) @ w), float((slope * slope) @ w)
    z, w = _grid(401)
    u = m + s * (math.sqrt(cov) * z[:, None] + math.sqrt(1 - cov) * z)
    out, slope = slope_of(function, u)
    cross = [float((each @ w).square() @ w) for each in (out, slope)]
    if cov == 1:
        cross = [first[1], first[2]]
    return first[1], cross[0], first[0], first[2], cross[1]
