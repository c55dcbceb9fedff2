r"""What a module computes, call by call, with concrete shapes: the graph of its forward code.

The code itself runs, on two batches of different sizes $a$ and $b$, and every call of torch that
meets a tensor which depends on the input is noted. So sizes are plain numbers, and whatever Python
does with them, with decorators, hooks or data classes just happens. Then the two runs are laid side
by side: they must have made the same calls; a number $s$ that differs goes with the batch,

$$s(n) = s_a + \frac{s_b - s_a}{b - a} (n - a),$$

and so does a constant tensor with equal rows, one for each example. Everything else must be the
same in both. Their examples should differ, or a value that left torch by a way that cannot be
followed (a scripted function) and came back would pass for a constant.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.models._calls import Call, Rows, Size, Value
from vademecum.models._recording import Recorder, Stack, following
from vademecum.models.failures import out_of_memory
from vademecum.models.inputs import Entangled, call_arguments, named_tensors
from vademecum.models.outputs import Output, chosen_output
from vademecum.results import one_line

__all__ = ["Call", "Recording", "Rows", "Size", "Trace", "Value", "recorded", "trace_of_rows"]


class Recording(NamedTuple):
    """One run of a model's code: all calls that met tensors which depend on the input."""

    sources: list[Value]
    """The tensors of the input."""
    calls: list[Call]
    """The calls, in order."""
    results: list[Value]
    """The tensors in what the model gave that depend on the input."""
    output: Any
    """What the model gave."""

    __repr__ = one_line


def recorded(model: nn.Module, x: Any) -> Recording:
    """The calls of one run, for one input: sizes and constants are those of this run.

    Args:
        model: The module, which is to be in evaluation; its tensors may be on the meta device, and
            its code may ask for values.
        x: An input, as `call_arguments` takes it.

    Example:
        >>> run = recorded(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), torch.rand(1, 2))
        >>> [call.name for call in run.calls], run.results[0].tensor.shape
        (['linear', 'relu'], torch.Size([1, 3]))
    """
    stack: Stack = []
    run = Recorder(stack, [tensor for _, tensor in named_tensors(x)], values=True)
    args, kwargs = call_arguments(x)
    with following(model, stack), run:
        y = model(*args, **kwargs)
    results = [run.found(tensor) for _, tensor in named_tensors(y)]
    return Recording(run.sources, run.calls, [v for v in results if v is not None], y)


