r"""First and second moments of examples and targets, which is all that least squares needs.

With rows $x_i \in \mathbb{R}^d$ and $y_i \in \mathbb{R}^t$, means $\bar x$ and $\bar y$,

$$\mathrm{gram} = \sum_i (x_i - \bar x)(x_i - \bar x)^\top, \qquad
\mathrm{cross} = \sum_i (x_i - \bar x)(y_i - \bar y)^\top, \qquad
\mathrm{power} = \sum_i (y_i - \bar y)^2.$$

All of it is one Gram matrix, that of the rows $(x_i, y_i)$ about their mean
(`vademecum.arrays.gram`): exact up to the rounding within blocks of rows.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arrays import gram

__all__ = ["Moments", "blocks", "moments"]

BLOCK = 4096  # rows that are met at once


class Moments(NamedTuple):
    """Centred second moments in double precision, and the means; without centring these are zero.

    Example:
        >>> moments(torch.tensor([[0.0], [2.0]]), torch.tensor([[1.0], [2.0]])).cross
        tensor([[1.]], dtype=torch.float64)
    """

    mean_x: Float[Tensor, " d"]
    mean_y: Float[Tensor, " t"]
    gram: Float[Tensor, " d d"]
    cross: Float[Tensor, " d t"]
    power: Float[Tensor, " t"]


def moments(
    x: Float[Tensor, " n d"],
    y: Float[Tensor, " n t"],
    *,
    centre: bool = True,
    dtype: torch.dtype | None = None,
) -> Moments:
    """The moments of examples and targets, in one pass over the data.

    Args:
        x: The examples.
        y: The targets.
        centre: Whether moments are about the means or about zero.
        dtype: In which a block is multiplied; that of `x` if not given.

    Example:
        >>> moments(torch.tensor([[0.0], [2.0]]), torch.tensor([[1.0], [2.0]]), centre=False).gram
        tensor([[4.]], dtype=torch.float64)
    """
    d = x.shape[1]
    mean, matrix = gram(x, y, centre=centre, dtype=dtype)
    power = matrix.diagonal()[d:].clamp(min=0)
    return Moments(mean[:d], mean[d:], matrix[:d, :d], matrix[:d, d:], power)


def blocks(n: int) -> list[slice]:
    """Slices of at most `BLOCK` of n rows.

    Example:
        >>> blocks(5000)
        [slice(0, 4096, None), slice(4096, 5000, None)]
    """
    return [slice(start, min(start + BLOCK, n)) for start in range(0, n, BLOCK)]
