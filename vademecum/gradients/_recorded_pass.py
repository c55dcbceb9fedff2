r"""One forward pass that remembers, and backward passes that stop at the layers.

Hooks note for every call of a layer its input $a$ and the place of its output $z$ in autograd's
graph; they are gone when the pass is over. A backward pass then asks for $b = \partial \langle u, f
\rangle / \partial z$ alone, so that no parameter's gradient is ever summed over the examples.

Whether the layers' rules tell the whole story is found out on two and on three of the examples:

- in autograd's graph every use of a parameter must be one of the recorded calls (so weights that
  are tied, shared or used by hand are seen);
- the first axis of every input and output must be as long as there are examples, and an example
  must have the same output in any company and at any place: the gradient of a sum over examples can
  be taken apart only if they do not influence each other;
- if example $i$ is weighted by $r_i$, what comes back to row $i$ of a layer must grow by $r_i$: a
  model may sort the examples on the way. Where indexing could do so, each pass is examined.
"""

from collections import Counter
from contextlib import ExitStack
from functools import partial
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from vademecum.gradients._layer_rules import known
from vademecum.gradients.network_function import Functional
from vademecum.models import (
    Entangled,
    cannot_be_mapped,
    count_examples,
    differentiable_output,
    insist_on_same_outputs,
    map_tensors,
    rows_are_separate,
    warn_of_slow_path,
)

__all__ = ["LayerCall", "Pass", "Plan", "record", "study"]

_PORTION = {"cpu": 2**24}  # bytes for going back, beyond which larger portions do not pay
_MOVERS = (  # operations that may send rows to other places
    "Index", "Gather", "Scatter", "Flip", "Roll", "Sort", "Take", "MaskedSelect", "MaskedScatter",
)  # fmt: skip


class LayerCall(NamedTuple):
    """One call of a layer: its input, where its output is in the graph, and its parameters."""

    module: nn.Module
    names: dict[str, str]  # of its parameters, as the module and as the model calls them
    a: Tensor
    version: int  # of the input, which an operation in place would move on
    z: GradientEdge
    lengths: tuple[int, int]  # of the first axes of input and output


class Pass(NamedTuple):
    """A forward pass: the parameters and the output, and the calls in between."""

    parameters: dict[str, Tensor]
    output: Tensor
    calls: list[LayerCall]

    def backward(self, u: Float[Tensor, " g n *shape"]) -> list[Tensor | None]:
        """What comes back to each call from `g` cotangents, (g, n, ...); None where nothing does.

        On a CPU one pass follows the other, for the caches. Elsewhere they go together if they can,
        which saves the time between small operations. The graph is gone afterwards.
        """
        edges = [call.z for call in self.calls]
        pull = partial(torch.autograd.grad, self.output, edges, allow_unused=True)
        if len(u) > 1 and u.device.type != "cpu":
            try:
                return list(pull(u, retain_graph=True, is_grads_batched=True))
            except RuntimeError as error:
                if not cannot_be_mapped(error):
                    raise
                warn_of_slow_path("backward passes go one after the other", error)
        found = [pull(v, retain_graph=i < len(u) - 1) for i, v in enumerate(u)]
        return [_stacked(list(each)) for each in zip(*found, strict=True)]


def _stacked(each: list[Tensor | None]) -> Tensor | None:
    some = [b for b in each if b is not None]
    return None if len(some) < len(each) else some[0][None] if len(some) == 1 else torch.stack(some)


