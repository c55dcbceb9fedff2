"""A network that is given back as it was: tensors, gradients, hooks, modes, attributes, randomness.

Copies of its parameters, buffers and gradients are kept meanwhile: a network's own code may write
into them, and only a copy can give them back.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.models import named_modules, untouched
from vademecum.randomness import own_randomness

__all__ = ["Kept", "guarded"]


class _Place(NamedTuple):
    """A tensor of a module as it was."""

    name: str
    table: dict[str, Tensor | None]
    key: str
    tensor: Tensor
    copy: Tensor
    requires_grad: bool
    grad: Tensor | None
    grad_copy: Tensor | None


class Kept:
    """What a network held; `give_back` makes it so again."""

    def __init__(self, model: nn.Module):
        self.places: list[_Place] = []
        for prefix, module in named_modules(model):
            tables: list[Any] = [module._parameters, module._buffers]
            for table in tables:
                for key, t in table.items():
                    if t is not None:
                        self.places.append(_place(f"{prefix}{key}", table, key, t))

    def give_back(self) -> list[str]:
        """Make everything as it was, and say what was not."""
        changed = []
        for place in self.places:
            same = _restore(place)
            if not same:
                changed.append(place.name)
        return changed


def _place(name: str, table: dict[str, Tensor | None], key: str, t: Tensor) -> _Place:
    grad = t.grad if t.is_leaf else None
    copy = None if grad is None else grad.detach().clone()
    return _Place(name, table, key, t, t.detach().clone(), t.requires_grad, grad, copy)


def _restore(place: _Place) -> bool:
    t, same = place.tensor, True
    if place.table.get(place.key) is not t:
        place.table[place.key], same = t, False
    with torch.no_grad():
        if not _equal(t.detach(), place.copy):
            t.detach().copy_(place.copy)
            same = False
        grad, copy = place.grad, place.grad_copy
        if grad is not None and copy is not None and not _equal(grad.detach(), copy):
            grad.detach().copy_(copy)
            same = False
    if t.is_leaf and t.requires_grad != place.requires_grad:
        t.requires_grad_(place.requires_grad)
        same = False
    if t.is_leaf and t.grad is not place.grad:
        t.grad = place.grad
        same = False
    return same


def _equal(a: Tensor, b: Tensor) -> bool:
    if a.is_meta or a.shape != b.shape:
        return a.shape == b.shape
    if a.layout != torch.strided:
        return bool((a - b).abs().sum() == 0)
    return torch.equal(a, b) or bool(((a == b) | ((a != a) & (b != b))).all())


@contextmanager
def guarded(model: nn.Module) -> Iterator[Kept]:
    """Let a network be worked with in evaluation mode; afterwards all of it is as it was."""
    modules = [module for _, module in named_modules(model)]
    kept = Kept(model)
    with own_randomness(None), untouched(modules):
        for module in modules:
            module.training = False
        try:
            yield kept
        finally:
            kept.give_back()
