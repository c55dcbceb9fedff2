r"""Sizes to measure steps of parameters by: of each entry, and of the filter that it belongs to.

A filter is what feeds one unit: a row $W_i$ of a weight matrix, or the kernels of one output
channel, along the first axis of a tensor. A tensor with one axis (a bias, the scales of a
normalisation) is one filter.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.gradients.network_function import Functional

__all__ = ["filter_norms"]


def filter_norms(f: Functional, theta: Float[Tensor, " P"]) -> Float[Tensor, " P"]:
    """For each entry of a parameter vector the norm of its filter.

    Example:
        >>> from vademecum.gradients import functional
        >>> f = functional(nn.Linear(2, 2))
        >>> filter_norms(f, torch.tensor([3.0, 4.0, 0.0, 2.0, 1.0, 0.0]))
        tensor([5., 5., 2., 2., 1., 1.])
    """

    def spread(p: Tensor) -> Tensor:
        axes = list(range(1, p.ndim)) or None
        return torch.linalg.vector_norm(p, dim=axes, keepdim=True).expand_as(p)

    return f.ravel({name: spread(p) for name, p in f.unravel(theta).items()})
