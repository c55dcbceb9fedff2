r"""The arithmetic of any network: shapes, parameters, multiply-adds and activations, call by call.

The model's own code runs once, in evaluation and by default without values, on the meta device; so
shapes are what they are, and a layer that is called twice has two rows. What torch executes belongs
to the innermost module whose code asked for it: a product in `forward` is the module's own.

Each parameter tensor counts once, where it is used first, however many modules share it. Counts of
multiply-adds are exact by the conventions of `_multiply_adds`; operations without a rule are named.
Checked by the claims `convolution.parameter_count` and `convolution.shape_pyramid`.
"""

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from vademecum.convolution._multiply_adds import multiply_adds
from vademecum.convolution._weightless import run_for_shapes
from vademecum.models import call_arguments, following, named_tensors
from vademecum.results import one_line

__all__ = ["CallRow", "ShapeTrace", "shape_trace"]

Shapes = tuple[tuple[int, ...], ...]


class CallRow(NamedTuple):
    """One call of a module: its shapes, and what it did itself, without the modules that it called.

    Example:
        >>> shape_trace(nn.Linear(3, 2), (3,)).calls[0].multiply_adds
        6
    """

    name: str
    """The first place of the module in the model, empty for the model itself."""
    kind: str
    """The name of its class."""
    depth: int
    """How many calls it was made within."""
    inputs: Shapes
    """The shapes of the tensors that it took."""
    outputs: Shapes
    """The shapes of the tensors that it gave."""
    parameters: int
    """Entries of the parameter tensors that it was the first to use."""
    multiply_adds: int
    """How many it took itself."""
    activation_bytes: int
    """Of tensors that it made and gave, or handed to the modules that it called."""
    without_rule: tuple[str, ...]
    """Its operations that may take multiply-adds and have no rule."""

    __repr__ = one_line


class ShapeTrace(NamedTuple):
    """A forward pass, call by call.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2))
        >>> print(shape_trace(model, (1, 28, 28)).table())
        call               output              parameters  multiply-adds      bytes
        Sequential         (1, 6, 14, 14)               -              -          -
          0 Conv2d         (1, 6, 28, 28)             156         117600      18816
          1 ReLU           (1, 6, 28, 28)               -              -      18816
          2 MaxPool2d      (1, 6, 14, 14)               -              -       4704
        total                                         156         117600      42336
    """

    calls: tuple[CallRow, ...]
    """The calls in the order in which they began."""
    parameters: int
    """Entries of the model's parameters, each tensor once."""
    unused: tuple[str, ...]
    """The parameters that no operation met: in evaluation they have no effect."""

    __repr__ = one_line

    @property
    def multiply_adds(self) -> int:
        """Those of all calls."""
        return sum(call.multiply_adds for call in self.calls)

    @property
    def activation_bytes(self) -> int:
        """Those of all calls."""
        return sum(call.activation_bytes for call in self.calls)

    @property
    def without_rule(self) -> dict[str, int]:
        """Operations whose multiply-adds are not known and not counted, and how often they ran."""
        return dict(Counter(name for call in self.calls for name in call.without_rule))

    def table(self, depth: int | None = None) -> str:
        """The trace as text.

        Args:
            depth: How deep calls may lie within calls to have a line of their own; what lies deeper
                is added to the line of the call that it lies in. All have one by default.
        """
        rows = _folded(self.calls, depth)
        labels = ["  " * r.depth + f"{r.name} {r.kind}".strip() for r in rows]
        shapes = [", ".join(map(str, r.outputs)) for r in rows]
        wide, long = max(18, *map(len, labels)), max(18, *map(len, shapes))

        def line(label: Any, shape: Any, *numbers: Any) -> str:
            p, m, b = numbers
            return f"{label:{wide}} {shape:{long}} {p:>11} {m:>14} {b:>10}"

        lines = [line("call", "output", "parameters", "multiply-adds", "bytes")]
        for r, label, shape in zip(rows, labels, shapes, strict=True):
            lines.append(line(label, shape, *(v or "-" for v in r[5:8])))
        total = (self.parameters, self.multiply_adds, self.activation_bytes)
        lines.append(line("total", "", *total))
        if self.unused:
            lines.append(f"without effect in evaluation: {', '.join(self.unused)}")
        for name, count in self.without_rule.items():
            lines.append(f"not counted, as there is no rule: {name}, {count} times")
        return "\n".join(lines)


