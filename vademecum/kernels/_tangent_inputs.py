"""Inputs that a kernel compares: finite, and of one kind."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from vademecum.arguments import floats
from vademecum.models import named_tensors

__all__ = ["insist_on_data"]


def insist_on_data(x1: Any, x2: Any) -> None:
    """Refuse inputs that are not finite, or of which the second are of another kind."""
    for name, x in (("x1", x1), ("x2", x2)):
        if isinstance(x, DataLoader):
            raise ValueError(f"{name} must be data at hand, got a DataLoader")
        if isinstance(x, Tensor) and x.is_floating_point():
            floats(name, x)
        for place, t in named_tensors(x, name):
            if t.is_floating_point() and t.layout == torch.strided and bool(t.isnan().any()):
                raise ValueError(f"{place} must not hold NaN")
    if x2 is None:
        return
    one, other = ([_kind(t) for _, t in named_tensors(x)] for x in (x1, x2))
    if len(one) != len(other):
        raise ValueError(
            f"x1 and x2 must hold equally many tensors, got {len(one)} and {len(other)}"
        )
    for (place, _), *kinds in zip(named_tensors(x2, "x2"), one, other, strict=True):
        for what, a, b in zip(("shape of an example", "dtype", "device"), *kinds, strict=True):
            if a != b:
                raise ValueError(f"{place} must have the {what} of x1, {a}, got {b}")


def _kind(t: Tensor) -> tuple[Any, ...]:
    return tuple(t.shape[1:]), t.dtype, t.device
