r"""Whitening: data whose features have mean zero, variance one, and no correlation.

For examples $x_1, \dots, x_n \in \mathbb{R}^d$ with the covariance
$\frac1n \sum_i (x_i - \bar x)(x_i - \bar x)^\top = V \Lambda V^\top$ the map
$z = T (x - \bar x)$ whitens if $T\, V \Lambda V^\top T^\top = I$. There is one such $T$ for every
rotation; these have names:

$$T_{\mathrm{PCA}} = \Lambda^{-1/2} V^\top, \qquad T_{\mathrm{ZCA}} = V \Lambda^{-1/2} V^\top,
\qquad T_{\mathrm{Cholesky}} = L^{-1} \text{ with } L L^\top = V \Lambda V^\top.$$

The first sorts features by variance, the second leaves the data nearest to what they were, the
third lets feature $j$ depend on the first $j$ only. Where the covariance has rank $r < d$, only
the $r$ directions with variance are kept: PCA then gives $r$ features, and ZCA features whose
covariance is the projection $V V^\top$.

Exact up to rounding: computed in double precision from singular values, not from the covariance,
with the rank rule of `vademecum.linear._row_space`. The claim is `whitening`.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import choice, floats
from vademecum.linear._row_space import row_space
from vademecum.results import one_line

__all__ = ["Whitening", "whiten"]


class Whitening(NamedTuple):
    r"""White data and the way there and back, $z = (x - \bar x) T^\top$, $x = z S^\top + \bar x$.

    Example:
        >>> white = whiten(torch.tensor([[1.0], [5.0]]))
        >>> (torch.tensor([[9.0]]) - white.mean) @ white.transform.T  # for new data
        tensor([[3.]])
    """

    z: Float[Tensor, " n k"]
    """The white data."""
    mean: Float[Tensor, " d"]
    r"""The $\bar x$."""
    transform: Float[Tensor, " k d"]
    """The $T$."""
    inverse: Float[Tensor, " d k"]
    """The $S$: inverse to $T$ on the directions with variance, the pseudo-inverse if some lack."""
    rank: int
    """The number of directions with variance."""

    __repr__ = one_line


def whiten(x: Float[Tensor, " n d"], *, method: str = "zca") -> Whitening:
    """Whiten the rows of a matrix.

    Args:
        x: The examples.
        method: "pca", "zca" or "cholesky"; the last needs a covariance of full rank.

    Raises:
        ValueError: If the examples are no matrix of finite real numbers, all equal, or for
            "cholesky" of deficient rank.

    References:
        Kessy, Lewin and Strimmer, Optimal whitening and decorrelation, The American Statistician,
        2018.

    Example:
        >>> white = whiten(torch.tensor([[1.0, 0.0], [5.0, 0.0], [3.0, 1.0], [3.0, -1.0]]))
        >>> white.z  # variances 2 and 1/2
        tensor([[-1.4142, 0.0000],
                [ 1.4142, 0.0000],
                [ 0.0000, 1.4142],
                [ 0.0000, -1.4142]])
    """
    n, d = floats("x", x, ndim=2).shape
    if x.is_complex():
        raise ValueError(f"x must be real, got {x.dtype}")
    choice("method", method, ("pca", "zca", "cholesky"))
    mean = x.double().mean(0)
    sigma, v, _ = row_space(x, mean, x[:, :0])
    deviation = sigma / math.sqrt(n)
    if not len(sigma):
        raise ValueError(f"x must have variance, got {n} equal rows")
    if method == "cholesky" and len(sigma) < d:
        raise ValueError(f"x must have rank {d} for method 'cholesky', got rank {len(sigma)}")
    transform, inverse = v.T / deviation[:, None], v * deviation
    if method == "zca":
        transform, inverse = v @ transform, inverse @ v.T
    elif method == "cholesky":
        # The triangle of an orthogonal decomposition of the square root, with positive diagonal.
        r = torch.linalg.qr(inverse.T, mode="r").R
        inverse = (r * r.diagonal().sign()[:, None]).T
        eye = torch.eye(d, dtype=r.dtype, device=r.device)
        transform = torch.linalg.solve_triangular(inverse, eye, upper=False)
    z = (x - mean) @ transform.T
    parts = (part.to(x.dtype) for part in (z, mean, transform, inverse))
    return Whitening(*parts, rank=len(sigma))
