r"""The trace of the root of a product of covariances, by symmetric problems alone.

With any factors $\Sigma = F F^\top$, $\Sigma' = G G^\top$, the eigenvalues of $\Sigma \Sigma'$ that
are not 0 are the squared singular values of $F^\top G$, so that

$$\mathrm{Tr}\,(\Sigma \Sigma')^{1/2} = \|F^\top G\|_*
= \sum_i \sqrt{\lambda_i(F^\top \Sigma' F)} .$$

No square root of a matrix is taken, and nothing can become imaginary. Where rows are kept, no more
than features, they are the factors. Otherwise $F$ is Cholesky's, of the set where that exists; else
it comes from an eigendecomposition, without the directions whose variance is rounding. Features
that are constant in one set have no part in the product and are left out.

Exact up to rounding: of the covariances themselves, where eigenvalues near 0 are known only up to
$\varepsilon \lambda_{\max}$ and their roots up to $\sqrt\varepsilon$, and of the singular values,
where no root is taken, for rows.
"""

import math
from typing import Any, NamedTuple

import torch
from scipy.linalg import get_blas_funcs
from torch import Tensor

from vademecum.arrays import power_of_two, views

__all__ = ["Spread", "root_trace"]

_NEGATIVE = 1e-5  # of the largest eigenvalue: covariances may come rounded to single precision


class Spread(NamedTuple):
    """How features vary: a covariance, or centred rows whose product it is.

    Example:
        >>> Spread("x", torch.tensor([[3.0, 4.0]]), rows=True).variances()
        tensor([ 9., 16.])
    """

    name: str
    """What errors call the set."""
    matrix: Tensor
    """The covariance (d, d), or rows (n, d) whose product with themselves is the covariance."""
    rows: bool
    """Which of the two it is."""

    def variances(self) -> Tensor:
        """The diagonal of the covariance (d,)."""
        return self.matrix.square().sum(0) if self.rows else self.matrix.diagonal()

    def factor(self) -> Tensor:
        """A matrix (d, r) whose product with its transpose is the covariance."""
        if self.rows:
            return self.matrix.T
        lower = _cholesky(self.matrix)
        return self._eigenvectors() if lower is None else lower

    def product(self, factor: Tensor, *, triangular: bool) -> Tensor:
        """The sum of the roots of the eigenvalues of the covariance between factors."""
        between = _between_triangles if triangular and factor.device.type == "cpu" else _between
        values = torch.linalg.eigvalsh(between(factor, self.matrix))
        self._insist_on_positive(values)
        return values.where(values > _rounding(values), 0).sqrt().sum()

    def among(self, kept: Tensor) -> "Spread":
        """The same of some features alone."""
        part = self.matrix[:, kept]
        return self._replace(matrix=part if self.rows else part[kept])

    def scaled(self) -> tuple["Spread", float]:
        """In a unit in which products stay in the range, and the deviation that is 1 in it."""
        unit = power_of_two(self.matrix)
        if unit == 1:
            return self, 1.0
        return self._replace(matrix=self.matrix / unit), unit if self.rows else math.sqrt(unit)

    def _eigenvectors(self) -> Tensor:
        values, vectors = torch.linalg.eigh(self.matrix)
        self._insist_on_positive(values)
        kept = values > len(values) * _rounding(values)
        return vectors[:, kept] * values[kept].sqrt()

    def _insist_on_positive(self, values: Tensor) -> None:
        least, most = values.min(), values.max()
        if bool(least < -_NEGATIVE * most.abs()):
            raise ValueError(
                f"covariance of {self.name} must be positive semidefinite, got one that gives"
                f" eigenvalues from {float(least):.3g} to {float(most):.3g}"
            )


def root_trace(x: Spread, y: Spread) -> Tensor:
    """The trace of the root of the product of two covariances."""
    both = (x.variances() > 0) & (y.variances() > 0)
    if not both.any():
        return x.variances().new_zeros(())
    if not both.all():
        x, y = x.among(both), y.among(both)
    (x, one), (y, other) = x.scaled(), y.scaled()
    return _root_trace(x, y) * one * other


def _root_trace(x: Spread, y: Spread) -> Tensor:
    if x.rows or y.rows:
        return torch.linalg.svdvals(x.factor().T @ y.factor()).sum()
    for one, other in ((x, y), (y, x)):
        lower = _cholesky(one.matrix)
        if lower is not None:
            return other.product(lower, triangular=True)
    return y.product(x.factor(), triangular=False)


def _cholesky(covariance: Tensor) -> Tensor | None:
    lower, info = torch.linalg.cholesky_ex(covariance)
    return None if int(info) else lower


def _between(factor: Tensor, covariance: Tensor) -> Tensor:
    r"""The $F^\top \Sigma F$."""
    return factor.T @ covariance @ factor


def _between_triangles(lower: Tensor, covariance: Tensor) -> Tensor:
    """The same for a lower triangle on a CPU, without products with its zeros."""
    lower_, symmetric = views(lower, covariance)
    times: Any = get_blas_funcs("trmm", (lower_, symmetric))
    half = times(1.0, lower_, symmetric.T, lower=1, trans_a=1)  # in Fortran's order as it is
    return torch.as_tensor(times(1.0, lower_, half, side=1, lower=1, overwrite_b=1))


def _rounding(values: Tensor) -> Tensor:
    return torch.finfo(values.dtype).eps * values.abs().max()