class Trace:
    """The calls of a model's code that its output depends on.

    Args:
        model: The module, which is to be in evaluation.
        a: A batch of inputs, as `call_arguments` takes them; it may be changed in place.
        b: Another, of another size.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        check: What to ask of each call that the output depends on, before anything else; it raises
            an error for one that will not do.

    Attributes:
        sources: The tensors of the input.
        calls: The calls, in order; their outputs are None where nothing depends on them.
        result: The output.
        outputs: What the model gave for both batches.

    Raises:
        ValueError: If the code asks for values of tensors that depend on the input, or does not do
            the same for both batches; if examples do not stay along the first axis.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        >>> trace = Trace(model, torch.rand(2, 2), torch.rand(3, 2))
        >>> [f"{call.name}: {call}" for call in trace.calls]
        ["linear: submodule '0' (Linear)", "relu: submodule '1' (ReLU)"]
    """

    def __init__(
        self,
        model: nn.Module,
        a: Any,
        b: Any,
        *,
        output: Output = None,
        check: Callable[[Call], None] | None = None,
    ):
        tensors = [[tensor for _, tensor in named_tensors(x)] for x in (a, b)]
        self.sizes = tuple(len(each[0]) for each in tensors)
        stack, runs, self.outputs = [], [], []
        with following(model, stack):
            for x, each in zip((a, b), tensors, strict=True):
                runs.append(Recorder(stack, each))
                args, kwargs = call_arguments(x)
                with runs[-1]:
                    self.outputs.append(chosen_output(model(*args, **kwargs), output))
        first, second = (run.found(y) for run, y in zip(runs, self.outputs, strict=True))
        if first is None or second is None:
            kind = type(self.outputs[0]).__name__
            raise ValueError(
                f"model must give a tensor that depends on its input, got {kind}"
                + ("" if kind == "Tensor" else ": say which part counts with output=")
            )
        self.sources, self.result = runs[0].sources, first
        self.calls = self._needed(runs[0].calls)
        if check is not None:
            for call in self.calls:
                check(call)
        self._merge_calls(runs[0].calls, runs[1].calls)

    def _needed(self, calls: list[Call]) -> list[Call]:
        """The calls that the output depends on, with what it does not depend on taken out."""
        needed = {self.result.index}
        for call in reversed(calls):
            call.outputs = [v if v and v.index in needed else None for v in call.outputs]
            if any(call.outputs):
                needed.update(value.index for value in call.tensors)
        return [call for call in calls if any(call.outputs)]

    def _merge_calls(self, first: list[Call], second: list[Call]) -> None:
        """Make what differs between the runs go with the batch, in the calls that matter."""
        if [call.name for call in first] != [call.name for call in second]:
            raise _different()
        for call, other in zip(first, second, strict=True):
            if not any(call.outputs):
                continue
            try:
                call.args = self._merge(call.args, other.args)
                call.kwargs = self._merge(call.kwargs, other.kwargs)
            except _Unlike:
                raise _different(f", got another constant for each in {call.place}") from None
            pairs = zip(call.outputs, other.outputs, strict=True)
            self._insist_on_rows(
                call, [(v.tensor.shape, w.tensor.shape) for v, w in pairs if v and w]
            )

    def _insist_on_rows(self, call: Call, shapes: list[tuple[torch.Size, torch.Size]]) -> None:
        n, m = self.sizes
        for one, other in shapes:
            if one[:1] != (n,) or other[:1] != (m,) or one[1:] != other[1:]:
                raise Entangled(
                    "model must be a function of one example at a time, with examples along the"
                    f" first axis throughout, got a tensor of shape {tuple(one)} for {n} examples"
                    f" from {call.place}"
                )

    def _merge(self, one: Any, other: Any) -> Any:
        """What stands for an argument of the one run and the same one of the other."""
        if one is other:
            return one
        if type(one) is not type(other):
            raise _Unlike
        if isinstance(one, Tensor):
            return self._merge_tensors(one, other)
        if isinstance(one, tuple | list) and len(one) == len(other):
            return type(one)([self._merge(v, w) for v, w in zip(one, other, strict=True)])
        if isinstance(one, dict) and list(one) == list(other):
            return {k: self._merge(v, other[k]) for k, v in one.items()}
        if isinstance(one, slice):
            return slice(*self._merge(*((s.start, s.stop, s.step) for s in (one, other))))
        if isinstance(one, Value) and one.index == other.index:
            return one
        if isinstance(one, int) and one != other:
            n, m = self.sizes
            slope = (other - one) // (m - n)
            return Size(one - slope * n, slope)
        if one != other:
            raise _Unlike
        return one

    def _merge_tensors(self, one: Tensor, other: Tensor) -> Tensor | Rows:
        if one.shape == other.shape and torch.equal(one, other):
            return one
        if (one.shape[:1], other.shape[:1]) == tuple((n,) for n in self.sizes):
            both = torch.cat([one, other]) if one.shape[1:] == other.shape[1:] else one[:0]
            if len(both) and torch.equal(both, one[:1].expand_as(both)):
                return Rows(one[:1])
        raise _Unlike


def trace_of_rows(
    model: nn.Module,
    x: Tensor,
    *,
    output: Output = None,
    check: Callable[[Call], None] | None = None,
) -> Trace:
    """The trace for examples of one shape, two in one batch and the others in another.

    Args:
        model: The module, which is to be in evaluation.
        x: Examples, at least three, which stay as they are.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        check: What to ask of each call that the output depends on, as for `Trace`.

    Raises:
        ValueError: If the model does not take examples of this shape, or cannot be traced.

    Example:
        >>> trace_of_rows(nn.Linear(2, 3), torch.rand(5, 2)).outputs[1].shape
        torch.Size([3, 3])
    """
    try:
        return Trace(model, x[:2].clone(), x[2:].clone(), output=output, check=check)
    except (RuntimeError, TypeError, IndexError) as error:
        if out_of_memory(error):
            raise
        message = str(error).partition("\n")[0]
        shape = tuple(x.shape[1:])
        raise ValueError(f"model does not take inputs of shape {shape}: {message}") from error


class _Unlike(Exception):
    """An argument that is not the same in both runs, nor goes with the batch."""


def _different(where: str = "") -> ValueError:
    return ValueError(
        "model must be traceable: its code must do the same for every batch, by calls of torch"
        f" alone, without scripted functions or chance{where}"
    )
