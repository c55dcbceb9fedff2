r"""One forward pass that remembers, and backward passes that stop at the layers.

For every call of a layer its input $a$ and the place of its output $z$ in autograd's graph are
noted, around the layer's `forward`, which is back when the pass is over. A backward pass then asks
for $b = \partial \langle u, f \rangle / \partial z$ alone, so that no parameter's gradient is ever
summed over the examples.

The layers' rules tell the whole story if in autograd's graph every use of a parameter is one of the
recorded calls (so weights that are tied, shared or used by hand are seen), nothing has changed
their inputs in place since, and examples stay in their rows along the first axis.
"""

from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from vademecum.arrays import empty
from vademecum.gradients._layer_calls import Layer, LayerCall, Notes
from vademecum.gradients._layer_rules import EMBEDDING, rule_for
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

__all__ = ["LayerCall", "Pass", "copied", "covered", "layers_of", "rows_of", "run"]

_MOVERS = (  # operations that may send rows to other places
    "Index", "Gather", "Scatter", "Flip", "Roll", "Sort", "Take", "MaskedSelect", "MaskedScatter",
)  # fmt: skip
_ONE_BY_ONE = {"cpu"}  # devices where backward passes that go together would not pay
_LEAF = "torch::autograd::AccumulateGrad"
Key = tuple[Node, int] | str


class Pass(NamedTuple):
    """A forward pass: the parameters and the output, and the calls in between."""

    parameters: dict[str, Tensor]
    result: Any  # what the network gave
    output: Tensor  # all of it that is differentiable, with a row for each example
    calls: list[LayerCall]
    uses: list[Use]  # of tensors that no layer holds
    structure: int = 0  # of the graph, a hash of its nodes and parameters in their order

    @property
    def edges(self) -> list[GradientEdge]:
        """The places of the calls' outputs in the graph."""
        return [call.z for call in self.calls if call.z is not None]

    def backward(self, u: Float[Tensor, " g n *shape"]) -> list[Tensor | None]:
        """What comes back to each call from `g` cotangents, (g, n, ...); None where nothing does.

        On a CPU one pass follows the other, for the caches. Elsewhere they go together if they can,
        which saves the time between small operations. The graph is gone afterwards.
        """
        pull = partial(torch.autograd.grad, self.output, self.edges, allow_unused=True)
        if len(u) > 1 and u.device.type not in _ONE_BY_ONE:
            try:
                return list(pull(u, retain_graph=True, is_grads_batched=True))
            except RuntimeError as error:
                if not cannot_be_mapped(error):
                    raise
                warn_of_slow_path("backward passes go one after the other", error)
        if len(u) == 1:
            return [None if b is None else b[None] for b in pull(u[0])]
        found: list[Tensor | None] = []
        for i, v in enumerate(u):  # a pass takes the memory that the last one has left
            each = pull(v, retain_graph=i < len(u) - 1)
            found = found or [
                None if b is None else empty(len(u), *b.shape, dtype=b.dtype, device=b.device)
                for b in each
            ]
            for place, b in zip(found, each, strict=True):
                if place is not None:
                    place[i] = b
        return found


def run(
    f: Functional,
    layers: list[Layer],
    x: Any,
    *,
    shared: bool = False,
    copies: Mapping[str, int] | None = None,
    graph: bool = True,
) -> Pass:
    """A forward pass that records the calls of layers.

    Args:
        f: The network.
        layers: Its layers.
        x: The inputs.
        shared: Whether to see to tensors without a layer that all examples share.
        copies: The embeddings whose output all examples share, by the names of their weights: each
            example gets a copy of it, with so many axes (see `copied`).
        graph: Whether to go back later.
    """
    parameters = f.values
    if graph:
        parameters = {name: p.detach().requires_grad_() for name, p in parameters.items()}
    n = count_examples(x, checked=True) if shared or copies else 0
    tensors = SharedTensors(n, [*parameters.values(), *f.all_parameters]) if shared else None
    notes = Notes(n, copies or {}, tensors)
    with torch.set_grad_enabled(graph), tensors or nullcontext(), notes.of(layers):
        result = f.call(parameters, x)
    output = rows_of(result, x) if graph or isinstance(result, Tensor) else torch.empty(0)
    return Pass(parameters, result, output, notes.calls, tensors.uses if tensors else [])


def copied(done: Pass) -> dict[str, int]:
    """Embeddings whose output all examples share, with the axes of the copies.

    There are none if anything else is shared as well: that takes a mode of torch to see.
    """
    made = {call.z[:2]: call.names for call in done.calls if call.z and call.rule is EMBEDDING}
    found: dict[str, int] = {}
    for use in done.uses:
        q = use.tensors.get("value")
        edge = None if q is None or q.grad_fn is None else (q.grad_fn, q.output_nr)
        names = None if edge is None else made.pop(edge, None)
        if names is None:
            return {}
        found[names["weight"]] = use.a.ndim
    return found


