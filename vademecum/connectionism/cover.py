r"""Cover's count of the labellings that a hyperplane through the origin can realise.

Of the $2^s$ labellings of $s$ points in general position in $\mathbb{R}^n$ (every $n$ of them
linearly independent, or all if they are fewer), hyperplanes through the origin realise

$$C(s, n) = 2 \sum_{i=0}^{n-1} \binom{s-1}{i}.$$

A labelling drawn at random is separable with probability

$$\frac{C(s, n)}{2^s} = P\big(\mathrm{Bin}(s - 1, \tfrac12) \le n - 1\big) = I_{1/2}(s - n, n),$$

the last being the regularised incomplete beta function, for $s > n$; for $s \le n$ it is 1. It is
$\frac12$ at $s = 2n$, and a step there in the limit of large $n$: two points per weight.

The count is exact, the probability correct to some $10^{-13}$ in relative terms. `dichotomies`
finds the labellings themselves (claim `cover_counting`).
"""

from typing import overload

import torch
from jaxtyping import Float, Int
from scipy.special import betainc
from torch import Tensor

from vademecum.arguments import whole

__all__ = ["cover_count", "separable_probability"]


def cover_count(s: int, n: int) -> int:
    """The number $C(s, n)$ of labellings of `s` points in `n` dimensions, an exact integer.

    Args:
        s: The number of points, in general position.
        n: The dimension; 0 is allowed, where nothing can be separated.

    References:
        Cover, Geometrical and statistical properties of systems of linear inequalities with
        applications in pattern recognition, IEEE Transactions on Electronic Computers 14, 1965.

    Example:
        >>> cover_count(4, 2), cover_count(4, 3), cover_count(4, 4)
        (8, 14, 16)
    """
    whole("s", s, low=1)
    whole("n", n, low=0)
    total, term = 0, 1
    for i in range(min(n, s)):
        total += term
        term = term * (s - 1 - i) // (i + 1)
    return 2 * total


@overload
def separable_probability(s: int, n: int) -> float: ...
@overload
def separable_probability(s: Int[Tensor, " *shape"], n: int) -> Float[Tensor, " *shape"]: ...
def separable_probability(
    s: int | Int[Tensor, " *shape"], n: int
) -> float | Float[Tensor, " *shape"]:
    """The probability $C(s, n) / 2^s$ that a random labelling of `s` points is separable.

    Args:
        s: The number of points in general position: a number, or an integer tensor for a curve.
        n: The dimension of the points, which is the number of weights.

    Returns:
        A number, or a double-precision tensor on the device of `s`.

    Example:
        >>> separable_probability(8, 4)
        0.5
        >>> separable_probability(torch.tensor([2, 3, 4, 5]), 2)
        tensor([1.0000, 0.7500, 0.5000, 0.3125], dtype=torch.float64)
    """
    whole("n", n, low=0)
    if not isinstance(s, Tensor):
        return float(separable_probability(torch.tensor(whole("s", s, low=1, high=2**63 - 1)), n))
    if s.is_floating_point() or s.is_complex() or s.dtype == torch.bool:
        raise ValueError(f"s must be integers, got {s.dtype}")
    if s.numel() and s.min() < 1:
        raise ValueError(f"s must be >= 1, got {int(s.min())}")
    points = s.detach().cpu().double().numpy()
    if n == 0:
        return torch.zeros_like(s, dtype=torch.float64)
    tail = torch.as_tensor(betainc(points.clip(min=n + 1) - n, float(n), 0.5), device=s.device)
    return torch.where(s <= n, 1.0, tail)
