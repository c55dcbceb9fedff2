"""Losses as instruments take them: functions of outputs and targets, with a default for both kinds.

Integer targets are classes and have the cross-entropy, others are numbers and have the mean squared
error.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import functional as F

__all__ = ["Loss", "described", "loss_for"]

Loss = Callable[[Any, Any], Tensor]
"""A function of outputs and targets."""


def loss_for(y: Any, loss: Loss | None = None) -> Loss:
    """The loss that was given, or else the one for targets of this kind.

    Example:
        >>> loss_for(torch.tensor([1.0]))(torch.tensor([3.0]), torch.tensor([1.0]))
        tensor(4.)
    """
    if loss is not None:
        return loss
    if not isinstance(y, Tensor):
        raise ValueError(f"y must be a tensor unless a loss is given, got {type(y).__name__}")
    return _mean_square if y.is_floating_point() else F.cross_entropy


def _mean_square(z: Tensor, y: Tensor) -> Tensor:
    if y.shape != z.shape:  # or torch would broadcast
        raise ValueError(f"y must be shaped like the output, {tuple(z.shape)}, got {described(y)}")
    return F.mse_loss(z, y)


def described(value: Any) -> str:
    """Dtype and shape of a tensor, or the type of anything else, for messages."""
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return type(value).__name__
