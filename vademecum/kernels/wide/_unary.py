"""Functions of each entry of a signal, put together from the calls of a network's code."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vademecum.models import Call

__all__ = ["IDENTITY", "Unary", "acts_on_entries", "composed"]


class Unary(NamedTuple):
    """A function of each number, in double precision."""

    call: Callable[[Tensor], Tensor]
    linear: float | None
    """The factor, if it is a multiple of its argument."""
    inner: tuple[float, ...]
    """By what the argument was multiplied on the way."""
    last: Call | None = None
    """The call that gave it, if there was one."""


IDENTITY = Unary(lambda t: t, 1.0, ())
"""The function that changes nothing."""


def composed(call: Call, functions: list[Unary]) -> Unary:
    """The function that a call makes of functions of the same number."""
    bound = call.bind(_alone)

    axes = (1,) * (call.tensors[0].tensor.ndim - 2)  # numbers lie along channels, where it has them

    def function(t: Tensor) -> Tensor:
        given = (f.call(t).reshape(1, -1, *axes).clone() for f in functions)
        return bound(*given).reshape(t.shape)  # which may overwrite what it is given

    size = torch.logspace(-18, 18, 25, dtype=torch.float64)  # beyond which nothing may bend
    t = torch.cat([torch.tensor([0.3], dtype=torch.float64), size, -1.7 * size])
    value = function(t)
    factor = float(value[0] / t[0])
    linear = factor if torch.allclose(value, factor * t, rtol=1e-14, atol=0) else None
    inner = {a for f in functions for a in (*f.inner, *([f.linear] if f.linear else []))}
    return Unary(function, linear, tuple(sorted(inner)), call)


def acts_on_entries(call: Call) -> bool:
    """Whether a call does the same to each entry, whatever the others are."""
    shapes = {value.tensor.shape for value in call.tensors}
    if len(shapes) != 1 or len(call.outputs) != 1 or call.outputs[0] is None:
        return False
    (shape,) = shapes
    if call.outputs[0].tensor.shape != shape or any(c.numel() != 1 for c in constants(call)):
        return False
    bound, size = call.bind(_alone), shape.numel()
    chance = torch.Generator().manual_seed(0)
    given = [torch.randn(size, generator=chance, dtype=torch.float64) for _ in call.tensors]
    order = torch.randperm(size, generator=chance)
    value = bound(*(u.clone().view(shape) for u in given)).flatten()
    moved = bound(*(u[order].view(shape) for u in given)).flatten()
    for u in given:
        u[-1] = 0.37
    other = bound(*(u.view(shape) for u in given)).flatten()

    def same(a: Tensor, b: Tensor) -> bool:
        return torch.allclose(a, b, rtol=1e-9, atol=0, equal_nan=True)

    return same(value[order], moved) and same(value[:-1], other[:-1])


def constants(call: Call) -> list[Tensor]:
    """The tensors among a call's arguments that do not depend on the input."""
    return [a for a in (*call.args, *call.kwargs.values()) if isinstance(a, Tensor)]


def _alone(a: Any) -> Any:
    """A constant in double precision, on the CPU; a single number without axes."""
    if not isinstance(a, Tensor):
        return a.__class__(a) if isinstance(a, torch.Size) else a
    a = a.detach().to("cpu", torch.float64 if a.is_floating_point() else None)
    return a.reshape(()) if a.numel() == 1 else a
