r"""A copy of a network that is moved through the space of parameters, and looked at on the way.

Between two networks the statistics of batch normalisation are neither's: what a layer sees there
has another mean and variance, and a path through networks with mixed statistics climbs for that
reason alone. So they are renewed at each point from the data, by one pass in which these layers
normalise by the batch. Other buffers of floating-point numbers go along the straight line.
"""

from copy import deepcopy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.gradients import functional
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
    mean_over_batches,
    refuse_nan,
    unwrapped,
)

__all__ = ["Walker"]

_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_IGNORED = -100  # targets that torch's cross-entropy leaves out


class Walker:
    """A copy of a network, with the data on which it is looked at.

    Args:
        model: Any module, which stays as it is.
        x: The inputs, or a `DataLoader`.
        y: The targets.
        loss: A function of outputs and targets with one number for all.
        output: What counts of what the model gives.

    Attributes:
        model: The copy.
        f: It as a function of its parameters.
    """

    def __init__(self, model: nn.Module, x: Any, y: Any, *, loss: Loss | None, output: Output):
        self.model = deepcopy(unwrapped(model))
        self.model.zero_grad(set_to_none=True)
        self.f = functional(self.model, output=output)
        for p in self.f.parameters.values():
            p.requires_grad_()
        self._x, self._y, self._loss, self._output = x, y, loss, output
        self._norms = [
            module
            for module in self.model.modules()
            if isinstance(module, _NORMS) and module.running_mean is not None
        ]

    def buffers(self, model: nn.Module) -> list[Tensor]:
        """The buffers that go along the line, of a network like this one."""
        own = [f"{name}." for name, module in model.named_modules() if isinstance(module, _NORMS)]
        return [
            b
            for name, b in model.named_buffers()
            if b.is_floating_point() and not any(name.startswith(n) for n in own)
        ]

    @torch.no_grad()
    def move(self, theta: Float[Tensor, " P"], buffers: list[Tensor]) -> None:
        """Give the copy these parameters and buffers."""
        for p, new in zip(self.f.parameters.values(), self.f.unravel(theta).values(), strict=True):
            p.copy_(new)
        for b, new in zip(self.buffers(self.model), buffers, strict=True):
            b.copy_(new)

    @torch.no_grad()
    def renew(self) -> None:
        """Batch normalisation with the statistics of the data, batches counting alike."""
        if not self._norms:
            return
        for norm in self._norms:
            norm.reset_running_stats()
        with evaluation(self.model, fused=True):
            for norm in self._norms:
                norm.training, norm.momentum = True, None  # a plain mean over batches
            for x, _ in batches(self._x, self._y, device=self.f.device):
                self._call(x)

    @torch.no_grad()
    def look(self) -> tuple[float, float]:
        """The loss here, and the share of wrong answers, NaN where there are no classes."""
        wrong, total = 0, 0

        def of_batch(x: Any, y: Any) -> Tensor:
            nonlocal wrong, total
            refuse_nan(x)
            z = self._call(x)
            if _are_classes(z, y):
                wrong += int(((z.argmax(1) != y) & (y != _IGNORED)).sum())
                total += int((y != _IGNORED).sum())
            return self._value(z, y)

        with evaluation(self.model, fused=True):
            value = float(mean_over_batches(self._x, self._y, of_batch, device=self.f.device))
        return value, wrong / total if total else float("nan")

    def slope(self, x: Any, y: Any) -> Tensor:
        """The gradient of the loss on some data, normalised by their own statistics."""
        parameters = list(self.f.parameters.values())
        with evaluation(self.model):
            for norm in self._norms:
                norm.training = True
            value = self._value(self._call(x), y)
            grads = torch.autograd.grad(value, parameters, materialize_grads=True)
        return self.f.ravel(dict(zip(self.f.parameters, grads, strict=True)))

    def _call(self, x: Any) -> Any:
        args, kwargs = call_arguments(map_tensors(x, Tensor.clone))  # some layers work in place
        return chosen_output(self.model(*args, **kwargs), self._output)

    def _value(self, z: Any, y: Any) -> Tensor:
        value = loss_for(y, self._loss)(z, y)
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise ValueError(f"loss must give one number, got {described(value)}")
        return value.sum()


def _are_classes(z: Any, y: Any) -> bool:
    tensors = isinstance(z, Tensor) and isinstance(y, Tensor)
    if not tensors or y.is_floating_point() or z.ndim != y.ndim + 1:
        return False
    return z.shape[:1] + z.shape[2:] == y.shape
