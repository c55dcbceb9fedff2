r"""How a network treats examples: whether each has a row to itself, and what it takes.

Whether the layers' rules tell the whole story (see `vademecum.gradients._recorded_pass`), with or
without tensors that all examples share, is found out on three of the examples. The
gradient of a sum over examples can be taken apart only if they do not influence each other:

- an example must have the same output in any company and at any place. Where it has not the same
  inputs to the layers on the way, which a layer of zeros may hide from the output, the rules do not
  hold, and each example goes by itself;
- what comes back from the output of one example must come back to its row of each layer alone. A
  model may sort the examples on the way: where indexing could do so, each pass is examined.

What comes back is asked for again when the model has changed (`state_of`), or a graph consists of
other operations and parameters than those which are known. A network that is known already makes
its pass of three without a graph.
"""

import traceback
from collections.abc import Iterator
from functools import partial
from numbers import Number
from operator import itemgetter
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from vademecum.gradients._footprints import (
    Footprint,
    dtypes_of,
    footprint,
    insist_on_separate_rows,
    moves,
    run_inputs,
    state_of,
    weighed,
)
from vademecum.gradients._idle_draws import draws_of, no_draws_back, uses_draws
from vademecum.gradients._layer_calls import Layer
from vademecum.gradients._layer_rules import COPY, EMBEDDING
from vademecum.gradients._recorded_pass import Pass, copied, covered, layers_of, run
from vademecum.gradients.network_function import Functional
from vademecum.models import (
    FAILURES,
    Entangled,
    count_examples,
    differentiable_output,
    insist_on_same_outputs,
    map_tensors,
    named_leaves,
    out_of_memory,
    refuse_batch_statistics,
    row_is_alone,
)

__all__ = [
    "Plan",
    "copies_fail",
    "doubted",
    "is_apart",
    "portions_of",
    "recall",
    "study",
]

_PORTION = {"cpu": 2**24}  # bytes for going back, beyond which larger portions do not pay
_MANY = 32  # examples at a time, up to which they pay for large ones, too
_APART: WeakKeyDictionary[nn.Module, set[int]] = WeakKeyDictionary()  # graphs that keep rows apart
_STUDIED: "WeakKeyDictionary[nn.Module, dict[Any, Plan]]" = WeakKeyDictionary()
_KINDS = 64  # of inputs and graphs that are remembered for a model


class Plan(NamedTuple):
    """What is known of a network: whether rules cover it, bytes and outputs for one example."""

    layers: list[Layer]
    covered: bool
    shared: bool  # with shared tensors
    saved: int
    shape: torch.Size
    rows: list[int]  # examples that are known from a pass of few
    few: Footprint
    uses: list[Any]  # of shared tensors
    copies: dict[str, int]  # embeddings whose output examples share, where nothing else is shared
    plain: bool  # whether the network gives a tensor
    state: list[Any]  # that the model was in
    known: bool = False  # from earlier
    moved: bool = False  # in other company layers had other inputs, but outputs were alike

    @property
    def by_hand(self) -> bool:
        """Whether shared tensors meet examples in other ways than as copies for all."""
        return any(rule is not COPY.gradient for rule, *_ in self.uses)

    @property
    def graph(self) -> bool:
        """Whether a pass of few must have a graph to be compared with others."""
        return self.by_hand or not self.plain

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


def study(
    f: Functional, x: Any, *, wrt: Literal["theta", "x"] = "theta", plan: Plan | None = None
) -> Plan:
    """How a network treats examples, from passes with three of them, and with two if need be.

    The former has been made already for a `plan` that is given. Where more than three are to go
    through at once (by rules, or in `x`), the outputs of that pass are for the caller to compare.

    Raises:
        ValueError: If there is nothing to differentiate, or the examples influence each other, or
            the model draws random numbers, or fails for few of them alone, as one with a graph of
            all does.
    """
    n = count_examples(x)
    refuse_batch_statistics(f.modules)
    try:
        return _plan(f, x, n, wrt, plan)
    except FAILURES as error:
        if out_of_memory(error) or not _in_the_model(error):
            raise
        with torch.no_grad():
            f(f.theta, x)  # which may fail as well, and for a better reason
        reason = str(error).partition("\n")[0]
        raise Entangled(f"model must take any number of examples: {reason}") from error


def recall(f: Functional, x: Any) -> Plan | None:
    """What is known from earlier of a network and inputs of this kind, after a pass with three."""
    if f.model not in _STUDIED:
        return None
    try:
        rows = _three(count_examples(x, checked=True))
        return _as_before(f, map_tensors(x, itemgetter(rows)), rows)
    except FAILURES as error:
        if out_of_memory(error) or not (isinstance(error, Entangled) or _in_the_model(error)):
            raise
        return None


