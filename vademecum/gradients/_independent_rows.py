r"""How a network treats examples: whether each has a row to itself, and what it takes.

Whether the layers' rules tell the whole story (see `vademecum.gradients._recorded_pass`), with or
without tensors that all examples share, is found out on three of the examples. The
gradient of a sum over examples can be taken apart only if they do not influence each other:

- an example must have the same output in any company and at any place. Where it has not the same
  inputs to the layers on the way, which a layer of zeros may hide from the output, the rules do not
  hold, and each example goes by itself;
- what comes back from the output of one example must come back to its row of each layer alone. A
  model may sort the examples on the way: where indexing could do so, each pass is examined.

Some code depends on the batch only if it is large, or has a certain example in it. So in every
portion of the examples, a row of the full pass is compared with that of a pass of few examples.
"""

import traceback
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from vademecum.gradients._layer_rules import EMBEDDING
from vademecum.gradients._recorded_pass import (
    Layer,
    Pass,
    covered,
    layers_of,
    rows_of,
    run,
)
from vademecum.gradients.network_function import Functional
from vademecum.models import (
    Entangled,
    count_examples,
    differentiable_output,
    insist_on_same_outputs,
    largest_move,
    map_tensors,
    out_of_memory,
    refuse_batch_statistics,
    row_is_alone,
    rows_are_separate,
)

__all__ = ["Plan", "portions_of", "record", "study"]

_PORTION = {"cpu": 2**24}  # bytes for going back, beyond which larger portions do not pay
_MANY = 32  # examples at a time, up to which they pay for large ones, too


