"""An objective of one player: a model, and a function that says what it pays for a batch."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Objective", "over", "place_of"]

Paid = Tensor | tuple[Tensor, Tensor]


class Objective(nn.Module):
    """A model and its loss, as `fit` wants them.

    Args:
        model: Any module.
        loss: A function of the model and a batch that gives a mean, or a sum and a count.
    """

    def __init__(self, model: nn.Module, loss: Callable[[Any, Any], Paid]):
        super().__init__()
        self.model, self.loss = model, loss

    def losses(self, batch: Any) -> dict[str, Paid]:
        """What the one player pays."""
        return {"model": self.loss(self.model, batch)}


def place_of(model: nn.Module) -> torch.device:
    """Where a model is."""
    return next(model.parameters()).device


@torch.no_grad()
def over(model: nn.Module, x: Tensor, rows: int = 1000) -> Tensor:
    """What a model answers to many examples, on the CPU."""
    place = place_of(model)
    return torch.cat([model(part.to(place)).float().cpu() for part in x.split(rows)])
