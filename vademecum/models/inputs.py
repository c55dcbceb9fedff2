"""Inputs of a network: one tensor, a tuple of arguments, or a dict of keyword arguments.

Where examples are told apart, they lie along the first axis of every tensor; what is no tensor goes
to each of them.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from vademecum.arguments import floats

__all__ = [
    "Entangled", "call_arguments", "count_examples", "map_tensors", "named_tensors", "refuse_nan",
]  # fmt: skip


class Entangled(ValueError):
    """Examples that influence each other, or of which there is no telling."""


def call_arguments(x: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a network is called with: positional and keyword arguments."""
    if isinstance(x, dict):
        return (), x
    return (x if isinstance(x, tuple) else (x,)), {}


def refuse_nan(x: Any) -> None:
    """Refuse a tensor that is not finite, and NaN among several (where masks may be infinite)."""
    if isinstance(x, Tensor):
        if x.is_floating_point() or x.is_complex():
            floats("x", x)
        elif x.numel() == 0:
            raise ValueError(f"x must not be empty, got shape {tuple(x.shape)}")
    for name, leaf in named_tensors(x):
        if leaf.is_floating_point() and torch.isnan(leaf).any():
            raise ValueError(f"{name} must not hold NaN")


def count_examples(x: Any, y: Tensor | None = None) -> int:
    """The number of examples, along the first axis of every tensor."""
    refuse_nan(x)
    shapes = {name: tuple(leaf.shape) for name, leaf in named_tensors(x)}
    if y is not None:
        if not isinstance(y, Tensor):
            raise ValueError(f"y must be a tensor, got {type(y).__name__}")
        shapes["y"] = tuple(y.shape)
    if not shapes or () in shapes.values():
        raise Entangled(f"x must have examples along the first axis of its tensors, got {shapes}")
    counts = {shape[0] for shape in shapes.values()}
    if len(counts) > 1:
        raise Entangled(f"x and y must have equally many examples, got the shapes {shapes}")
    n = counts.pop()
    if n == 0:
        raise ValueError(f"x must not be empty, got the shapes {shapes}")
    return n


def map_tensors(x: Any, select: Callable[[Tensor], Tensor]) -> Any:
    """The inputs with every tensor replaced by what `select` takes of it."""
    if isinstance(x, dict):
        return {k: map_tensors(v, select) for k, v in x.items()}
    if isinstance(x, tuple):
        return tuple(map_tensors(v, select) for v in x)
    return select(x) if isinstance(x, Tensor) else x


def named_tensors(x: Any, name: str = "x") -> Iterator[tuple[str, Tensor]]:
    """The tensors among the inputs, in the order in which `map_tensors` meets them."""
    if isinstance(x, Tensor):
        yield name, x
    elif isinstance(x, dict):
        for k, v in x.items():
            yield from named_tensors(v, f"{name}[{k!r}]")
    elif isinstance(x, tuple):
        for i, v in enumerate(x):
            yield from named_tensors(v, f"{name}[{i}]")
    elif isinstance(x, list):
        raise ValueError(f"{name} must be a tensor, a tuple or a dict, got a list")
