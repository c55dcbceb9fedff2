"""Noting the calls of torch that meet tensors which depend on a network's input, as it runs.

The network's own code runs on plain tensors; a mode of torch sees every call. A tensor that depends
on the input is known by its identity, and by its version: one that was changed in place behind the
back of its owner, through a view, is refused when it is used again.
"""

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, no_type_check

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vademecum.models._calls import Call, Value, described_module, mapped

__all__ = ["Recorder", "Stack", "following"]

_TORCH = os.path.dirname(torch.__file__)
_LEAVING = {  # calls that give values to Python
    "__bool__", "__float__", "__int__", "__index__", "__complex__", "__array__", "__contains__",
    "item", "tolist", "numpy", "equal", "allclose", "is_nonzero",
}  # fmt: skip
_AS_ANOTHER = {"to", "type_as", "expand_as", "reshape_as", "view_as"}  # in dtype, device or shape
Stack = list[tuple[str, nn.Module]]
"""The submodules whose code runs, with their paths, the innermost last."""


class Recorder(TorchFunctionMode):
    """While it is entered, notes the calls that meet tensors which depend on the input.

    Args:
        stack: The submodules whose code runs, which `following` keeps.
        sources: The tensors of the input.
        values: Whether the code may ask for values of tensors that depend on the input; what it
            decides by them is not followed.
    """

    def __init__(self, stack: Stack, sources: list[Tensor], *, values: bool = False):
        super().__init__()
        self.stack, self.values = stack, values
        self.calls: list[Call] = []
        self.known: dict[int, tuple[Tensor, Value, int]] = {}
        self.sources = [self._keep(tensor) for tensor in sources]

    def _keep(self, tensor: Tensor) -> Value:
        value = Value(self._count, tensor)
        self._count += 1
        self.known[id(tensor)] = (tensor, value, _version(tensor))
        return value

    _count = 0

    def found(self, a: Any) -> Value | None:
        """The value that a tensor is, if it depends on the input."""
        entry = self.known.get(id(a)) if isinstance(a, Tensor) else None
        return None if entry is None else entry[1]

    @no_type_check  # which would put frames between it and its caller
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make a call, and note it if it concerns the input."""
        kwargs, name = kwargs or {}, _name(func)
        if not self._meets(args) and not self._meets(kwargs):
            return func(*args, **kwargs)
        if name.endswith("_like") or name.startswith("new_"):  # which ask for sizes alone
            return func(*args, **kwargs)
        if name in _AS_ANOTHER and not self._meets(args[:1]):  # a constant stays one
            return func(*args, **kwargs)
        caller = sys._getframe(1)
        call = Call(func, name, *(self.stack[-1] if self.stack else ("", None)), _line(caller))
        asserted = caller.f_code.co_filename == torch.__file__  # by torch's own assertion
        if name in _LEAVING and not (self.values or asserted or _in_hook(caller)):
            raise ValueError(
                f"model must be traceable, got {call.place}, which asks for values of a tensor that"
                " depends on the input"
            )
        self._note_arguments(call, name, args, kwargs)
        out = func(*args, **kwargs)
        made = args[0] if name == "__setitem__" else out
        call.several = isinstance(made, tuple | list)
        made = list(made) if call.several else [made]
        if any(isinstance(t, Tensor) for t in made):
            call.outputs = [self._keep(t) if isinstance(t, Tensor) else None for t in made]
            self.calls.append(call)
        return out

    def _note_arguments(self, call: Call, name: str, args: Any, kwargs: Any) -> None:
        seen: dict[int, Value] = {}
        changed = args[0] if args and name.endswith("_") and self.found(args[0]) is None else None

        def noted(a: Any) -> Any:
            if not isinstance(a, Tensor):
                return a
            if a is changed:  # a constant until now, whose values are about to be overwritten
                return a.clone()
            value = self.found(a)
            if value is None:
                return a
            if self.known[id(a)][2] != _version(a) and name != "__setitem__":
                raise ValueError(
                    "model must not change tensors in place through views of them, got one that"
                    f" was in {call.place}"
                )
            seen[value.index] = value
            call.places += 1
            return value

        given = {k: a for k, a in kwargs.items() if k != "out" or a is not None}
        call.args, call.kwargs = mapped((args, given), noted)
        call.tensors = list(seen.values())

    def _meets(self, a: Any) -> bool:
        if isinstance(a, Tensor):
            return id(a) in self.known
        if isinstance(a, tuple | list):
            return any(self._meets(each) for each in a)
        return isinstance(a, dict) and any(self._meets(each) for each in a.values())


@contextmanager
def following(
    model: nn.Module, stack: Stack, entered: Callable[..., Callable[..., Any]] | None = None
) -> Iterator[None]:
    """Keep the submodules whose code runs on a stack, for a while.

    Args:
        model: The module.
        stack: Where the submodules are kept, with their paths, the innermost last.
        entered: What makes the code that runs of a submodule's own, its path with itself, and the
            stack, in place of one that keeps the stack and does nothing else.
    """
    before: list[tuple[nn.Module, Any]] = []
    try:
        for path, module in model.named_modules():
            if isinstance(module, torch.jit.ScriptModule):
                raise ValueError(
                    f"model must not be scripted, got {described_module(path, module)}"
                )
            own = vars(module)
            before.append((module, own.get("forward")))
            own["forward"] = (entered or _entered)(module.forward, (path, module), stack)
        yield
    finally:
        for module, forward in before:
            if forward is None:
                del vars(module)["forward"]
            else:
                vars(module)["forward"] = forward


def _entered(forward: Any, entry: tuple[str, nn.Module], stack: Stack) -> Callable[..., Any]:
    @functools.wraps(forward)
    def entered(*args: Any, **kwargs: Any) -> Any:
        stack.append(entry)
        try:
            return forward(*args, **kwargs)
        finally:
            stack.pop()

    return entered


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _name(func: Any) -> str:
    """What a function, method or attribute of torch is called."""
    name = getattr(func, "__name__", None) or type(func).__name__
    return func.__self__.__name__ if name == "__get__" else name


def _line(frame: FrameType | None) -> tuple[str, int] | None:
    """Where a submodule's code that is not torch's made a call: file and line."""
    while frame is not None and frame.f_code.co_filename != __file__:
        if not frame.f_code.co_filename.startswith(_TORCH):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None


def _in_hook(frame: FrameType | None) -> bool:
    """Whether a call comes from a hook of a submodule, not from the code of one."""
    while frame is not None and frame.f_code.co_filename != __file__:
        if frame.f_code.co_filename == nn.modules.module.__file__:
            return True
        frame = frame.f_back
    return False
