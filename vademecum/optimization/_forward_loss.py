"""The loss of a network at any parameters by forward passes alone."""

from typing import Any

import torch
from torch import Tensor

from vademecum.gradients.network_function import Functional
from vademecum.models import Loss, described, loss_for, mean_over_batches, refuse_nan

__all__ = ["loss_without_graph"]


@torch.no_grad()
def loss_without_graph(f: Functional, theta: Tensor, x: Any, y: Any, loss: Loss | None) -> float:
    """The loss with the parameters `theta`, on data at hand or on those of a loader.

    Example:
        >>> from vademecum.gradients import functional
        >>> f = functional(nn.Linear(1, 1, bias=False))
        >>> loss_without_graph(f, torch.tensor([3.0]), torch.ones(2, 1), torch.ones(2, 1), None)
        4.0
    """

    def of_batch(x: Any, y: Any) -> Tensor:
        refuse_nan(x)
        value = loss_for(y, loss)(f(theta, x), y)
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise ValueError(f"loss must give one number, got {described(value)}")
        return value.sum()

    return float(mean_over_batches(x, y, of_batch, device=f.device))
