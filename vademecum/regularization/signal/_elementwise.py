"""Modules that treat each entry alone, found by what they do: activations that torch does not have.

A module without submodules and tensors of its own, from one tensor to another of its shape, is one
if an entry's answer depends neither on its place nor on other entries: asked of a piece of the
signal turned round, and of one where half of the entries have changed their signs.
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

    def may_be(self, module: nn.Module, args: Any, kwargs: Any) -> bool:
        """Whether it is worth asking."""
        one = len(args) == 1 and not kwargs and isinstance(args[0], Tensor)
        own = module._modules or module._parameters or module._buffers
        return one and not own and not type(module).__module__.startswith("torch.nn")

    def known(self, module: nn.Module) -> bool | None:
        """What was found of a module like this one, if anything."""
        return self._known.get(_key(module))

    @torch.no_grad()
    def ask(self, module: nn.Module, forward: Any, x: Tensor, out: Any) -> bool:
        """Find out, by what it gave for a signal and what it gives for two others."""
        alike = isinstance(out, Tensor) and out is not x and out.shape == x.shape
        if not alike or not out.dtype == x.dtype:
            return False
        x, out = x.detach(), out.detach()
        turned = list(range(x.ndim))
        mask = (torch.arange(x.numel(), device=x.device) * 0.618 % 1 < 0.5).view(x.shape)
        same = torch.equal(forward(x.flip(turned)), out.flip(turned))
        found = same and torch.equal(forward(torch.where(mask, x, -x))[mask], out[mask])
        self._known[_key(module)] = found
        return found


def _key(module: nn.Module) -> Any:
    own = {k: v for k, v in vars(module).items() if k not in INTERNAL and k != "forward"}
    return type(module), repr(sorted(own.items()))