def rows_of(result: Any, x: Any) -> Tensor:
    """The differentiable tensors of an output, as one tensor with a row for each example.

    Such as have no rows (a loss that the network has computed itself) are left out.
    """
    if isinstance(result, Tensor):
        return result
    n = count_examples(x, checked=True)
    parts = [t for _, t in named_tensors(result) if t.requires_grad]
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
    for _, module in f.modules:
        each = ((own, names.get(id(p))) for own, p in module._parameters.items())
        own = {own: name for own, name in each if name is not None} if module._parameters else None
        if own:
            found.append(Layer(module, rule_for(module), own))
    return found


def covered(done: Pass) -> Pass | None:
    """The pass with calls that the layers' rules tell the whole story of, or None."""
    n = len(done.output)
    if any(t.requires_grad and t.shape[:1] != (n,) for _, t in named_tensors(done.result)):
        return None
    leaves = {id(p): name for name, p in done.parameters.items()}
    roots = {_key(q, leaves) for use in done.uses for q in use.tensors.values()}
    seen, uses, story = _walk(done.output, roots, leaves)
    calls = [call for call in done.calls if call.z is not None and call.z.node in seen]
    extra = [use for use in done.uses if use.z.node in seen]
    recorded = Counter[Key](name for call in calls for name in call.names.values())
    recorded.update(_key(q, leaves) for use in extra for q in use.tensors.values())
    places = {call.z.node for call in calls if call.z is not None}
    calls += [_as_call(use, done, leaves, places) for use in extra]
    if uses != recorded or not all(
        call.lengths == (n, n) and call.a._version == call.version for call in calls
    ):
        return None
    movers = any(kind.startswith(_MOVERS) for kind in set(story))
    if movers and not rows_are_separate(done.output, [call.z for call in calls if call.z]):
        return None
    return done._replace(calls=calls, uses=[], structure=hash(tuple(story)))


def _key(t: Tensor, leaves: dict[int, str]) -> Key:
    """A tensor's place in the graph: the node that made it, or the name of a parameter."""
    node = t.grad_fn
    return leaves.get(id(t), f"{id(t)}") if node is None else (node, t.output_nr)


def _walk(
    start: Tensor, roots: set[Key], leaves: dict[int, str]
) -> tuple[set[Node], Counter[Key], list[str]]:
    """The nodes behind a tensor, how often they meet roots and leaves, and a list of all that."""
    first = get_gradient_edge(start).node
    seen, met, story = {first}, Counter[Key](), list[str]()
    known, stops, ahead = set(leaves.values()), dict[Node, Key](), [(first, first.name())]
    while ahead:
        node, name = ahead.pop()
        story.append(name)
        for child, number in node.next_functions:
            if child is None:
                continue
            if roots and (child, number) in roots:
                met[child, number] += 1
                story.append("root")
                continue
            if child not in seen:
                seen.add(child)
                if (name := child.name()) != _LEAF:
                    ahead.append((child, name))
                else:
                    stops[child] = _key(cast(Any, child).variable, leaves)
            if (key := stops.get(child)) in known:
                met[key] += 1
                story.append(str(key))
    return seen, met, story


def _as_call(use: Use, done: Pass, leaves: dict[int, str], places: set[Node]) -> LayerCall:
    """The use of a shared tensor as the call of a layer, whose length is 0 if it is none."""
    n, tensors = len(use.a), use.tensors
    if all(id(q) in leaves for q in tensors.values()):
        names = {own: leaves[id(q)] for own, q in tensors.items()}
        return LayerCall(use.rule, None, names, use.a, use.version, use.z, (n, n))
    for call in done.calls:  # positions, which are looked up once for all examples
        place = None if call.z is None else call.z[:2]
        if [place] == [_key(q, leaves) for q in tensors.values()] and call.rule is EMBEDDING:
            a = call.a[None].expand(n, *call.a.shape)
            return call._replace(a=a, version=a._version, z=use.z, lengths=(n, n))
    found = {leaves[id(q)] for q in tensors.values() if id(q) in leaves}
    for q in tensors.values():
        if id(q) not in leaves:
            seen, met, _ = _walk(q, set(), leaves)
            n = 0 if seen & places else n
            found |= {str(name) for name in met}
    layer = Computed(use.rule, tensors, {name: done.parameters[name] for name in found})
    names = {name: name for name in sorted(found)}
    return LayerCall(THROUGH, layer, names, use.a, use.version, use.z, (n, n))