def _three(n: int) -> list[int]:
    return [0, n // 2, n - 1]


def _in_the_model(error: Exception) -> bool:
    """Whether an error came while the model ran: what is wrong with it is said elsewhere."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    places = {(frame.f_globals.get("__name__"), frame.f_code.co_name) for frame in frames}
    return (Functional.__module__, Functional.call.__name__) in places


def _plan(f: Functional, x: Any, n: int, wrt: Literal["theta", "x"], plan: Plan | None) -> Plan:
    rows = _three(n)
    three = map_tensors(x, itemgetter(rows))
    plan = plan or (_as_before(f, three, rows) if wrt == "theta" else None)
    plan = plan or _anew(f, three, rows, wrt)
    if n <= len(rows) or (wrt == "theta" and not plan.covered):  # or else the full pass tells
        for places in ([2, 1], [0, 0])[:n]:  # so that none is in both, and in another order
            plan = _in_other_company(f, plan, three, places, wrt)
    if wrt == "theta" and not plan.covered:
        insist_on_separate_rows(run_inputs(f, three))
    return plan


def _as_before(f: Functional, x: Any, rows: list[int]) -> Plan | None:
    """The plan for inputs of a kind that is known, if all goes as it went then."""
    plan = _STUDIED.get(f.model, {}).get(_kind(f, x))
    if plan is None or plan.state != state_of(f):
        return None
    layers = layers_of(f)
    done = run(f, layers, x, shared=plan.by_hand, graph=plan.graph)
    if plan.plain is not isinstance(done.result, Tensor):
        return None
    few = footprint(done)
    shape = differentiable_output(done.output, len(rows), graph=plan.graph).shape[1:]
    if plan.by_hand and few.uses != plan.uses:
        return None
    return plan._replace(layers=layers, shape=shape, rows=rows, few=few, known=True)


def _kind(f: Functional, x: Any) -> Any:
    each = [
        (name, leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else (name, leaf)
        for name, leaf in named_leaves(x)
        if isinstance(leaf, Tensor | Number | str)
    ]
    return tuple(f.shapes), tuple(each)


def _anew(f: Functional, x: Any, rows: list[int], wrt: Literal["theta", "x"]) -> Plan:
    layers = layers_of(f) if wrt == "theta" else []
    # Tensors that no layer holds, or rows of an embedding, all examples may have in common.
    shared = any(layer.rule in (None, EMBEDDING) for layer in layers)
    plan = _studied(f, layers, x, rows, wrt, shared=shared)
    if not plan.covered and wrt == "theta" and not shared:
        plan = _studied(f, layers, x, rows, wrt, shared=True)
    if plan.covered:  # without what would keep the model alive
        kept = plan._replace(layers=[], few=Footprint(torch.empty(0), [], [], []))
        known = _STUDIED.setdefault(f.model, {})
        if len(known) >= _KINDS:
            known.clear()
        known[_kind(f, x)] = kept
    return plan


def _studied(
    f: Functional, layers: list[Layer], x: Any, rows: list[int], wrt: str, *, shared: bool
) -> Plan:
    state = state_of(f)
    weigh = partial(weighed, f, layers, x, wrt, shared=shared)
    with draws_of(f.model) as chance:
        done, saved = weigh()
    if any(chance) and uses_draws(f.model, weigh):  # outputs that these move may agree, by chance
        raise Entangled(
            "model must treat examples independently in evaluation mode, but it draws random"
            " numbers, so that chance may move its outputs"
        )
    shape, saved = differentiable_output(done.output, len(rows)).shape[1:], saved // len(rows)
    found = covered(done) if wrt == "theta" else None
    with no_draws_back():
        if wrt == "x":
            insist_on_separate_rows(done)
        apart = found is not None and is_apart(f, found, 1, anew=True)
    few = footprint(done)
    return Plan(
        layers, apart, bool(few.uses), max(saved, 1), shape, rows, few, few.uses, copied(done),
        isinstance(done.result, Tensor), state,
    )  # fmt: skip


def is_apart(f: Functional, done: Pass, row: int, *, anew: bool = False) -> bool:
    """Whether nothing comes back from an example to the rows of others, for such a graph."""
    known = _APART.setdefault(f.model, set())
    if anew or done.structure not in known:
        if not row_is_alone(done.output, done.edges, row):
            return False
        if len(known) >= _KINDS:
            known.clear()
        known.add(done.structure)
    return True


def _in_other_company(f: Functional, plan: Plan, x: Any, places: list[int], wrt: str) -> Plan:
    """Compare with two of the three examples by themselves."""
    two, shared = map_tensors(x, itemgetter(places)), plan.shared and plan.covered
    done = run(f, plan.layers, two, shared=shared) if wrt == "theta" else run_inputs(f, two)
    output = differentiable_output(done.output, 2)
    insist_on_same_outputs(output, plan.few.output[places], dtypes_of(f))
    if not plan.covered:
        return plan
    found = covered(done)
    if found is None:
        return plan._replace(covered=False, moved=True)
    mark = footprint(done, {z.node for z in found.edges})
    if mark.calls != plan.few.calls or mark.uses != plan.uses:
        return plan._replace(covered=False, moved=True)
    moved = bool(moves(f, mark, 0, plan.few, places[0]).largest)
    return plan._replace(covered=not moved, moved=moved)


def copies_fail(f: Functional, plan: Plan) -> Plan:
    """The plan without copies of what embeddings make for all examples, from now on."""
    known = _STUDIED.get(f.model, {})
    known |= {kind: other._replace(copies={}) for kind, other in known.items()}
    return plan._replace(copies={})


def doubted(f: Functional, plan: Plan, x: Any) -> None:
    """Have a network studied anew that does not go as it went before: it may be refused."""
    if plan.known:
        _STUDIED.pop(f.model, None)
        study(f, x)
