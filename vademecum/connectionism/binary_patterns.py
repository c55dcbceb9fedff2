r"""Sparse binary patterns, and how many of them a memory of binary weights can hold.

The patterns with exactly $r$ active of $n$ units,

$$\mathbb{B}^n_r = \Big\{x \in \{0, 1\}^n : \sum_i x_i = r\Big\},$$

are $\binom{n}{r}$ in number, so one carries $\log_2 \binom{n}{r}$ bits. A memory with $n^2$ binary
weights has $2^{n^2}$ states. If it is to recall every choice of $s$ patterns it needs a state for
each, so that

$$s \le \frac{n^2}{\log_2 \binom{n}{r}}.$$

Patterns are drawn by Floyd's method, all rows at once: for $j = n - r, \dots, n - 1$ activate a
unit drawn from $0, \dots, j$, or the unit $j$ if that one is active already. Every set of $r$ units
then has the same probability, exactly.
"""

import math

import torch
from jaxtyping import Bool
from scipy.special import betaln
from torch import Tensor

from vademecum.arguments import whole
from vademecum.randomness import source, whence

__all__ = ["sparse_capacity_bound", "sparse_patterns"]


def sparse_patterns(
    count: int,
    n: int,
    r: int,
    *,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
) -> Bool[Tensor, " count n"]:
    r"""Independent random patterns, each uniform on $\mathbb{B}^n_r$.

    Args:
        count: The number of patterns.
        n: The number of units.
        r: The number of active units in each pattern.
        generator: Where random numbers come from; torch's global generator by default.
        device: Where the patterns shall be; by default where the generator is.

    References:
        Bentley, Floyd, Programming pearls: a sample of brilliance, Communications of the ACM 30,
        1987.

    Example:
        >>> sparse_patterns(2, 3, 3)
        tensor([[True, True, True],
                [True, True, True]])
        >>> sparse_patterns(1000, 500, 7).sum(1).unique()
        tensor([7])
    """
    whole("count", count, low=1)
    whole("n", n, low=1)
    whole("r", r, low=0, high=n)
    own = whence(generator, None)
    device = own if device is None else device
    chosen = min(r, n - r)  # where most units are active, draw those that are not
    x = torch.zeros(count, n, dtype=torch.bool, device=device)
    for j in range(n - chosen, n):
        unit = torch.randint(j + 1, (count, 1), **source(generator, device)).to(x.device)
        unit.masked_fill_(x.gather(1, unit), j)
        x.scatter_(1, unit, True)
    return x if chosen == r else ~x


def sparse_capacity_bound(n: int, r: int) -> float:
    r"""The most patterns of $\mathbb{B}^n_r$ that $n^2$ binary weights can hold, whatever the rule.

    Args:
        n: The number of units, and of weights into each.
        r: The number of active units in each pattern, from 1 to $n - 1$.

    Returns:
        $n^2 / \log_2 \binom{n}{r}$.

    Example:
        >>> round(sparse_capacity_bound(4, 1), 9)  # 16 bits, 2 for each pattern
        8.0
        >>> round(sparse_capacity_bound(4096, 12))
        145710
    """
    whole("n", n, low=2)
    whole("r", r, low=1, high=n - 1)
    log_binomial = -math.log1p(n) - float(betaln(n - r + 1, r + 1))
    return n * n * math.log(2) / log_binomial
