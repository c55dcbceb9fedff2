"""Steps of Adam, for those who bring no training of their own, and the share of right answers."""

from contextlib import closing
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.arguments import number, whole
from vademecum.generalization._endless_batches import endless_batches
from vademecum.models import (
    Loss,
    Output,
    batches,
    call_arguments,
    chosen_output,
    described,
    evaluation,
    loss_for,
    map_tensors,
    refuse_nan,
)

__all__ = ["Training", "accuracy"]


class Training:
    """Steps of Adam on data, as a function of a module, which is trained in place.

    Args:
        x: The inputs, or a `DataLoader`.
        y: The targets.
        loss: A function of outputs and targets with one number for all.
        updates: How many steps.
        eta: Their size.
        batch: How many examples each sees; None for all.
        generator: Where random numbers come from.
        output: What counts of what the model gives.
    """

    def __init__(
        self,
        x: Any,
        y: Any,
        *,
        loss: Loss | None,
        updates: int,
        eta: float,
        batch: int | None,
        generator: torch.Generator | None,
        output: Output,
    ):
        self.updates = whole("updates", updates, low=1)
        self._eta = number("eta", eta, above=0)
        self._batch = None if batch is None else whole("batch", batch, low=1)
        self._x, self._y, self._loss = x, y, loss
        self._generator, self._output = generator, output

    def steps(self, updates: int) -> Any:
        """As a function that makes another number of steps."""
        return lambda model: self._run(model, updates)

    def __call__(self, model: nn.Module) -> None:
        """Train a module, in training mode."""
        self._run(model, self.updates)

    def _run(self, model: nn.Module, updates: int) -> None:
        trained = [p for p in model.parameters() if p.requires_grad]
        if not updates:
            return
        device = trained[0].device
        optimizer = torch.optim.Adam(trained, lr=self._eta)
        draws = endless_batches(
            self._x, self._y, self._batch, generator=self._generator, device=device
        )
        modes = [(module, module.training) for module in model.modules()]
        model.train()
        with torch.enable_grad(), closing(draws):
            for _, (x, y) in zip(range(updates), draws, strict=False):
                refuse_nan(x)
                args, kwargs = call_arguments(map_tensors(x, Tensor.clone))
                z = chosen_output(model(*args, **kwargs), self._output)
                optimizer.zero_grad()
                value = loss_for(y, self._loss)(z, y)
                if not isinstance(value, Tensor) or value.numel() != 1:
                    raise ValueError(f"loss must give one number, got {described(value)}")
                value.backward()
                optimizer.step()
        for module, mode in modes:
            module.training = mode


@torch.no_grad()
def accuracy(model: nn.Module, x: Any, y: Any, *, output: Output) -> float:
    """The share of right answers in evaluation mode.

    Example:
        >>> accuracy(nn.Identity(), torch.eye(2), torch.tensor([0, 0]), output=None)
        0.5
    """
    right = total = 0
    device = next((p.device for p in model.parameters()), None)
    with evaluation(model, fused=True), closing(batches(x, y, device=device)) as each:
        for inputs, targets in each:
            args, kwargs = call_arguments(map_tensors(inputs, Tensor.clone))
            z = chosen_output(model(*args, **kwargs), output)
            known = isinstance(targets, Tensor) and not targets.is_floating_point()
            if not known or not isinstance(z, Tensor) or z.ndim != targets.ndim + 1:
                raise ValueError(
                    f"score must be given where targets are no classes, got {described(targets)}"
                )
            right += int((z.argmax(1) == targets).sum())
            total += targets.numel()
    return right / total
