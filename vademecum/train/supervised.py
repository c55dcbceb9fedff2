"""The objective of most training: a model, and a loss of its outputs and targets."""

from collections.abc import Callable
from typing import Any

from torch import nn

from vademecum.models import call_arguments, loss_for

__all__ = ["Supervised"]


class Supervised(nn.Module):
    """A model with a loss, as an objective with the one player "model".

    Batches are pairs (inputs, targets). Inputs are a tensor, a tuple of positional arguments or a
    dict of keyword arguments.

    Args:
        model: Any module.
        loss: A function of outputs and targets; it gives their mean, or a pair (sum, count). By
            default the cross-entropy for integer targets and the mean squared error for others.

    Example:
        >>> objective = Supervised(nn.Linear(2, 1, bias=False))
        >>> _ = nn.init.ones_(objective.model.weight)
        >>> objective.losses((torch.tensor([[1.0, 2.0]]), torch.tensor([[5.0]])))["model"].item()
        4.0
    """

    def __init__(self, model: nn.Module, loss: Callable[[Any, Any], Any] | None = None):
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model gives.

        Args:
            *args: What it is called with.
            **kwargs: What it is called with by name.
        """
        return self.model(*args, **kwargs)

    def losses(self, batch: Any) -> dict[str, Any]:
        """The loss of a batch.

        Args:
            batch: Inputs and targets.
        """
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            kind = type(batch).__name__
            raise ValueError(f"batch must be a pair (inputs, targets), got {kind}")
        x, y = batch
        args, kwargs = call_arguments(x)
        return {"model": loss_for(y, self.loss)(self.model(*args, **kwargs), y)}