def shape_trace(model: nn.Module, x: Any) -> ShapeTrace:
    """Shapes, parameters, multiply-adds and bytes of activations of every call of every module.

    Args:
        model: Any module, on any device; one on the meta device will do.
        x: An input, or the shape of one example without the batch.

    Returns:
        A row for each call, for all examples in `x`. Code that needs values runs on real tensors,
        with a `SlowPathWarning`.

    Raises:
        ValueError: If the model cannot take such an input.

    Example:
        >>> attention = nn.MultiheadAttention(8, 2, batch_first=True)
        >>> x = torch.zeros(1, 5, 8)
        >>> shape_trace(attention, (x, x, x)).multiply_adds  # 4 * 5 * 8 * 8 + 2 * 5 * 5 * 8
        1680
    """
    return run_for_shapes(model, x, _traced)


def _traced(model: nn.Module, x: Any) -> ShapeTrace:
    args, kwargs = call_arguments(x)
    book = _Book(model, [t for _, t in named_tensors(x)])
    with following(model, book.stack, book.entered), book:
        model(*args, **kwargs)
    named = dict(model.named_parameters())
    unused = tuple(name for name, p in named.items() if id(p) in book.parameters)
    rows = tuple(row.closed() for row in book.rows)
    return ShapeTrace(rows, sum(p.numel() for p in named.values()), unused)


class _Open:
    """A call that is being made."""

    def __init__(self, name: str, module: nn.Module, depth: int, inputs: Shapes):
        self.name, self.kind, self.depth = name, type(module).__name__, depth
        self.inputs: Shapes = inputs
        self.outputs: Shapes = ()
        self.parameters = self.multiply_adds = self.bytes = 0
        self.without_rule: list[str] = []

    def closed(self) -> CallRow:
        return CallRow(
            self.name, self.kind, self.depth, self.inputs, self.outputs, self.parameters,
            self.multiply_adds, self.bytes, tuple(self.without_rule),
        )  # fmt: skip


class _Book(TorchDispatchMode):
    """While it is entered, adds what torch executes to the call whose code asked for it."""

    def __init__(self, model: nn.Module, inputs: list[Tensor]):
        super().__init__()
        self.rows: list[_Open] = []
        self.stack: list[Any] = []
        self.parameters = {id(p): p.numel() for p in model.parameters()}
        known = [*inputs, *model.parameters(), *model.buffers()]
        self.storages = {t.untyped_storage() for t in known if t.layout == torch.strided}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if self.stack:
            row = self.stack[-1]
            if self.parameters:
                self._note_parameters(row, args)
            count = multiply_adds(func, args, out)
            if count is None:
                row.without_rule.append(str(func.overloadpacket).rpartition(".")[2])
            else:
                row.multiply_adds += count
        return out

    def _note_parameters(self, row: _Open, args: Any) -> None:
        for a in args:
            if isinstance(a, Tensor):
                row.parameters += self.parameters.pop(id(a), 0)
            elif isinstance(a, tuple | list):
                self._note_parameters(row, a)

    def entered(
        self, forward: Any, entry: tuple[str, nn.Module], stack: list[_Open]
    ) -> Callable[..., Any]:
        """The code of a module, as one more call in the book."""

        @functools.wraps(forward)
        def called(*args: Any, **kwargs: Any) -> Any:
            given = [t for _, t in named_tensors((args, kwargs))]
            if stack:
                self._note_made(stack[-1], given)
            row = _Open(*entry, len(stack), _shapes(given))
            self.rows.append(row)
            stack.append(row)
            try:
                out = forward(*args, **kwargs)
            finally:
                stack.pop()
            made = [t for _, t in named_tensors(out)]
            row.outputs = _shapes(made)
            self._note_made(row, made)
            return out

        return called

    def _note_made(self, row: _Open, tensors: list[Tensor]) -> None:
        """Add the bytes of memory that was not seen before."""
        for t in tensors:
            if t.layout == torch.strided and (storage := t.untyped_storage()) not in self.storages:
                self.storages.add(storage)  # kept alive, so that no other gets its identity
                row.bytes += storage.nbytes()


def _shapes(tensors: list[Tensor]) -> Shapes:
    return tuple(tuple(t.shape) for t in tensors)


def _folded(calls: tuple[CallRow, ...], depth: int | None) -> list[CallRow]:
    """The calls down to a depth, with those below added to them."""
    rows: list[CallRow] = []
    for call in calls:
        if depth is None or call.depth <= depth:
            rows.append(call)
        else:
            last = rows[-1]
            rows[-1] = last._replace(
                parameters=last.parameters + call.parameters,
                multiply_adds=last.multiply_adds + call.multiply_adds,
                activation_bytes=last.activation_bytes + call.activation_bytes,
                without_rule=last.without_rule + call.without_rule,
            )
    return rows
