"""An activation as a function of numbers: in double precision, entry by entry, with derivatives.

A module is called in evaluation mode, with its parameters and buffers in double precision and where
the numbers are; it stays as it is. Derivatives come from autograd.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from vademecum.models import evaluation

__all__ = ["Pointwise"]


class Pointwise:
    """A callable, made safe: a double for a double, each from one number alone."""

    def __init__(self, activation: Any):
        if not callable(activation) or isinstance(activation, type):
            raise ValueError(f"activation must be a callable, got {activation!r}")
        self.activation: Callable[..., Any] = activation
        probe = torch.tensor([0.3, -1.1, 0.7, -0.2, 2.3], dtype=torch.float64)
        value, other = self(probe), self(torch.cat([probe[:4], probe[:1]]))
        if not torch.allclose(value[:4], other[:4], rtol=1e-9, atol=0, equal_nan=True):
            raise ValueError("activation must act on each number alone, got one that mixes them")

    def __call__(self, u: Tensor, order: int = 0) -> Tensor:
        """The derivative of an order at points, without a graph."""
        if order == 0:
            with torch.no_grad():
                return self._call(u)
        with torch.enable_grad():
            u = u.detach().requires_grad_()
            value = self._call(u)
            for left in range(order, 0, -1):
                if not value.requires_grad:
                    return torch.zeros_like(u)
                (value,) = torch.autograd.grad(value.sum(), u, create_graph=left > 1)
        return value.detach()

    def _call(self, u: Tensor) -> Tensor:
        flat = u.reshape(-1)
        model = self.activation
        with evaluation(model) if isinstance(model, nn.Module) else nullcontext():
            if isinstance(model, nn.Module) and (state := _in_double(model, u.device)):
                value = functional_call(model, state, (flat,))
            else:
                value = model(flat)
        if not isinstance(value, Tensor) or value.shape != flat.shape or value.is_complex():
            given = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
            raise ValueError(
                f"activation must give a real number for each of {flat.numel()}, got {given[:80]}"
            )
        return value.to(torch.float64).reshape(u.shape)


def _in_double(model: nn.Module, device: torch.device) -> dict[str, Tensor]:
    state = [*model.named_parameters(), *model.named_buffers()]
    return {
        name: tensor.detach().to(device, torch.float64 if tensor.is_floating_point() else None)
        for name, tensor in state
    }
