r"""The leading singular values and right singular vectors of a data matrix.

With $X - 1 \mu^\top = U \Sigma V^\top$ (rows are examples) the squares $\sigma_i^2$ and the columns
$v_i$ of $V$ are the eigenpairs of $G = \sum_j (x_j - \mu)(x_j - \mu)^\top$. Three ways to them:

- `full`: the singular value decomposition of the shifted data. Every $\sigma_i$ is right up to
  $\epsilon \sigma_1$, with $\epsilon$ the unit of rounding.
- `covariance_eigh`: the eigenpairs of $G$. For many more rows than columns by far the quickest;
  every $\sigma_i^2$ is right up to $\epsilon \sigma_1^2$, so a $\sigma_i$ below
  $\sqrt\epsilon\,\sigma_1$ is lost in rounding.
- `randomized`: Rayleigh-Ritz in the block Krylov space of $G$ and a random block
  $\Omega \in \mathbb R^{d \times l}$, spanned by $\Omega, G \Omega, \dots, G^q \Omega$ and kept
  orthonormal. The $\sigma_i$ found are at most the true ones. Where the $q + 1$ products
  $G V = \sum_j (x_j - \mu) ((x_j - \mu)^\top V)$ would cost more than $G$ itself,
  $4 l (q + 1) \ge d$, there is nothing to save and the answer is the exact one.
"""

from contextlib import nullcontext
from typing import NamedTuple

import torch
from jaxtyping import Float
from scipy.linalg import eigh
from torch import Tensor

from vademecum.arrays import one_blas_thread
from vademecum.arrays.second_moments import gram, small
from vademecum.estimators import precision
from vademecum.randomness import source

__all__ = ["SOLVERS", "Principal", "principal_directions"]

SOLVERS = ("auto", "full", "covariance_eigh", "randomized")
"""The names of the ways; `auto` is exact: `covariance_eigh` for n >= 10 d, else `full`."""


class Principal(NamedTuple):
    r"""The vector $\mu$, directions $v_i$ as rows, $\sigma_i$, and sums of squares.

    Example:
        >>> principal_directions(torch.tensor([[1.0], [3.0]]), 1, centre=True).mean
        tensor([2.])
    """

    mean: Float[Tensor, " d"]
    directions: Float[Tensor, " k d"]
    values: Float[Tensor, " k"]
    total: float
    r"""The $\sum_i \sigma_i^2$ over all."""
    rest: float
    r"""That over $i > k$; a sum where these are known, since rounding would eat a difference."""


def principal_directions(
    x: Float[Tensor, " n d"],
    k: int,
    *,
    centre: bool = False,
    solver: str = "auto",
    oversamples: int = 10,
    power: int = 4,
    generator: torch.Generator | None = None,
) -> Principal:
    r"""The `k` leading directions, each with its largest entry positive, in the data's dtype.

    Args:
        x: The data, one row each; finite.
        k: How many, at most min(n, d).
        centre: Whether $\mu$ is the mean of the rows, or zero.
        solver: One of `SOLVERS`.
        oversamples: How many columns $\Omega$ has beyond `k`.
        power: The number $q$ of further blocks in the Krylov space.
        generator: Where random numbers come from; torch's global generator by default.

    Example:
        >>> found = principal_directions(torch.tensor([[3.0, 0.0], [0.0, -4.0]]), 1)
        >>> found.directions, found.values, found.total
        (tensor([[0., 1.]]), tensor([4.]), 25.0)
    """
    n, d = x.shape
    size = k + oversamples
    if solver == "auto":
        solver = "covariance_eigh" if n >= 10 * d else "full"
    elif solver == "randomized" and min(d, 4 * n) <= 4 * size * (power + 1):
        solver = "covariance_eigh" if n >= d else "full"
    if solver == "covariance_eigh":
        mean, matrix = gram(x, centre=centre)
        directions, squares = _leading(matrix, k)
        values, total = squares.clamp(min=0).sqrt(), float(matrix.trace())
    else:
        wide = x.to(precision(x))
        mean = wide.mean(0) if centre else wide.new_zeros(d)
        z = wide - mean if centre else wide
        total = float(torch.linalg.matrix_norm(z)) ** 2
        if solver == "full":
            careful = "gesvd" if z.is_cuda else None  # by default some 1e-4 off in float32
            _, values, directions = torch.linalg.svd(z, full_matrices=False, driver=careful)
        else:
            omega = torch.randn(d, size, dtype=torch.float64, **source(generator, "cpu")).to(z)
            directions, squares = _krylov(z, k, omega, power)
            values = squares.clamp(min=0).sqrt()
    known = values.double().square()
    rest = float(known[k:].sum()) if len(known) == min(n, d) else total - float(known[:k].sum())
    directions, values = directions[:k], values[:k]
    largest = directions.abs().argmax(1, keepdim=True)
    directions = directions * directions.gather(1, largest).sign()
    mean, directions, values = (v.to(x.dtype) for v in (mean, directions, values))
    return Principal(mean, directions, values, total, max(rest, 0.0))


def _leading(matrix: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k leading eigenvectors of a symmetric matrix as rows, or all, and their eigenvalues."""
    d = len(matrix)
    if matrix.device.type == "cpu" and 2 * k <= d:  # LAPACK's routine for some of them
        with one_blas_thread() if small(d) else nullcontext():
            squares, v = eigh(matrix.numpy(), subset_by_index=(d - k, d - 1), check_finite=False)
        squares, v = torch.from_numpy(squares), torch.from_numpy(v)
    else:
        squares, v = torch.linalg.eigh(matrix)
    return v.mT.flip(0), squares.flip(0)


def _krylov(z: Tensor, k: int, omega: Tensor, power: int) -> tuple[Tensor, Tensor]:
    """Ritz vectors as rows and Ritz values of G in its block Krylov space from `omega`."""
    basis = torch.linalg.qr(omega).Q
    images = z.mT @ (z @ basis)
    for _ in range(power):
        block = images[:, -omega.shape[1] :]
        for _ in range(2):  # once more, for what rounding left of a block that was almost nothing
            block = torch.linalg.qr(block - basis @ (basis.mT @ block)).Q
        basis = torch.cat([basis, block], 1)
        images = torch.cat([images, z.mT @ (z @ block)], 1)
    projected = basis.mT @ images
    squares, y = torch.linalg.eigh((projected + projected.mT) / 2)
    return (basis @ y.flip(1)[:, :k]).mT, squares.flip(0)[:k]
