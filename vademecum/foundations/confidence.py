r"""Exact confidence intervals for a probability, from counts.

Of $n$ independent trials $k$ succeeded, each with probability $p$. Clopper and Pearson's limits are
the values of $p$ at which as many successes, or as few, would be as unlikely as $\alpha$ allows:

$$\sum_{j \ge k} \binom nj \mathrm{low}^j (1 - \mathrm{low})^{n-j} = I_{\mathrm{low}}(k, n - k + 1)
= \frac\alpha2 = 1 - I_{\mathrm{high}}(k + 1, n - k), \qquad \alpha = 1 - \mathrm{confidence},$$

with the regularised incomplete beta function $I$; $\mathrm{low} = 0$ for $k = 0$ and
$\mathrm{high} = 1$ for $k = n$. A one-sided limit spends all of $\alpha$. Whatever $p$ is, the
interval contains it with at least the stated confidence; claim
`foundations.clopper_pearson_coverage` enumerates it.

The limits are exact up to rounding, to a relative error of $10^{-10}$ for $n$ up to $10^9$; more
than $10^{15}$ trials, for which the beta function fails in double precision, are refused. SciPy
inverts the beta function, bisection does where that misses, which it can by a factor of two,
and a step of Newton's method removes what a stopping rule left.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from vademecum.arguments import broadcasting, choice, number, whole
from vademecum.results import one_line

__all__ = ["ConfidenceInterval", "clopper_pearson", "clopper_pearson_sample_size"]

Count = int | Int[Tensor, " ..."]
Limit = Any  # a number for numbers, a tensor of doubles for tensors
Array = np.ndarray | np.float64

_MOST = 10**15


class ConfidenceInterval(NamedTuple):
    """An interval, or many.

    Example:
        >>> low, high = clopper_pearson(1, 1, confidence=0.9, side="lower")
        >>> round(low, 9), high
        (0.1, 1.0)
    """

    low: Limit
    """The lower limit."""
    high: Limit
    """The upper limit."""

    __repr__ = one_line


def clopper_pearson(
    successes: Count,
    trials: Count,
    *,
    confidence: float = 0.95,
    side: Literal["both", "lower", "upper"] = "both",
) -> ConfidenceInterval:
    r"""An interval that contains the probability of success with at least the confidence stated.

    The counts are numbers, or tensors that broadcast. SciPy computes on the CPU in double
    precision, whatever device the counts are on; the limits go back there.

    Args:
        successes: How many trials succeeded, $k$.
        trials: How many there were, from 1 to $10^{15}$.
        confidence: What the interval promises, in (0, 1).
        side: Whether to bound the probability from both sides, from below ("lower", the upper limit
            is 1) or from above ("upper", the lower limit is 0).

    Raises:
        ValueError: If the counts are no integers in these ranges.

    References:
        Clopper and Pearson, The use of confidence or fiducial limits illustrated in the case of the
        binomial, Biometrika, 1934.

    Example:
        >>> low, high = clopper_pearson(0, 10, confidence=0.95)
        >>> low, round(high, 6)  # 1 - 0.025 ** (1 / 10)
        (0.0, 0.308497)
        >>> clopper_pearson(torch.tensor([99, 100]), 100, confidence=0.999, side="lower").low
        tensor([0.9114, 0.9333], dtype=torch.float64)
    """
    k, n = _counts(successes, trials)
    choice("side", side, ("both", "lower", "upper"))
    alpha = 1 - number("confidence", confidence, above=0, below=1)
    alpha = alpha / 2 if side == "both" else alpha
    low = np.zeros_like(k) if side == "upper" else _limit(k, n - k + 1, alpha, upper=False)
    high = np.ones_like(k) if side == "lower" else _limit(k + 1, n - k, alpha, upper=True)
    like = next((x for x in (successes, trials) if isinstance(x, Tensor)), None)
    if like is None:
        return ConfidenceInterval(float(low), float(high))
    return ConfidenceInterval(
        *(torch.as_tensor(limit, device=like.device) for limit in (low, high))
    )


def clopper_pearson_sample_size(epsilon: float, *, confidence: float = 0.95) -> int:
    r"""The smallest number of trials after which no two-sided interval is longer than $2 \epsilon$.

    The longest interval is that of half as many successes as trials, and it shrinks as $n$ grows:
    enumerated for $n \le 300$, and taken for granted beyond.

    Args:
        epsilon: Half the length that the interval may have, in (0, 1/2).
        confidence: The confidence of the interval.

    Raises:
        ValueError: If more than $10^{15}$ trials would be needed.

    Example:
        >>> clopper_pearson_sample_size(0.1)
        104
    """
    number("epsilon", epsilon, above=0, below=0.5)

    def short(n: int) -> bool:
        low, high = clopper_pearson(n // 2, n, confidence=confidence)
        return bool(high - low <= 2 * epsilon)

    enough = 1
    while not short(enough):
        if enough == _MOST:
            raise ValueError(f"epsilon must be so large that 1e15 trials do, got {epsilon}")
        enough = min(2 * enough, _MOST)
    few = enough // 2
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if short(middle) else (middle, enough)
    return enough


def _limit(a: Array, b: Array, alpha: float, *, upper: bool) -> Array:
    r"""Where the beta law with $a, b \ge 0$ has the mass `alpha` below it, or above."""
    from scipy.special import betainc, betaincc, betainccinv, betaincinv, betaln, xlog1py, xlogy

    inside = (a > 0) & (b > 0)
    edge = np.where(a > 0, 1.0, 0.0)
    a, b = np.where(inside, a, 1.0), np.where(inside, b, 1.0)
    tail, inverse = (betaincc, betainccinv) if upper else (betainc, betaincinv)
    x = np.array(inverse(a, b, alpha))
    lost = np.abs(tail(a, b, x) - alpha) > 1e-6 * alpha
    x[lost] = _bisect(a[lost], b[lost], alpha, upper=upper)
    slope = np.exp(xlogy(a, x) + xlog1py(b - 1, -x) - betaln(a, b))  # of the tail in ln x
    off = np.where(slope > 0, tail(a, b, x) - alpha, 0.0) / np.where(slope > 0, slope, 1.0)
    x = np.where(x < 1, np.clip(x * (1 + off if upper else 1 - off), 0, 1), 1.0)
    return np.where(inside, x, edge)


def _bisect(a: np.ndarray, b: np.ndarray, alpha: float, *, upper: bool) -> np.ndarray:
    """The same in log-odds: SciPy's inverse is lost at a = 1000, b = 10**9 - 999, for one."""
    from scipy.special import betainc, betaincc, expit

    low, high = np.full_like(a, -750.0), np.full_like(a, 750.0)
    for _ in range(64):
        middle = (low + high) / 2
        x = expit(middle)
        left = betaincc(a, b, x) > alpha if upper else betainc(a, b, x) < alpha
        low, high = np.where(left, middle, low), np.where(left, high, middle)
    return expit((low + high) / 2)


def _counts(successes: Count, trials: Count) -> tuple[np.ndarray, np.ndarray]:
    found = []
    for name, x in (("successes", successes), ("trials", trials)):
        if not isinstance(x, Tensor):
            found.append(np.float64(whole(name, x, high=_MOST)))
            continue
        if x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
            raise ValueError(f"{name} must hold integers, got {x.dtype}")
        if x.numel() == 0:
            raise ValueError(f"{name} must not be empty, got shape {tuple(x.shape)}")
        found.append(x.cpu().double().numpy())
    broadcasting("shapes", {"successes": found[0].shape, "trials": found[1].shape})
    k, n = np.broadcast_arrays(*found)
    if (n < 1).any():
        raise ValueError(f"trials must be >= 1, got {n.min():.0f}")
    if (n > _MOST).any():
        raise ValueError(f"trials must be <= {_MOST}, got {n.max():.0f}")
    if (k < 0).any() or (k > n).any():
        bad = np.argmax((k < 0) | (k > n))
        raise ValueError(
            f"successes must be from 0 to trials, got {k.flat[bad]:.0f} of {n.flat[bad]:.0f}"
        )
    return k, n
