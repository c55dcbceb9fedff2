"""Calls of torch in a network's code, with what stands for tensors that depend on the input.

A call can be made again, for any number of examples: sizes that went with the batch go with it
still.
"""

import linecache
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.results import one_line

__all__ = ["Call", "Rows", "Size", "Value", "described_module", "mapped"]


class Value:
    """A tensor that depends on the input, and what it is for the first of two batches."""

    __slots__ = ("index", "tensor")

    def __init__(self, index: int, tensor: Tensor):
        self.index, self.tensor = index, tensor


class Size(NamedTuple):
    """A number that goes with the batch."""

    start: int
    """What it would be without an example."""
    slope: int
    """What each example adds."""


class Rows(NamedTuple):
    """A constant tensor with the same row for every example."""

    row: Tensor
    """The row."""

    __repr__ = one_line


class _Slot(NamedTuple):
    place: int


class Call:
    """A call of torch: its arguments, with a `Value`, `Size` or `Rows` where they stand for one.

    Attributes:
        name: What the function or method is called, without the marks of working in place.
        function: It, or its twin that does not work in place.
        outputs: The tensors that it made, None for one that nothing depends on.
        several: Whether it gave a tuple of them.
        tensors: The distinct values among its arguments.
        places: How many arguments are such values.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        path: str,
        module: nn.Module | None,
        line: tuple[str, int] | None,
    ):
        self.function, self.name = _not_in_place(function, name)
        self.path, self.module, self.line = path, module, line
        self.args: tuple[Any, ...] = ()
        self.kwargs: dict[str, Any] = {}
        self.outputs: list[Value | None] = []
        self.tensors: list[Value] = []
        self.several, self.places = False, 0

    def bind(self, change: Callable[[Any], Any] = lambda c: c) -> Callable[..., Any]:
        """The call as a function of its tensors, for any number of examples; constants changed."""
        place = {value.index: i for i, value in enumerate(self.tensors)}

        def open_(a: Any) -> Any:
            if isinstance(a, Value):
                return _Slot(place[a.index])
            return (
                a
                if isinstance(a, Size)
                else Rows(change(a.row))
                if isinstance(a, Rows)
                else change(a)
            )

        args, kwargs = mapped((self.args, self.kwargs), open_)
        function = self.function

        def bound(*tensors: Tensor) -> Any:
            def filled(a: Any) -> Any:
                if isinstance(a, _Slot):
                    return tensors[a.place]
                if isinstance(a, Size):
                    return a.start + a.slope * len(tensors[0])
                if isinstance(a, Rows):
                    return a.row.expand(len(tensors[0]), *a.row.shape[1:])
                return a

            now, options = mapped((args, kwargs), filled)
            return function(*now, **options)

        return bound

    def __str__(self) -> str:
        """For messages: the submodule, or the function and the submodule whose code calls it."""
        if self.line is None and type(self.module).__module__.startswith("torch.nn."):
            return described_module(self.path, self.module)
        return f"{self.name} in " + (f"submodule {self.path!r}" if self.path else "the model")

    @property
    def place(self) -> str:
        """The same, with the line of the source."""
        if self.line is None:
            return str(self)
        file, number = self.line
        text = linecache.getline(file, number).strip()
        return f"{self} (line {number} of {os.path.basename(file)}" + (
            f": {text})" if text else ")"
        )


def mapped(a: Any, function: Callable[[Any], Any]) -> Any:
    """Arguments with a function applied to what the tuples, lists, dicts and slices hold."""
    if isinstance(a, Size | Rows | _Slot):
        return function(a)
    if isinstance(a, tuple):
        return tuple([mapped(each, function) for each in a])
    if isinstance(a, list):
        return [mapped(each, function) for each in a]
    if isinstance(a, dict):
        return {k: mapped(each, function) for k, each in a.items()}
    if isinstance(a, slice):
        return slice(*(mapped(each, function) for each in (a.start, a.stop, a.step)))
    return function(a)


def described_module(path: str, module: nn.Module | None) -> str:
    """A submodule for messages."""
    kind = type(module).__name__
    return f"submodule {path!r} ({kind})" if path else f"the model itself ({kind})"


def _not_in_place(function: Callable[..., Any], name: str) -> tuple[Callable[..., Any], str]:
    plain = name.strip("_")
    if name == "__setitem__":
        return _placed, plain
    if name.endswith("_") and not name.endswith("__"):
        function = getattr(Tensor, plain, None) or getattr(torch, plain, function)
    return function, plain


def _placed(base: Tensor, index: Any, value: Any) -> Tensor:
    out = base.clone()
    out[index] = value
    return out
