r"""Concentration: how far a random variable strays from its mean, and how many samples that takes.

For $X \ge 0$ and $a > 0$ (Markov), for the mean $\bar X$ of $n$ independent variables with mean
$\mu$ and variance $\sigma^2$ (Chebyshev, and one-sided Cantelli), and for independent
$Z_i \in [\mathrm{low}_i, \mathrm{high}_i]$ (Hoeffding), with $\epsilon > 0$:

$$P(X \ge a) \le \frac{\mathbb E[X]}{a}, \qquad
P(|\bar X - \mu| \ge \epsilon) \le \frac{\sigma^2}{n \epsilon^2}, \qquad
P(\bar X - \mu \ge \epsilon) \le \frac{\sigma^2}{\sigma^2 + n \epsilon^2},$$

$$P\Big(\frac1n \sum_{i=1}^n (Z_i - \mathbb E Z_i) \ge \epsilon\Big)
\le \exp\Big(-\frac{2 n^2 \epsilon^2}{\sum_i (\mathrm{high}_i - \mathrm{low}_i)^2}\Big),$$

twice that for the absolute value. Bounds above 1 are returned as 1. Numbers give a number, tensors
a tensor. Each bound is evaluated as it stands; a sample size is the smallest $n$ whose bound, as
computed here in double precision, is at most $\delta$. Markov's bound does not improve with $n$.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vademecum.arguments import broadcasting, floats, number, whole
from vademecum.arrays import lengths

__all__ = [
    "chebyshev_bound", "chebyshev_sample_size", "hoeffding_bound", "hoeffding_sample_size",
    "markov_bound",
]  # fmt: skip

Real = float | Float[Tensor, " ..."]
Count = int | Int[Tensor, " ..."]
Result = Any  # a number for numbers, a tensor for tensors: not a union, which no caller could use


def markov_bound(mean: Real, a: Real) -> Result:
    r"""Markov's bound $\mathbb E[X] / a$ on $P(X \ge a)$ for $X \ge 0$.

    Args:
        mean: The mean $\mathbb E[X] \ge 0$.
        a: The level, > 0.

    Example:
        >>> markov_bound(1.0, 4.0), markov_bound(1.0, 0.5)
        (0.25, 1.0)
    """
    m, level = _tensors(mean=mean, a=a)
    _broadcast(mean=m, a=level)
    _insist("mean", m, m >= 0, ">= 0")
    _insist("a", level, level > 0, "> 0")
    return _given_back((m / level).clamp(max=1), mean, a)


def chebyshev_bound(
    variance: Real, epsilon: Real, n: Count = 1, *, two_sided: bool = True
) -> Result:
    r"""Chebyshev's bound on the probability that a mean of `n` variables is off by `epsilon`.

    Args:
        variance: The variance $\sigma^2$ of each of them, which must be uncorrelated.
        epsilon: The error, > 0.
        n: How many there are.
        two_sided: Whether errors in both directions count; if not, the bound is Cantelli's.

    References:
        Cantelli, Sui confini della probabilità, Atti del Congresso Internazionale dei Matematici,
        1928.

    Example:
        >>> chebyshev_bound(1.0, 2.0), chebyshev_bound(1.0, 2.0, two_sided=False)
        (0.25, 0.2)
        >>> chebyshev_bound(1.0, 0.5, torch.tensor([4, 16]))
        tensor([1.0000, 0.2500], dtype=torch.float64)
    """
    v, e = _spread(variance, epsilon)
    size = _count(n)
    _broadcast(variance=v, epsilon=e, n=size)
    return _given_back(_chebyshev(v, e, size, two_sided=two_sided), variance, epsilon, n)


def chebyshev_sample_size(
    variance: Real, epsilon: Real, delta: Real, *, two_sided: bool = True
) -> Result:
    r"""The smallest `n` for which `chebyshev_bound` is at most `delta`.

    Args:
        variance: The variance of each variable.
        epsilon: The error that the mean may have, > 0.
        delta: The probability with which it may have it, in (0, 1).
        two_sided: Whether errors in both directions count.

    Example:
        >>> chebyshev_sample_size(0.25, 0.1, 0.05)  # 1 / (4 * 0.01 * 0.05)
        500
    """
    v, e = (x.double() for x in _spread(variance, epsilon))
    d = _delta(delta)
    _broadcast(variance=v, epsilon=e, delta=d)
    guess = v / e / e * (1 / d if two_sided else (1 - d) / d)
    bound = partial(_chebyshev, v, e, two_sided=two_sided)
    return _smallest(guess, bound, d, variance, epsilon, delta)


def hoeffding_bound(
    epsilon: Real,
    n: Count | None = None,
    *,
    low: Real = 0.0,
    high: Real = 1.0,
    two_sided: bool = True,
) -> Result:
    r"""Hoeffding's bound on the probability that a mean of bounded variables is off by `epsilon`.

    Args:
        epsilon: The error of the mean, > 0.
        n: How many independent variables there are, all with the range from `low` to `high`;
            without it, the last axis of these two runs over the variables.
        low: What the variables are at least.
        high: What they are at most.
        two_sided: Whether errors in both directions count, which doubles the bound.

    References:
        Hoeffding, Probability inequalities for sums of bounded random variables, Journal of the
        American Statistical Association, 1963.

    Example:
        >>> hoeffding_bound(0.1, 150, two_sided=False)  # exp(-3)
        0.0497...
        >>> hoeffding_bound(1.0, high=torch.tensor([1.0, 2.0]))  # 2 exp(-8/5)
        tensor(0.4038)
    """
    e, width = _range(epsilon, low, high)
    if n is None:
        if width.ndim == 0:
            raise ValueError("n must be given where low and high have no axis, got None")
        size = torch.tensor(width.shape[-1])
        width = lengths(width, -1) / width.shape[-1] ** 0.5
    else:
        size = _count(n)
    _broadcast(**{"epsilon": e, "high - low": width, "n": size})
    return _given_back(_hoeffding(e, width, size, two_sided=two_sided), epsilon, n, low, high)


def hoeffding_sample_size(
    epsilon: Real, delta: Real, *, low: Real = 0.0, high: Real = 1.0, two_sided: bool = True
) -> Result:
    r"""The smallest `n` for which `hoeffding_bound` is at most `delta`.

    Args:
        epsilon: The error that the mean may have, > 0.
        delta: The probability with which it may have it, in (0, 1).
        low: What each variable is at least.
        high: What it is at most.
        two_sided: Whether errors in both directions count.

    Example:
        >>> hoeffding_sample_size(0.1, 0.05)  # 50 ln 40 = 184.4
        185
    """
    e, width = (x.double() for x in _range(epsilon, low, high))
    d = _delta(delta)
    _broadcast(**{"epsilon": e, "high - low": width, "delta": d})
    guess = ((1 + two_sided) / d).log() * (width / e).square() / 2
    bound = partial(_hoeffding, e, width, two_sided=two_sided)
    return _smallest(guess, bound, d, epsilon, delta, low, high)


def _chebyshev(v: Tensor, e: Tensor, n: Tensor, *, two_sided: bool) -> Tensor:
    return (v / e / e / n).clamp(max=1) if two_sided else 1 / (1 + n * (e / v) * e)


def _hoeffding(e: Tensor, width: Tensor, n: Tensor, *, two_sided: bool) -> Tensor:
    return ((1 + two_sided) * (-2 * n * (e / width).square()).exp()).clamp(max=1)


def _smallest(
    guess: Tensor, bound: Callable[[Tensor], Tensor], delta: Tensor, *given: object
) -> Result:
    """The smallest n whose bound is at most `delta`, near a guess that rounding may have moved."""
    if (guess >= 2**53).any():
        raise ValueError(
            f"epsilon must be so large that less than 2**53 samples do, got {guess.max():.3g}"
        )
    n = guess.ceil().clamp(min=1)
    while (more := bound(n) > delta).any():
        n = n + more
    while (fewer := (n > 1) & (bound(n - 1) <= delta)).any():
        n = n - fewer.to(n.dtype)
    return _given_back(n.long(), *given)


def _spread(variance: Real, epsilon: Real) -> list[Tensor]:
    v, e = _tensors(variance=variance, epsilon=epsilon)
    return [_insist("variance", v, v >= 0, ">= 0"), _insist("epsilon", e, e > 0, "> 0")]


def _range(epsilon: Real, low: Real, high: Real) -> list[Tensor]:
    e, a, b = _tensors(epsilon=epsilon, low=low, high=high)
    _broadcast(low=a, high=b)
    width = b - a
    _insist("high - low", width, width >= 0, ">= 0")
    return [_insist("epsilon", e, e > 0, "> 0"), width]


def _delta(delta: Real) -> Tensor:
    (d,) = _tensors(delta=delta)
    return _insist("delta", d, (d > 0) & (d < 1), "in (0, 1)").double()


def _count(n: Count) -> Tensor:
    if not isinstance(n, Tensor):
        return torch.tensor(whole("n", n, low=1, high=2**63 - 1))
    if n.is_floating_point() or n.is_complex() or n.dtype == torch.bool or n.numel() == 0:
        raise ValueError(f"n must hold integers, got {n.dtype}, shape {tuple(n.shape)}")
    return _insist("n", n, n >= 1, ">= 1")


def _tensors(**values: Real) -> list[Tensor]:
    """All as finite real tensors; numbers take the dtype and device of the tensors, or double."""
    like = next((v for v in values.values() if isinstance(v, Tensor)), torch.zeros(()).double())
    found = []
    for name, v in values.items():
        if not isinstance(v, Tensor):
            v = torch.tensor(number(name, v), dtype=like.dtype, device=like.device)
        found.append(floats(name, v))
        if v.is_complex() or (v.dtype, v.device) != (like.dtype, like.device):
            raise ValueError(
                f"{name} must be real, of one dtype and device with the other tensors,"
                f" got {v.dtype} on {v.device}"
            )
    return found


def _broadcast(**tensors: Tensor) -> None:
    broadcasting("shapes", {name: x.shape for name, x in tensors.items()})


def _insist(name: str, x: Tensor, good: Tensor, rule: str) -> Tensor:
    if not good.all():
        raise ValueError(f"{name} must be {rule}, got {x[~good][0].item():g}")
    return x


def _given_back(result: Tensor, *given: object) -> Result:
    """A number if nothing but numbers was given."""
    return result if any(isinstance(x, Tensor) for x in given) else result.item()
