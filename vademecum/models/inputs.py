"""Inputs of a network as they come: tensors in any structure, beside things that are none.

A mapping holds keyword arguments and a plain tuple positional ones. Anything else is one argument:
a tensor, a list, a dataclass, a named tuple (as packed sequences are), an object of any class.
Tensors are found in mappings, tuples, lists and dataclasses at any depth.

Where examples are told apart, they lie along the first axis of every tensor; numbers, words and
functions go to each of them. What an object of another class holds, nobody knows.
"""

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from copy import copy
from dataclasses import fields, is_dataclass
from numbers import Number
from typing import Any

import torch
from torch import Tensor

from vademecum.arguments import choice, floats

__all__ = [
    "Entangled", "call_arguments", "count_examples", "map_leaves", "map_tensors", "named_leaves",
    "named_tensors", "refuse_nan", "replaced", "variable",
]  # fmt: skip

_CONSTANTS = (  # what goes to every example as it is
    Number, str, bytes, type, torch.dtype, torch.device, torch.layout, torch.Generator, type(None),
)  # fmt: skip


class Entangled(ValueError):
    """Examples that influence each other, or of which there is no telling."""


def call_arguments(x: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a network is called with: positional and keyword arguments."""
    if isinstance(x, Mapping):
        return (), dict(x)
    return (x if type(x) is tuple else (x,)), {}


def refuse_nan(x: Any) -> None:
    """Refuse a tensor that is not finite, and NaN among several (where masks may be infinite)."""
    if isinstance(x, Tensor) and _dense(x):
        if x.is_floating_point() or x.is_complex():
            floats("x", x)
        elif x.numel() == 0:
            raise ValueError(f"x must not be empty, got shape {tuple(x.shape)}")
        return
    for name, leaf in named_tensors(x):
        if leaf.is_floating_point() and not leaf.is_nested:
            numbers = leaf.coalesce() if leaf.is_sparse else leaf
            if torch.isnan(numbers if _dense(numbers) else numbers.values()).any():
                raise ValueError(f"{name} must not hold NaN")


def count_examples(x: Any, y: Tensor | None = None, *, checked: bool = False) -> int:
    """The number of examples, along the first axis of every tensor.

    NaN is refused, unless that has been `checked` before: it takes a look at what a GPU holds.
    """
    if not checked:
        refuse_nan(x)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, leaf in named_leaves(x):
        if isinstance(leaf, Tensor) and _dense(leaf):
            shapes[name] = tuple(leaf.shape)
        elif not isinstance(leaf, _CONSTANTS) and not callable(leaf):
            kind = f"{leaf.layout} tensor" if isinstance(leaf, Tensor) else type(leaf).__name__
            raise Entangled(f"x must have examples that can be told apart, got a {kind} for {name}")
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


def variable(x: Any, name: str) -> Tensor:
    """The input in which to differentiate: `x` itself, or the entry of a mapping by its name."""
    if isinstance(x, Mapping):
        return x[choice("wrt", name, ("theta", *x))]
    choice("wrt", name, ("theta", "x"))
    return x


def replaced(x: Any, name: str, value: Tensor) -> Any:
    """The inputs with another tensor in the place of that `variable`."""
    return {**x, name: value} if isinstance(x, Mapping) else value


def map_tensors(x: Any, select: Callable[[Tensor], Tensor]) -> Any:
    """The inputs with every tensor replaced by what `select` takes of it, in the same structure.

    Example:
        >>> map_tensors({"a": torch.arange(3), "b": [torch.zeros(2), "c"]}, lambda t: t[:1])
        {'a': tensor([0]), 'b': [tensor([0.]), 'c']}
    """
    return map_leaves(x, lambda leaf: select(leaf) if isinstance(leaf, Tensor) else leaf)


def map_leaves(x: Any, change: Callable[[Any], Any]) -> Any:
    """The inputs with everything replaced that is no structure itself, tensors or not."""
    if isinstance(x, Mapping):
        made: Any = {k: map_leaves(v, change) for k, v in x.items()}
        if type(x) is dict or not isinstance(x, MutableMapping):
            return made
        like: Any = copy(x)
        for k, v in made.items():  # not by `update`, which some kinds forbid
            like[k] = v
        return like
    if isinstance(x, list):
        return [map_leaves(v, change) for v in x]
    if isinstance(x, tuple):
        make: Any = getattr(type(x), "_make", type(x))
        return make(map_leaves(v, change) for v in x)
    if is_dataclass(x) and not isinstance(x, type):
        other = copy(x)
        for field in fields(x):  # also of those that are frozen
            object.__setattr__(other, field.name, map_leaves(getattr(x, field.name), change))
        return other
    return change(x)


def named_tensors(x: Any, name: str = "x") -> Iterator[tuple[str, Tensor]]:
    """The tensors among the inputs, in the order in which `map_tensors` meets them."""
    return ((place, leaf) for place, leaf in named_leaves(x, name) if isinstance(leaf, Tensor))


def named_leaves(x: Any, name: str = "x") -> Iterator[tuple[str, Any]]:
    """What the structure holds that is none itself, with its places."""
    if isinstance(x, Mapping):
        entries = [(f"[{k!r}]", v) for k, v in x.items()]
    elif isinstance(x, tuple) and (names := getattr(x, "_fields", ())):
        entries = [(f".{k}", v) for k, v in zip(names, x, strict=True)]
    elif isinstance(x, list | tuple):
        entries = [(f"[{i}]", v) for i, v in enumerate(x)]
    elif is_dataclass(x) and not isinstance(x, type):
        entries = [(f".{field.name}", getattr(x, field.name)) for field in fields(x)]
    else:
        yield name, x
        return
    for place, v in entries:
        yield from named_leaves(v, f"{name}{place}")


def _dense(t: Tensor) -> bool:
    return t.layout == torch.strided and not t.is_nested
