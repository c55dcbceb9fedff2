r"""One forward pass that remembers, and backward passes that stop at the layers.

Hooks note for every call of a layer its input $a$ and the place of its output $z$ in autograd's
graph; they are gone when the pass is over. A backward pass then asks for $b = \partial \langle u, f
\rangle / \partial z$ alone, so that no parameter's gradient is ever summed over the examples.

The layers' rules tell the whole story if in autograd's graph every use of a parameter is one of the
recorded calls (so weights that are tied, shared or used by hand are seen), nothing has changed
their inputs in place since, and examples lie along the first axis of inputs and outputs and stay in
their rows.
"""

from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from vademecum.gradients._layer_rules import EMBEDDING, Rule, rule_for
from vademecum.gradients._shared_tensors import THROUGH, Computed, SharedTensors, Use
from vademecum.gradients.network_function import Functional
from vademecum.models import (
    cannot_be_mapped,
    count_examples,
    differentiable_output,
    named_tensors,
    rows_are_separate,
    warn_of_slow_path,
)

__all__ = ["Layer", "LayerCall", "Pass", "covered", "layers_of", "rows_of", "run"]

_MOVERS = (  # operations that may send rows to other places
    "Index", "Gather", "Scatter", "Flip", "Roll", "Sort", "Take", "MaskedSelect", "MaskedScatter",
)  # fmt: skip
Key = tuple[Node, int]


class Layer(NamedTuple):
    """A submodule with parameters, its rule if it has one, and how the model calls these."""

    module: nn.Module
    rule: Rule | None
    names: dict[str, str]


class LayerCall(NamedTuple):
    """One call of a layer: its input, where its output is in the graph, and its parameters."""

    rule: Rule
    layer: Any  # what the rule asks for more
    names: dict[str, str]  # of its parameters, as the rule and as the model calls them
    a: Tensor
    version: int  # of the input, which an operation in place would move on
    z: GradientEdge
    lengths: tuple[int, int]  # of the first axes of input and output


class Pass(NamedTuple):
    """A forward pass: the parameters and the output, and the calls in between."""

    parameters: dict[str, Tensor]
    result: Any  # what the network gave
    output: Tensor  # all of it that is differentiable, with a row for each example
    calls: list[LayerCall]
    uses: list[Use]  # of tensors that no layer holds

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

    def signature(self) -> list[Any]:
        """What was called, in its order."""
        return [(call.rule.gradient, *call.names.items()) for call in self.calls]


def _stacked(each: list[Tensor | None]) -> Tensor | None:
    some = [b for b in each if b is not None]
    return None if len(some) < len(each) else some[0][None] if len(some) == 1 else torch.stack(some)


def run(f: Functional, layers: list[Layer], x: Any, *, shared: bool = False) -> Pass:
    """A forward pass that records the calls of layers, and `shared` tensors without a layer."""
    parameters = {name: p.detach().requires_grad_() for name, p in f.parameters.items()}
    calls: list[LayerCall] = []

    def note(rule: Rule, names: dict[str, str], module: Any, args: Any, z: Any) -> None:
        a = args[0] if args else None
        if isinstance(a, Tensor) and a.ndim and z.requires_grad:
            place, lengths = get_gradient_edge(z), (a.shape[0], z.shape[0] if z.ndim else 0)
            calls.append(LayerCall(rule, module, names, a, a._version, place, lengths))

    known = [*parameters.values(), *f.model.parameters()] if shared else []
    tensors = SharedTensors(count_examples(x) if shared else 0, known)
    with ExitStack() as stack, torch.enable_grad():
        for module, rule, names in layers:
            if rule is None:
                continue
            if shared:  # then what the layer does is none of its business
                stack.callback(module.register_forward_pre_hook(tensors.pause).remove)
                stack.callback(module.register_forward_hook(tensors.go_on, prepend=True).remove)
            # First, since other hooks may change the output.
            hook = module.register_forward_hook(partial(note, rule, names), prepend=True)
            stack.callback(hook.remove)
        if shared:
            stack.enter_context(tensors)
        result = f.call(parameters, x)
    return Pass(parameters, result, rows_of(result, x), calls, tensors.uses)