class Plan(NamedTuple):
    """What is known of a network: whether rules cover it, bytes and outputs for one example."""

    covered: bool
    saved: int
    shape: torch.Size

    def step(self, device: torch.device) -> int:
        """How many examples to take at a time, for speed."""
        return max(1, _PORTION.get(device.type, 2**32) // self.saved)

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


def study(f: Functional, x: Any, *, wrt: Literal["theta", "x"] = "theta") -> Plan:
    """How a network treats examples, from two passes with few of them.

    Raises:
        ValueError: If there is nothing to differentiate, or the examples influence each other.
    """
    n = count_examples(x)
    few = [0, n // 2, n - 1]
    two, two_bytes = _weighed(f, map_tensors(x, itemgetter(few[:0:-1])), wrt)
    three, three_bytes = _weighed(f, map_tensors(x, itemgetter(few)), wrt)
    outputs = differentiable_output(three.output, 3)[1:], differentiable_output(two.output, 2)
    insist_on_same_outputs(outputs[0], outputs[1].flip(0), {p.dtype for p in f.parameters.values()})
    alike = [c.module for c in two.calls] == [c.module for c in three.calls]
    covered = (
        alike and _covers(two) and _covers(three) and rows_are_separate(three.output, _edges(three))
    )
    if not covered:
        done = three if wrt == "x" else _run_inputs(f, map_tensors(x, itemgetter(few)))
        if done.parameters and not rows_are_separate(done.output, list(done.parameters.values())):
            raise Entangled(
                "model must treat examples independently in evaluation mode, but outputs have"
                " derivatives in the inputs of other examples"
            )
    return Plan(covered, max(three_bytes - two_bytes, 1), three.output.shape[1:])


def record(f: Functional, x: Any) -> Pass | None:
    """A forward pass with all that the layers' rules need, or None if they do not cover it."""
    done = _run(f, x)
    differentiable_output(done.output, count_examples(x))
    return done if _covers(done) else None


def _weighed(f: Functional, x: Any, wrt: str) -> tuple[Pass, int]:
    """A pass, and the bytes that autograd keeps for going back, with those of the parameters."""
    kept: dict[int, int] = {}

    def weigh(t: Tensor) -> Tensor:
        place = t.untyped_storage().data_ptr()
        kept[place] = max(kept.get(place, 0), t.numel() * t.element_size())
        return t

    with torch.autograd.graph.saved_tensors_hooks(weigh, lambda t: t):
        done = _run(f, x) if wrt == "theta" else _run_inputs(f, x)
    return done, sum(kept.values())


def _owners(f: Functional) -> dict[nn.Module, dict[str, str]]:
    """The submodules with parameters of their own, and how the model calls these."""
    names = {id(p): name for name, p in f.parameters.items()}
    owned = {
        module: {
            own: names[id(p)] for own, p in module.named_parameters(recurse=False) if id(p) in names
        }
        for module in f.model.modules()
    }
    return {module: own for module, own in owned.items() if own}


def _run(f: Functional, x: Any) -> Pass:
    if not f.size:
        raise ValueError("model must have parameters to differentiate, got none")
    parameters = {name: p.detach().requires_grad_() for name, p in f.parameters.items()}
    calls: list[LayerCall] = []

    def note(names: dict[str, str], module: Any, args: Any, z: Any) -> None:
        a = args[0] if args else None
        if isinstance(a, Tensor) and a.ndim and z.requires_grad:
            lengths = len(a), len(z)
            calls.append(LayerCall(module, names, a, a._version, get_gradient_edge(z), lengths))

    with ExitStack() as stack, torch.enable_grad():
        for module, names in _owners(f).items():
            if known(module):  # and first, since other hooks may change the output
                hook = module.register_forward_hook(partial(note, names), prepend=True)
                stack.callback(hook.remove)
        return Pass(parameters, f.call(parameters, x), calls)


def _run_inputs(f: Functional, x: Any) -> Pass:
    """A pass with the floating-point inputs as parameters, or with none if they do not matter."""
    leaves: dict[str, Tensor] = {}

    def leaf(t: Tensor) -> Tensor:
        if t.is_floating_point():
            t = leaves[str(len(leaves))] = t.detach().clone().requires_grad_()
        return t

    with torch.enable_grad():
        output = f(f.theta, map_tensors(x, leaf))
    return Pass(leaves if output.requires_grad else {}, output, [])


def _edges(done: Pass) -> list[GradientEdge]:
    return [call.z for call in done.calls]


def _covers(done: Pass) -> bool:
    """Whether all uses of the parameters are recorded calls with the examples along the first axis.

    And with inputs that nothing has changed in place since, and rows that stay where they are.
    """
    leaves = {get_gradient_edge(p).node: name for name, p in done.parameters.items()}
    uses: Counter[str] = Counter()
    start = get_gradient_edge(done.output).node
    seen: set[Node] = {start}
    ahead = [start]
    while ahead:
        for node, _ in ahead.pop().next_functions:
            if node in leaves:
                uses[leaves[node]] += 1
            elif node is not None and node not in seen:
                seen.add(node)
                ahead.append(node)
    live = [call for call in done.calls if call.z.node in seen]
    recorded = Counter(name for call in live for name in call.names.values())
    n = len(done.output)
    if uses != recorded or not all(
        call.lengths == (n, n) and call.a._version == call.version for call in live
    ):
        return False
    movers = any(node.name().startswith(_MOVERS) for node in seen)
    return not movers or rows_are_separate(done.output, _edges(done))