class Plan(NamedTuple):
    """What is known of a network: whether rules cover it, bytes and outputs for one example."""

    layers: list[Layer]
    covered: bool
    shared: bool  # with shared tensors
    saved: int
    shape: torch.Size
    rows: list[int]  # examples that are known from a pass of few
    few: Pass

    def step(self, device: torch.device) -> int:
        """How many examples to take at a time, for speed."""
        size = _PORTION.get(device.type, 2**32)
        return max(size // self.saved, min(16 * size // self.saved, _MANY), 2)

    def bytes_each(self, rows: int, width: int, *, mapped: bool) -> int:
        """About what one example takes for `rows` of derivatives, `width` bytes each.

        What autograd keeps, once more for each backward pass, and the rows; twice as much where
        `torch.func` does the work.
        """
        return ((rows + 3) * self.saved + 2 * rows * width) * (2 if mapped else 1)

    def portion(self, rows: int, width: int, memory: int, *, mapped: bool) -> int:
        """How many examples to take at a time to keep to `memory`, as far as an estimate goes."""
        each = self.bytes_each(rows, width, mapped=mapped)
        if memory < each:
            raise ValueError(f"memory must be >= {each} bytes for one example, got {memory}")
        return memory // each


def portions_of(here: slice, step: int) -> Iterator[slice]:
    """Portions of about the same size: a single example that is left over would be dear."""
    n = here.stop - here.start
    count = -(-n // step)
    ends = [here.start + i * n // count for i in range(count + 1)]
    return (slice(*ends[i : i + 2]) for i in range(count))


def study(f: Functional, x: Any, *, wrt: Literal["theta", "x"] = "theta") -> Plan:
    """How a network treats examples, from passes with three of them, and with two if need be.

    Raises:
        ValueError: If there is nothing to differentiate, or the examples influence each other, or
            the model fails for few of them alone, as one with a graph of all does.
    """
    n = count_examples(x)
    refuse_batch_statistics(f.model)
    try:
        return _plan(f, x, n, wrt)
    except (RuntimeError, IndexError, AssertionError, ValueError) as error:
        if out_of_memory(error) or not _in_the_model(error):
            raise
        with torch.no_grad():
            f(f.theta, x)  # which may fail as well, and for a better reason
        reason = str(error).partition("\n")[0]
        raise Entangled(f"model must take any number of examples: {reason}") from error


def _in_the_model(error: Exception) -> bool:
    """Whether an error came while the model ran: what is wrong with it is said elsewhere."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    places = {(frame.f_globals.get("__name__"), frame.f_code.co_name) for frame in frames}
    return (Functional.__module__, Functional.call.__name__) in places


def _plan(f: Functional, x: Any, n: int, wrt: Literal["theta", "x"]) -> Plan:
    rows = [0, n // 2, n - 1]
    three = map_tensors(x, itemgetter(rows))
    layers = layers_of(f) if wrt == "theta" else []
    # Tensors that no layer holds, or rows of an embedding, all examples may have in common.
    shared = any(layer.rule in (None, EMBEDDING) for layer in layers)
    plan = _studied(f, layers, three, rows, wrt, shared=shared)
    if not plan.covered and wrt == "theta" and not shared:
        plan = _studied(f, layers, three, rows, wrt, shared=True)
    if not plan.covered or n <= len(rows):  # or else the full pass tells
        plan = _in_other_company(f, plan, map_tensors(x, itemgetter(rows[:0:-1])), wrt)
    if not plan.covered:
        done = plan.few if wrt == "x" else _run_inputs(f, three)
        if done.parameters and not rows_are_separate(done.output, list(done.parameters.values())):
            raise Entangled(
                "model must treat examples independently in evaluation mode, but outputs have"
                " derivatives in the inputs of other examples"
            )
    calls = [call._replace(a=call.a.detach()) for call in plan.few.calls]
    return plan._replace(few=Pass({}, None, plan.few.output.detach(), calls, []))


def _studied(
    f: Functional, layers: list[Layer], x: Any, rows: list[int], wrt: str, *, shared: bool
) -> Plan:
    done, saved = _weighed(f, layers, x, wrt, shared=shared)
    output, shared = differentiable_output(done.output, len(rows)), bool(done.uses)
    plan = Plan(layers, False, shared, max(saved // len(rows), 1), output.shape[1:], rows, done)
    found = covered(done) if wrt == "theta" else None
    if found is None or not row_is_alone(output, [call.z for call in found.calls], 1):
        return plan
    return plan._replace(covered=True, few=found)


def _in_other_company(f: Functional, plan: Plan, two: Any, wrt: str) -> Plan:
    """Compare with the last two examples by themselves, in another order."""
    shared = plan.shared and plan.covered
    done = run(f, plan.layers, two, shared=shared) if wrt == "theta" else _run_inputs(f, two)
    output = differentiable_output(done.output, 2)
    insist_on_same_outputs(output, plan.few.output[1:].flip(0), _dtypes(f))
    if not plan.covered:
        return plan
    found = covered(done)
    if found is None or found.signature() != plan.few.signature():
        return plan._replace(covered=False)
    return plan._replace(covered=_same_inputs(f, found, 0, plan.few, 2))


def _dtypes(f: Functional) -> set[torch.dtype]:
    return {p.dtype for p in f.parameters.values()}


def _same_inputs(f: Functional, one: Pass, here: int, other: Pass, there: int) -> bool:
    """Whether the layers had the same inputs in a row of two passes, as far as these compare.

    They do not where a model goes another way, or leaves out padding that no example needs.
    """
    if one.signature() != other.signature():
        return True
    inputs = [(mine.a, its.a) for mine, its in zip(one.calls, other.calls, strict=True)]
    pairs = [(a[here], b[there]) for a, b in inputs if a.shape[1:] == b.shape[1:]]
    return not largest_move(pairs, _dtypes(f))


def record(f: Functional, plan: Plan, x: Any, here: slice) -> Pass | None:
    """A forward pass with all that the layers' rules need, or None if they do not cover it.

    Raises:
        ValueError: If an example has another output in it than in a pass of few.
    """
    n = here.stop - here.start
    if not plan.covered or n <= plan.shared:
        return None
    done = covered(run(f, plan.layers, map_tensors(x, itemgetter(here)), shared=plan.shared))
    rows, few = plan.rows, plan.few
    if not any(here.start <= row < here.stop for row in rows):
        rows = [here.start, here.stop - 1][1 - plan.shared :]
        few = covered(run(f, plan.layers, map_tensors(x, itemgetter(rows)), shared=plan.shared))
    if done is None or few is None:
        return None
    if plan.shared and done.signature() != few.signature():  # some length is by chance that of n
        return None
    there = max(i for i, row in enumerate(rows) if here.start <= row < here.stop)
    row = rows[there] - here.start
    output = differentiable_output(done.output, n)
    insist_on_same_outputs(output[row], few.output[there], _dtypes(f))
    return done if _same_inputs(f, done, row, few, there) else None


def _weighed(
    f: Functional, layers: list[Layer], x: Any, wrt: str, *, shared: bool
) -> tuple[Pass, int]:
    """A pass, and the bytes that autograd keeps for going back, without those of parameters."""
    kept: dict[int, int] = {}

    def weigh(t: Tensor) -> Tensor:
        place = t.untyped_storage().data_ptr()
        kept[place] = max(kept.get(place, 0), t.numel() * t.element_size())
        return t

    with torch.autograd.graph.saved_tensors_hooks(weigh, lambda t: t):
        done = run(f, layers, x, shared=shared) if wrt == "theta" else _run_inputs(f, x)
    own = {p.untyped_storage().data_ptr() for p in f.parameters.values()}
    return done, sum(size for place, size in kept.items() if place not in own)


def _run_inputs(f: Functional, x: Any) -> Pass:
    """A pass with the floating-point inputs as parameters, or with none if they do not matter."""
    leaves: dict[str, Tensor] = {}

    def leaf(t: Tensor) -> Tensor:
        if t.is_floating_point():
            t = leaves[str(len(leaves))] = t.detach().clone().requires_grad_()
        return t

    with torch.enable_grad():
        result = f(f.theta, map_tensors(x, leaf))
        output = rows_of(result, x)
    return Pass(leaves if output.requires_grad else {}, result, output, [], [])
