r"""Which coordinates of a code are in use: the variance of their means over the examples.

A coordinate that tells nothing of an example has the same law for all of them. Burda, Grosse and
Salakhutdinov (Importance weighted autoencoders, ICLR, 2016) call it active if $\mathrm{Var}_x\,
\mathbb E_q[z_j \mid x] > 0.01$. The variance is that of the sample, with $n - 1$, exact in double
precision whatever the batches in which examples come.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from vademecum.models import batches
from vademecum.results import one_line

__all__ = ["ActiveUnits", "spread_of_means"]


class ActiveUnits(NamedTuple):
    """The coordinates of a code that are in use.

    Example:
        >>> ActiveUnits(1, torch.tensor([True, False]), torch.tensor([0.9, 0.0]))
        ActiveUnits(number=1, active=tensor([ True, False]), variance=tensor([0.9000, 0.0000]))
    """

    number: int
    """How many there are."""
    active: Tensor
    """Whether each coordinate is one of them, in the shape of a code."""
    variance: Tensor
    """The variance of its mean over the examples."""

    __repr__ = one_line


def spread_of_means(
    encode: Callable[..., Any],
    x: Tensor | DataLoader,
    context: Tensor | None,
    threshold: float,
    device: torch.device,
) -> ActiveUnits:
    """The variance of the means of codes over all examples, however they come."""
    if isinstance(x, DataLoader) and context is not None:
        raise ValueError("context must be None where x is a DataLoader")
    n, mean, squares, dtype = 0, torch.zeros(()), torch.zeros(()), torch.float32
    for some, _ in batches(x, device=device):
        found = encode(some, context).mean
        dtype, found = found.dtype, found.double()
        size, own = len(found), found.mean(0)
        away = own - mean.to(own)
        squares = squares.to(own) + (found - own).square().sum(0)
        squares = squares + away.square() * (n * size / (n + size))
        mean = mean.to(own) + away * (size / (n + size))
        n += size
    if n < 2:
        raise ValueError(f"x must have 2 examples or more, got {n}")
    if not bool(torch.isfinite(squares).all()):
        raise ValueError("encoder must return finite means of all codes, got NaN or infinity")
    variance = squares / (n - 1)
    active = variance > threshold
    return ActiveUnits(int(active.sum()), active, variance.to(dtype))
