r"""The row space of centred data: singular values, directions, and what counts as zero.

For examples $x_1, \dots, x_n \in \mathbb{R}^d$ the matrix $Z$ with rows $x_i - \bar x$ is
decomposed as $Z = U \operatorname{diag}(\sigma) V^\top$ with $\sigma > 0$. A singular value counts
as zero if it is at most

$$\varepsilon\, \big(\|Z\|_F + \sqrt n\, \|\bar x\|\big) + \varepsilon_{64} \max(n, d)\, \|Z\|_F$$

with $\varepsilon$ the precision of the dtype of the examples and $\varepsilon_{64}$ that of double
precision. The first term bounds what the rounding of the examples amounts to, the second is the
usual rule for what the decomposition adds. (With $\varepsilon$ in that rule a tenth of the largest
singular value would count as zero once there are a million examples in single precision.)

Computed in double precision by orthogonal transformations, so that $\sigma$ is right up to
$\varepsilon\, \sigma_{\max}$; the square root of a Gram matrix's eigenvalue would not be.

Least squares has the columns scaled to unit norm first where there are more examples than
features, and ridge regression always, $Z = \tilde Z S$, so that no feature counts as zero for its
unit: a column does if it is a constant up to rounding,
$\|z_j\| \le \varepsilon \sqrt n\, |\bar x_j|$. With
$\tilde Z = U \operatorname{diag}(\sigma) V^\top$ and an orthonormal basis $N$ of the span of $S V$,
which the shortest weights are in, $Z = U A N^\top$ with
$A = \operatorname{diag}(\sigma)\, (S V)^\top N$. Where no feature depends on others, $N = I$; else
the basis is rounded at $\varepsilon_{64}$ times the ratio of the columns' norms.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["Coordinates", "RowSpace", "coordinates", "minimum_norm", "row_space", "zero_level"]


class RowSpace(NamedTuple):
    """The decomposition, cut at the rank; double precision.

    Example:
        >>> row_space(torch.tensor([[3.0, 4.0]]), torch.zeros(2), torch.tensor([[10.0]])).sigma
        tensor([5.], dtype=torch.float64)
    """

    sigma: Float[Tensor, " rank"]
    basis: Float[Tensor, " d rank"]
    """The columns of $V$."""
    images: Float[Tensor, " rank t"]
    """The product of $U^T$ with the targets."""


def row_space(
    x: Float[Tensor, " n d"],
    mean: Float[Tensor, " d"],
    y: Float[Tensor, " n t"],
    scale: Float[Tensor, " d"] | None = None,
    offset: Float[Tensor, " d"] | None = None,
) -> RowSpace:
    r"""Decompose the examples, less a mean and divided by a scale, and express targets in $U$.

    Many examples are reduced to a triangle first, and the targets with them, so that $U$ is never
    formed. The `offset` is a mean that was subtracted before: the rounding of it counts as well.

    Example:
        >>> x, y = torch.tensor([[1.0, 1.0], [1.0, 1.0]]), torch.ones(2, 1)
        >>> space = row_space(x, torch.zeros(2), y)
        >>> (space.basis / space.sigma @ space.images).T  # of rank one: the least norm
        tensor([[0.5000, 0.5000]], dtype=torch.float64)
    """
    n, d = x.shape
    z, y = x.double() - mean, y.double()
    offset = mean if offset is None else offset
    if scale is not None:
        z, offset = z / scale, offset / scale
    if n > d:
        triangle = torch.linalg.qr(torch.cat([z, y], 1), mode="r").R
        z, y = triangle[:d, :d], triangle[:d, d:]
    u, sigma, vh = torch.linalg.svd(z, full_matrices=False)
    rank = int((sigma > zero_level(x, offset, sigma.norm())).sum())
    return RowSpace(sigma[:rank], vh[:rank].T, u[:, :rank].T @ y)


class Coordinates(NamedTuple):
    """The $N$, $A$ and $U^T Y$ of $Z = U A N^T$, in double precision.

    Example:
        >>> x, y = torch.tensor([[1.0, 1.0]]), torch.ones(1, 1)
        >>> coordinates(x, torch.zeros(2), y, torch.ones(2)).matrix.abs()
        tensor([[1.4142]], dtype=torch.float64)
    """

    basis: Float[Tensor, " d rank"]
    matrix: Float[Tensor, " rank rank"]
    images: Float[Tensor, " rank t"]


def coordinates(
    x: Float[Tensor, " n d"],
    mean: Float[Tensor, " d"],
    y: Float[Tensor, " n t"],
    norms: Float[Tensor, " d"] | None = None,
    offset: Float[Tensor, " d"] | None = None,
) -> Coordinates:
    r"""Coordinates of the shortest weights, in which least squares has full rank.

    Args:
        x: The examples.
        mean: What to subtract from them.
        y: The targets.
        norms: Those of the columns of $Z$, to scale them by; if None, they are left as they are.
        offset: A mean that was subtracted before, whose rounding counts.

    Example:
        >>> x, y = torch.tensor([[1.0, 1.0], [1.0, 1.0]]), torch.ones(2, 1)
        >>> coordinates(x, torch.zeros(2), y).basis.abs().T
        tensor([[0.7071, 0.7071]], dtype=torch.float64)
    """
    scale = torch.ones_like(mean, dtype=torch.float64)
    if norms is not None:
        far = mean if offset is None else offset
        rounding = torch.finfo(x.dtype).eps * math.sqrt(len(x)) * far.abs()
        scale = torch.where(norms > rounding, norms.double(), torch.inf)
    space, kept = row_space(x, mean, y, scale, offset), scale.isfinite()
    images = torch.where(kept, scale, 0.0)[:, None] * space.basis
    if len(space.sigma) == kept.sum():
        basis = torch.eye(len(scale)).to(scale)[:, kept]
        return Coordinates(basis, space.sigma[:, None] * images[kept].T, space.images)
    basis, r = torch.linalg.qr(images)
    return Coordinates(basis, space.sigma[:, None] * r.T, space.images)


def minimum_norm(
    x: Float[Tensor, " n d"],
    mean: Float[Tensor, " d"],
    y: Float[Tensor, " n t"],
    norms: Float[Tensor, " d"] | None = None,
    offset: Float[Tensor, " d"] | None = None,
) -> tuple[Float[Tensor, " d t"], int]:
    r"""The shortest weights $w$ that bring $Z w$ closest to the targets, and the rank of $Z$.

    The arguments are those of `coordinates`.

    Example:
        >>> x, y = torch.tensor([[1.0, 1.0]]), torch.ones(1, 1)
        >>> w, rank = minimum_norm(x, torch.zeros(2), y)
        >>> w.T, rank
        (tensor([[0.5000, 0.5000]], dtype=torch.float64), 1)
    """
    found = coordinates(x, mean, y, norms, offset)
    size = torch.linalg.vector_norm(found.matrix, dim=0)[:, None]
    w = torch.linalg.solve(found.matrix / size.T, found.images) / size
    return found.basis @ w, len(found.images)


def zero_level(
    x: Float[Tensor, " n d"], mean: Float[Tensor, " d"], norm: Float[Tensor, ""]
) -> Float[Tensor, ""]:
    r"""The largest singular value that counts as zero, if `norm` is $\|Z\|_F$.

    Example:
        >>> zero_level(torch.ones(4, 2), torch.ones(2) / 2**0.5, torch.tensor(1.0)) / 2**-23
        tensor(3.)
    """
    rounding = torch.finfo(x.dtype).eps * (norm + math.sqrt(len(x)) * mean.norm())
    return rounding + torch.finfo(torch.float64).eps * max(x.shape) * norm
