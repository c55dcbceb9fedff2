"""Modules that treat each entry alone, found by what they do: activations that torch does not have.

A module without submodules and tensors of its own, from one tensor to another of its shape, is one
if an entry's answer depends neither on its place nor on other entries: asked of the signal turned
round, and with the signs of half of its entries changed.
"""

from typing import Any

import torch
from torch import Tensor, nn

from vademecum.models.modes import INTERNAL

__all__ = ["Recogniser"]


class Recogniser:
    """Remembers which classes, with which attributes, treat each entry alone."""

    def __init__(self):
        self._known: dict[Any, bool] = {}

    def treats_alone(self, module: nn.Module, forward: Any, x: Tensor) -> bool:
        """Whether a module does, asked by its code where it is not known; torch's own are not."""
        own = module._modules or module._parameters or module._buffers
        if own or type(module).__module__.startswith("torch.nn"):
            return False
        key = _key(module)
        if key not in self._known:
            self._known[key] = _asked(forward, x.detach())
        return self._known[key]


@torch.no_grad()
def _asked(forward: Any, x: Tensor) -> bool:
    out = forward(x.clone())
    if not isinstance(out, Tensor) or out.shape != x.shape or out.dtype != x.dtype:
        return False
    if out.equal(x):  # nothing was done
        return False
    axes = list(range(x.ndim))
    mask = (torch.arange(x.numel(), device=x.device) * 0.618 % 1 < 0.5).view(x.shape)
    if not torch.equal(forward(x.flip(axes)), out.flip(axes)):
        return False
    return torch.equal(forward(torch.where(mask, x, -x))[mask], out[mask])


def _key(module: nn.Module) -> Any:
    own = {k: v for k, v in vars(module).items() if k not in INTERNAL and k != "forward"}
    return type(module), repr(sorted(own.items()))
