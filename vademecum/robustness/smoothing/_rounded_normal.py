r"""The rounded normal law on the integers, drawn exactly up to $2^{-63}$ for each atom.

With the scale $s$ and $Z \sim \mathcal N(0, 1)$ the integer nearest to $s Z$ has the distribution
function

$$P(K \le k) = \Phi\Big(\frac{k + \frac12}{s}\Big), \qquad
\Phi(t) = \frac12 + \varphi(t) \sum_{j \ge 0} \frac{t^{2j+1}}{1 \cdot 3 \cdots (2j+1)} .$$

The series has terms of one sign, so that forty decimal digits lose nothing that
matters. Its values, rounded to
whole multiples $T_k$ of $2^{-63}$, are the *thresholds*: a fair draw $u$ of 63 bits gives the
number $K = \min\{k : u < T_k\}$. Every atom is off by at most $2^{-63}$, and the tails beyond the
$2 m + 1$ integers that can occur have less than $2^{-63}$ together: the law of $K$ and the true one
differ in total variation by at most $(m + 2)\, 2^{-63}$.

Most draws need no search. The first 16 bits name one of 65,536 cells, and a table says which
number belongs to it; only where a threshold lies inside the cell, one draw in a hundred, are
the other 47 bits drawn and looked for among the thresholds.
"""

from copy import copy
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from vademecum.randomness import source

__all__ = ["RoundedNormal", "thresholds"]

_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
_DIGITS = 40
_BITS, _FIRST = 63, 16
_REST = _BITS - _FIRST
_WIDEST = 2**12  # standard deviations of the law: beyond it cells of 16 bits are too wide to help


class RoundedNormal:
    """Draws of the rounded normal law.

    Attributes:
        reach: The largest integer $m$ that can occur.
        total_variation: How far the law of a draw is from the rounded normal one, at most.

    Args:
        scale: The standard deviation $s$ before rounding.

    Example:
        >>> law = RoundedNormal(0.5)
        >>> law.reach, law.draw(1000, torch.Generator().manual_seed(0)).abs().max() <= 5
        (5, tensor(True))
    """

    def __init__(self, scale: float):
        limits = np.array(thresholds(scale), dtype=np.int64)
        self.reach = len(limits) // 2
        self.total_variation = (self.reach + 2) * 2.0**-_BITS
        edges = np.arange(2**_FIRST, dtype=np.int64) << _REST
        low, high = (
            np.searchsorted(limits, u, side="right") for u in (edges, edges + (2**_REST - 1))
        )
        cells = np.where(low == high, low - float(self.reach), np.nan)
        self._cells, self._limits = torch.as_tensor(cells), torch.as_tensor(limits)

    def to(self, dtype: torch.dtype, device: torch.device) -> "RoundedNormal":
        """The same law, with draws of this dtype on this device; they are whole numbers."""
        other = copy(self)
        other._cells = self._cells.to(device, dtype)
        other._limits = self._limits.to(device)
        return other

    def draw(self, count: int, generator: torch.Generator | None) -> Tensor:
        """As many independent draws."""
        words = self._bits(-(-count // 4), generator, -(2**63), None)  # of 64 bits, for four draws
        cells = words.view(torch.int16)[:count].int().add_(2 ** (_FIRST - 1))
        found = self._cells.index_select(0, cells)
        left = found.isnan().nonzero()[:, 0]
        u = (cells[left].long() << _REST) | self._bits(len(left), generator, 0, 2**_REST)
        found[left] = (torch.searchsorted(self._limits, u, right=True) - self.reach).to(found)
        return found

    def _bits(
        self, count: int, generator: torch.Generator | None, low: int, high: int | None
    ) -> Tensor:
        device = self._cells.device
        words = torch.empty(count, dtype=torch.int64, device=source(generator, device)["device"])
        return words.random_(low, high, generator=generator).to(device)


@lru_cache(maxsize=64)
def thresholds(scale: float) -> tuple[int, ...]:
    r"""The thresholds $T_{-m}, \dots, T_{m-1}$ in units of $2^{-63}$, of which none is 0 or all.

    Example:
        >>> [round(t / 2**63, 6) for t in thresholds(0.25)][0:4]  # Phi(-6), Phi(-2), Phi(2), Phi(6)
        [0.0, 0.02275, 0.97725, 1.0]
    """
    if not 0 < scale <= _WIDEST:
        raise ValueError(f"sigma / quantum must be > 0 and <= {_WIDEST}, got {scale}")
    upper, full = [], 2**_BITS
    with localcontext(prec=_DIGITS):
        half, exact = Decimal("0.5"), Decimal(scale)
        while (t := round(full * _normal((len(upper) + half) / exact))) < full:
            upper.append(t)
    return (*(full - t for t in reversed(upper)), *upper)


def _normal(t: Decimal) -> Decimal:
    """The normal distribution function, in the precision of the context."""
    total = term = t
    j = 1
    while term > total.scaleb(-_DIGITS):
        term *= t * t / (2 * j + 1)
        total += term
        j += 1
    return Decimal("0.5") + total * (-t * t / 2).exp() / (2 * _PI).sqrt()
