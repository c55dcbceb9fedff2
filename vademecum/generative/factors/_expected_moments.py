r"""The E-step: moments of factors and features, in expectation over the factors.

With loadings $w_j$ (row $j$ of $W$) and noise $\psi_j$ of feature $j$, the complete-data likelihood
of $n$ rows depends on the data through

$$A_j = \tfrac1n \sum_{i \ni j} \mathbb E[z_i z_i^\top \mid x_i], \quad b_j = \tfrac1n \sum_{i \ni
j} x_{ij}\, \mathbb E[z_i \mid x_i], \quad c_j = \tfrac1n \sum_{i \ni j} x_{ij}^2, \quad
p_j = \tfrac1n \#\{i \ni j\},$$

sums over the rows in which the feature is present. Both what maximises it and the gradient of the
likelihood itself (Fisher's identity) are functions of these: with $r_j = c_j - 2 w_j^\top b_j +
w_j^\top A_j w_j$,

$$w_j \leftarrow A_j^{-1} b_j, \quad \psi_j \leftarrow r_j / p_j, \qquad
\nabla_{w_j} = (b_j - A_j w_j) / \psi_j, \quad \partial_{\psi_j} = (r_j / \psi_j - p_j) / (2
\psi_j) .$$

For complete rows about their mean all of it comes from the covariance $S$: with $B = \Psi^{-1/2}
W$, $I + B^\top B = L L^\top$ and $T = L^{-1} B^\top$, whose rows are at most of length one however
small the noise,

$$U = S \Psi^{-1/2} T^\top, \quad K = T \Psi^{-1/2} U, \qquad b = U L^{-1}, \quad
A = L^{-\top} (I + K) L^{-1} .$$

One product with $S$, and no row is touched. Where entries are missing, $z$ has a leading 1 whose
loading is the mean, and the rows are gone through. Exact up to rounding.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.generative.factors._law import FactorLaw, Rows, posterior

__all__ = ["Covariance", "Incomplete", "Moments"]


class Moments(NamedTuple):
    """The moments, and the mean log-likelihood of a row at the parameters they were taken at."""

    second: Tensor  # A_j, (q, q) if the same for all features, or (d, q, q)
    cross: Tensor  # b_j, (d, q)
    squares: Tensor  # c_j, (d,)
    present: Tensor  # p_j, (d,)
    log_likelihood: float

    def maximiser(self) -> Tensor:
        """The loadings that maximise the expected likelihood."""
        if self.second.ndim == 2:
            return torch.linalg.solve(self.second, self.cross.mT).mT
        return torch.linalg.solve(self.second, self.cross)

    def residual(self, loadings: Tensor) -> Tensor:
        """The expected squares r_j that loadings leave."""
        return self.squares + (loadings * (self._image(loadings) - 2 * self.cross)).sum(1)

    def pull(self, loadings: Tensor) -> Tensor:
        """The vectors b_j - A_j w_j."""
        return self.cross - self._image(loadings)

    def _image(self, loadings: Tensor) -> Tensor:
        if self.second.ndim == 2:
            return loadings @ self.second
        return (self.second @ loadings[:, :, None])[:, :, 0]


class Covariance:
    """Complete rows about their mean, of which only the covariance counts.

    Args:
        rows: The rows about their mean, of shape (n, d), where there are fewer of them than
            features and products with them are cheaper; or None.
        matrix: The covariance with the divisor n; or None.
    """

    def __init__(self, matrix: Tensor | None, rows: Tensor | None = None):
        self.matrix, self.rows = matrix, rows
        if rows is not None:
            self.squares = rows.square().mean(0)
        elif matrix is not None:
            self.squares = matrix.diagonal()
        self.present = torch.ones_like(self.squares)

    def times(self, v: Tensor) -> Tensor:
        """The product of the covariance with some columns."""
        if self.rows is not None:
            return self.rows.mT @ (self.rows @ v) / len(self.rows)
        assert self.matrix is not None
        return self.matrix @ v

    def moments(self, loadings: Tensor, noise: Tensor) -> Moments:
        """The moments at these parameters."""
        (d, k), root = loadings.shape, noise.sqrt()[:, None]
        B = loadings / root
        L = torch.linalg.cholesky(torch.eye(k).to(B) + B.mT @ B)
        T = torch.linalg.solve_triangular(L, B.mT, upper=False)
        U = self.times(T.mT / root)
        K = T @ (U / root)
        volume = noise.log().sum() + 2 * L.diagonal().log().sum() + d * math.log(2 * math.pi)
        distance = (self.squares / noise).sum() - K.trace()
        cross = torch.linalg.solve_triangular(L, U, upper=False, left=False)
        second = torch.linalg.solve_triangular(L, K + torch.eye(k).to(K), upper=False, left=False)
        second = torch.linalg.solve_triangular(L.mT, second, upper=True)
        return Moments(second, cross, self.squares, self.present, -float(volume + distance) / 2)


class Incomplete:
    """Rows with missing entries; the first column of the loadings is the mean."""

    def __init__(self, portions: list[Rows]):
        self.portions = portions
        self.n = sum(len(rows.x) for rows in portions)
        present, squares = 0, 0
        for rows in portions:
            assert rows.patterns is not None
            present = present + rows.patterns[rows.pattern].sum(0)
            squares = squares + rows.x.square().sum(0)
        self.present, self.squares = (torch.as_tensor(v) / self.n for v in (present, squares))

    def moments(self, loadings: Tensor, noise: Tensor) -> Moments:
        """The moments at these parameters."""
        d, q = loadings.shape
        law = FactorLaw(loadings[:, 0], loadings[:, 1:], noise)
        second, cross = loadings.new_zeros(d, q * q), loadings.new_zeros(d, q)
        total = 0.0
        for rows in self.portions:
            mean, covariance, density = posterior(law, rows)
            assert rows.patterns is not None
            assert rows.pattern is not None
            total += float(density.sum())
            z = torch.cat([mean.new_ones(len(mean), 1), mean], 1)
            count = torch.bincount(rows.pattern, minlength=len(covariance)).to(z)
            square = torch.nn.functional.pad(covariance, (1, 0, 1, 0)) * count[:, None, None]
            outer = (z[:, :, None] * z[:, None]).flatten(1)
            square = square.flatten(1).index_add(0, rows.pattern, outer)
            second += rows.patterns.mT @ square
            cross += rows.x.mT @ z
        second, cross = second.view(d, q, q) / self.n, cross / self.n
        return Moments(second, cross, self.squares, self.present, total / self.n)