def rows_of(result: Any, x: Any) -> Tensor:
    """The differentiable tensors of an output, as one tensor with a row for each example.

    Such as have no rows (a loss that the network has computed itself) are left out.
    """
    if isinstance(result, Tensor):
        return result
    n, parts = count_examples(x), [t for _, t in named_tensors(result) if t.requires_grad]
    rows = [t for t in parts if t.shape[:1] == (n,)] or parts[:1]
    if not rows:
        return differentiable_output(result)  # which it is not
    return torch.cat([differentiable_output(t, n).reshape(n, -1) for t in rows], 1)


def layers_of(f: Functional) -> list[Layer]:
    """The submodules with parameters of their own, their rules, and how the model calls these."""
    if not f.size:
        raise ValueError("model must have parameters to differentiate, got none")
    names = {id(p): name for name, p in f.parameters.items()}
    found = []
    for module in f.model.modules():
        own = {
            own: names[id(p)] for own, p in module.named_parameters(recurse=False) if id(p) in names
        }
        if own:
            found.append(Layer(module, rule_for(module), own))
    return found


def covered(done: Pass) -> Pass | None:
    """The pass with calls that the layers' rules tell the whole story of, or None."""
    n = len(done.output)
    if any(t.requires_grad and t.shape[:1] != (n,) for _, t in named_tensors(done.result)):
        return None
    leaves = {_key(p): name for name, p in done.parameters.items()}
    roots = {_key(q) for use in done.uses for q in use.tensors.values()} - leaves.keys()
    seen, uses = _walk(done.output, {*leaves, *roots})
    keys = {name: key for key, name in leaves.items()}
    calls = [call for call in done.calls if call.z.node in seen]
    extra = [use for use in done.uses if use.z.node in seen]
    recorded = Counter(keys[name] for call in calls for name in call.names.values())
    recorded += Counter(_key(q) for use in extra for q in use.tensors.values())
    places = {call.z.node for call in calls}
    calls += [_as_call(use, done, leaves, places) for use in extra]
    if uses != recorded or not all(
        call.lengths == (n, n) and call.a._version == call.version for call in calls
    ):
        return None
    movers = any(node.name().startswith(_MOVERS) for node in seen)
    if movers and not rows_are_separate(done.output, [call.z for call in calls]):
        return None
    return done._replace(calls=calls, uses=[])


def _key(t: Tensor) -> Key:
    edge = get_gradient_edge(t)
    return edge.node, edge.output_nr


def _walk(start: Tensor, stops: Iterable[Key]) -> tuple[set[Node], Counter[Key]]:
    """The nodes of the graph behind a tensor, and how often it meets the `stops`."""
    first = get_gradient_edge(start).node
    seen, met, ahead = {first}, Counter[Key](), [first]
    while ahead:
        for edge in ahead.pop().next_functions:
            node = edge[0]
            if node is not None and (node, edge[1]) in stops:
                met[node, edge[1]] += 1
            elif node is not None and node not in seen:
                seen.add(node)
                ahead.append(node)
    return seen, met


def _as_call(use: Use, done: Pass, leaves: dict[Key, str], places: set[Node]) -> LayerCall:
    """The use of a shared tensor as the call of a layer, whose length is 0 if it is none."""
    n = len(use.a)
    if all(_key(q) in leaves for q in use.tensors.values()):
        names = {own: leaves[_key(q)] for own, q in use.tensors.items()}
        return LayerCall(use.rule, None, names, use.a, use.version, use.z, (n, n))
    for call in done.calls:  # positions, which are looked up once for all examples
        if [call.z[:2]] == [_key(q) for q in use.tensors.values()] and call.rule is EMBEDDING:
            a = call.a[None].expand(n, *call.a.shape)
            return call._replace(a=a, version=a._version, z=use.z, lengths=(n, n))
    found: set[str] = set()
    for q in use.tensors.values():
        seen, met = _walk(q, leaves) if _key(q) not in leaves else (set[Node](), [_key(q)])
        n = 0 if seen & places else n
        found |= {leaves[key] for key in met}
    layer = Computed(use.rule, use.tensors, {name: done.parameters[name] for name in found})
    names = {name: name for name in sorted(found)}
    return LayerCall(THROUGH, layer, names, use.a, use.version, use.z, (n, n))
