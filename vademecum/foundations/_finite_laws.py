r"""Laws on a finite set: checks that the measures of information share.

A law on $n$ outcomes is a vector with $p_x \ge 0$ and $\sum_x p_x = 1$ (up to rounding). Laws that
are compared have their outcomes along the same axis, and their other axes broadcast. A logarithm
to the base $b$ is the natural one divided by $\ln b$.
"""

import math

import torch
from torch import Tensor

from vademecum.arguments import broadcasting, number, probabilities

__all__ = ["laws", "nats"]


def laws(dim: int, **tensors: Tensor) -> tuple[Tensor, ...]:
    """Check laws of one dtype on one set of outcomes, and broadcast their other axes.

    Args:
        dim: The axis of the outcomes; negative where the laws differ in their number of axes.
        **tensors: The laws, under the names by which error messages call them.

    Example:
        >>> p, q = laws(-1, p=torch.tensor([0.5, 0.5]), q=torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        >>> p.shape
        torch.Size([2, 2])
    """
    (first, p), *others = ((name, probabilities(name, t, dim=dim)) for name, t in tensors.items())
    for name, q in others:
        if (q.dtype, q.device) != (p.dtype, p.device):
            raise ValueError(
                f"{name} must be {p.dtype} on {p.device} like {first}, got {q.dtype} on {q.device}"
            )
        if q.ndim != p.ndim and dim >= 0:
            raise ValueError(
                f"dim must be negative where laws differ in their number of axes, got {dim}"
            )
        if q.shape[dim] != p.shape[dim]:
            raise ValueError(
                f"{name} must have {p.shape[dim]} outcomes like {first}, got shape {tuple(q.shape)}"
            )
    broadcasting("batch shapes", {name: t.shape for name, t in tensors.items()})
    return torch.broadcast_tensors(p, *(q for _, q in others))


def nats(base: float) -> float:
    r"""How many nats a unit of information is: $\ln b$ for the base $b > 1$.

    Example:
        >>> nats(2)
        0.693...
    """
    return math.log(number("base", base, above=1.0))
