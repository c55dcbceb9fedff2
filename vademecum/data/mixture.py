r"""A mixture of round Gaussians, one a class.

$$x = \mu_y + \sigma z, \qquad z \sim \mathcal N(0, I_d),$$

with the classes $y = 0, \dots, K - 1$ in turn. Since all have the same weight and spread, the
best classifier picks the nearest mean, and for two classes it errs with probability
$\Phi(-\lVert \mu_0 - \mu_1 \rVert / 2 \sigma)$.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vademecum.arguments import floats, number, whole
from vademecum.randomness import place, source
from vademecum.results import one_line

__all__ = ["Mixture", "gaussians"]


class Mixture(NamedTuple):
    """Points, their classes and the means that they scatter about.

    Attributes:
        x: The points.
        y: Their classes, from 0.
        means: The mean of each class.
    """

    x: Float[Tensor, " n d"]
    y: Int64[Tensor, " n"]
    means: Float[Tensor, " classes d"]

    __repr__ = one_line


def gaussians(
    n: int,
    *,
    means: Float[Tensor, " classes d"] | None = None,
    classes: int | None = None,
    d: int | None = None,
    spread: float = 1.0,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Mixture:
    r"""Draw a mixture with given means, or with means drawn uniformly from the unit sphere.

    Args:
        n: The number of points, at least one a class.
        means: The $\mu$, one row a class.
        classes: The number of classes $K$, without `means`; 2 if None.
        d: The dimension, without `means`; 2 if None.
        spread: The $\sigma$.
        generator: Where random numbers come from; torch's global generator by default.
        dtype: A floating dtype; that of `means`, or torch's default, if None.
        device: Where the points are; on that of `means`, of `generator`, or torch's default, if
            None.

    Raises:
        ValueError: Where an argument is out of its range.

    Example:
        >>> corners = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
        >>> gaussians(3, means=corners, spread=0.0).x.tolist()
        [[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]]
    """
    number("spread", spread, low=0)
    if means is not None:
        floats("means", means, ndim=2)
        if classes is not None or d is not None:
            raise ValueError(f"means must be None with classes={classes} and d={d}")
        dtype, device = dtype or means.dtype, means.device if device is None else device
    dtype, device = place(generator, dtype, device)
    options = dict(source(generator, device), dtype=dtype)
    if means is None:
        shape = (
            whole("classes", 2 if classes is None else classes, low=1),
            whole("d", 2 if d is None else d, low=1),
        )
        means = torch.nn.functional.normalize(torch.randn(shape, **options), dim=1)
    means = means.to(device, dtype)
    y = torch.arange(whole("n", n, low=len(means)), device=device) % len(means)
    z = torch.randn(n, means.shape[1], **options).to(device)
    return Mixture(means[y] + spread * z, y, means)
