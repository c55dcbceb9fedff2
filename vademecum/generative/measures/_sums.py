r"""Means and scatter matrices of rows that come in portions, in double precision.

Two portions with counts $n, m$, means $\mu, \nu$ and scatter matrices $S, R$ (sums of squares
about the mean) make one with

$$S + R + \tfrac{n m}{n + m} (\mu - \nu)(\mu - \nu)^\top ,$$

where nothing cancels, however far the mean is from 0 (Chan, Golub and LeVeque, 1983). While there
are no more rows than features they are kept themselves: a product of a few rows is smaller than a
matrix, and their singular values need no root of a rounding error.
"""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from vademecum.arrays import views

__all__ = ["Sums", "merged"]


class Sums:
    """What is known of the rows so far.

    Example:
        >>> sums = Sums()
        >>> sums.add(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
        >>> sums.add(torch.tensor([[5.0, 5.0]]))
        >>> sums.n, sums.moments()[0].tolist(), sums.moments()[1].tolist()
        (3, [3.0, 5.0], [[4.0, 0.0], [0.0, 0.0]])
    """

    def __init__(self):
        self.n = 0
        self.rows: list[Tensor] = []
        self._mean: Tensor = torch.empty(0)
        self._scatter: Tensor | None = None

    def add(self, rows: Tensor) -> None:
        """Take in rows (m, d), m at least 1."""
        rows = rows.double()
        if self._scatter is None:
            self.rows.append(rows)
            self.n += len(rows)
            if self.n > rows.shape[1]:
                self._fold()
        else:
            self._merge(len(rows), *_about_mean(rows))

    def absorb(self, other: "Sums") -> None:
        """Take in the rows of other sums, which stay as they are."""
        if other._scatter is None:
            for rows in other.rows:
                self.add(rows)
        else:
            self._fold()
            self._merge(other.n, other._mean, other._scatter)

    def centred(self) -> Tensor | None:
        """The rows minus their mean over the root of n - 1, if they are still kept."""
        if self._scatter is not None:
            return None
        rows = torch.cat(self.rows)
        return (rows - rows.mean(0)) / (self.n - 1) ** 0.5

    def moments(self) -> tuple[Tensor, Tensor]:
        """The mean (d,), and the covariance (d, d) with the divisor n - 1."""
        if self._scatter is None:
            mean, scatter = _about_mean(torch.cat(self.rows))
            return mean, scatter / (self.n - 1)
        return self._mean, self._scatter / (self.n - 1)

    def mean(self) -> Tensor:
        """The mean (d,)."""
        return self._mean if self._scatter is not None else torch.cat(self.rows).mean(0)

    def _fold(self) -> None:
        if self.rows:
            stacked = self.rows[0] if len(self.rows) == 1 else torch.cat(self.rows)
            self.rows, self.n = [], 0
            self._merge(len(stacked), *_about_mean(stacked))

    def _merge(self, n: int, mean: Tensor, scatter: Tensor) -> None:
        if self._scatter is None:
            self.n, self._mean, self._scatter = n, mean.clone(), scatter.clone()
            return
        gap, total = mean - self._mean, self.n + n
        self._scatter += scatter
        self._scatter.addr_(gap, gap, alpha=self.n * n / total)
        self._mean = self._mean + gap * (n / total)
        self.n = total


def merged(parts: Iterable[Sums]) -> Sums:
    """The sums of all rows of several."""
    whole = Sums()
    for part in parts:
        whole.absorb(part)
    return whole


def _about_mean(rows: Tensor) -> tuple[Tensor, Tensor]:
    mean = rows.mean(0)
    (centred,) = views(rows - mean)
    with np.errstate(over="ignore", invalid="ignore"):  # squares that are inf are named later
        return mean, torch.as_tensor(centred.T @ centred)  # NumPy takes half of the products
