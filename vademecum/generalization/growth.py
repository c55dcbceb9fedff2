r"""Growth functions of classes of functions with values 0 and 1, and Sauer's bound of them.

$$S_{\mathcal F}(n) = \max_{x_1, \dots, x_n} |\{(f(x_1), \dots, f(x_n)) : f \in \mathcal F\}|
\le 2^n, \qquad S_{\mathcal F}(n) \le \sum_{i=0}^{\mathrm{VC}(\mathcal F)} \binom ni.$$

| family | functions | growth | VC dimension |
|---|---|---|---|
| "thresholds" | $1[x \ge t]$ on the line | $n + 1$ | 1 |
| "intervals" | $1[a \le x \le b]$ on the line, or nowhere 1 | $\binom{n+1}2 + 1$ | 2 |
| "half-spaces" | $1[w^\top x \ge b]$ in $d$ dim. | $2 \sum_{i \le d} \binom{n-1}i$ | $d + 1$ |
| "homogeneous half-spaces" | $b = 0$ | $2 \sum_{i < d} \binom{n-1}i$ | $d$ |
| "rectangles" | products of $d$ intervals | by Sauer's bound only | $2 d$ |

The counts are exact integers. A finite class is a table of its values, with a row for each function
and a column for each point; its growth is enumerated. The claims are `growth_function` and
`sauer_lemma`.
"""

import math
from itertools import combinations
from typing import Any, Literal

import torch
from jaxtyping import Shaped
from torch import Tensor

from vademecum.arguments import bits, choice, whole
from vademecum.connectionism import cover_count

__all__ = ["growth_function", "sauer_bound"]

Family = Literal["thresholds", "intervals", "half-spaces", "homogeneous half-spaces", "rectangles"]
FAMILIES = "thresholds", "intervals", "half-spaces", "homogeneous half-spaces", "rectangles"
Table = Shaped[Tensor, " functions points"]

_MOST = 62  # columns of one code, a bit each
_PORTION = 2**22  # codes at a time, 8 bytes each


def sauer_bound(n: int, dimension: int) -> int:
    r"""The most labellings of `n` points by a class of this VC dimension, $\sum_i \binom ni$.

    Args:
        n: The number of points.
        dimension: The VC dimension $d$ of the class; the sum ends with $\binom nd$.

    References:
        Sauer, On the density of families of sets, Journal of Combinatorial Theory A, 1972.

    Example:
        >>> sauer_bound(5, 2), sauer_bound(5, 7)  # 1 + 5 + 10, 2 ** 5
        (16, 32)
    """
    whole("n", n, low=0)
    whole("dimension", dimension, low=0)
    total, term = 0, 1
    for i in range(min(n, dimension) + 1):
        total += term
        term = term * (n - i) // (i + 1)
    return total


def growth_function(family: Family | Table, n: int, *, d: int | None = None) -> int:
    r"""The most labellings that a class gives to `n` points, $S_{\mathcal F}(n)$, exactly.

    Args:
        family: The name of a family, or the values 0 and 1 of a finite class, with a row for each
            function and a column for each point of its domain. A table is enumerated: all sets of
            `n` of its points.
        n: The number of points; for a table at most as many as it has.
        d: The dimension of half-spaces.

    Raises:
        ValueError: If the family is unknown, its growth has no formula ("rectangles": see
            `sauer_bound`), or `d` is missing or has no meaning.

    Example:
        >>> growth_function("intervals", 4), growth_function("half-spaces", 4, d=2)
        (11, 14)
        >>> growth_function(torch.tensor([[0, 0, 0], [0, 0, 1], [0, 1, 1], [1, 1, 1]]), 2)
        3
    """
    if isinstance(family, Tensor):
        return _enumerated(table(family), whole("n", n, low=0, high=family.shape[1]))
    d = dimension_of_domain(family, d)
    whole("n", n, low=0)
    if family == "rectangles" and d == 1:
        family = "intervals"
    if family == "rectangles":
        raise ValueError("family must have a formula for its growth, got 'rectangles'")
    if n == 0:
        return 1
    return {
        "thresholds": lambda: n + 1,
        "intervals": lambda: n * (n + 1) // 2 + 1,
        "half-spaces": lambda: cover_count(n, d + 1),
        "homogeneous half-spaces": lambda: cover_count(n, d),
    }[family]()


def dimension_of_domain(family: Any, d: int | None) -> int:
    """The dimension of the points of a named family: 1 on the line, else it must be given."""
    choice("family", family, FAMILIES)
    if family in ("thresholds", "intervals"):
        if d not in (None, 1):
            raise ValueError(f"d must be 1 for {family}, got {d}")
        return 1
    if d is None:
        raise ValueError(f"d must be given for {family}, got None")
    return whole("d", d, low=1)


def table(values: Tensor) -> Tensor:
    """The distinct rows of a table of zeros and ones, as integers."""
    values = bits("family", values, ndim=2)
    return values.to(torch.uint8).unique(dim=0)


def codes(values: Tensor, columns: Tensor) -> Tensor:
    """What each function says on each set of columns, as one number: (sets, functions)."""
    found = torch.zeros(len(columns), len(values), dtype=torch.int64, device=values.device)
    for column in columns.T:
        found.mul_(2).add_(values.T[column])
    return found


def _enumerated(values: Tensor, n: int) -> int:
    if n > _MOST:
        raise ValueError(f"n must be <= {_MOST} for a table, got {n}")
    if n == 0:
        return 1
    most, full = 0, min(len(values), 2**n)
    sets = combinations(range(values.shape[1]), n)
    size = max(_PORTION // len(values), 1)
    for _ in range(math.ceil(math.comb(values.shape[1], n) / size)):
        chosen = [each for each, _ in zip(sets, range(size), strict=False)]
        columns = torch.tensor(chosen, dtype=torch.int64, device=values.device).view(-1, n)
        found = codes(values, columns).sort(1).values
        most = max(most, int((found.diff(dim=1) != 0).sum(1).max()) + 1)
        if most == full:
            break
    return most
