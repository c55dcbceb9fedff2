"""What passes leave behind: traces to compare them by, and the bytes that they keep.

Two passes with an example in different company must agree, in the row of that example, in their
outputs and in the inputs of all layers, up to rounding.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from vademecum.gradients._layer_calls import Layer
from vademecum.gradients._layer_rules import COPY
from vademecum.gradients._recorded_pass import Pass, rows_of, run
from vademecum.gradients.network_function import Functional
from vademecum.models import (
    Entangled,
    Moves,
    map_tensors,
    named_tensors,
    rows_are_separate,
    tensor_places,
)

__all__ = [
    "Footprint", "dtypes_of", "footprint", "insist_on_separate_rows", "moves", "run_inputs",
    "state_of", "weighed",
]  # fmt: skip

_PLAIN = frozenset({bool, int, float, str})


class Footprint(NamedTuple):
    """What a pass leaves to be compared: its output, and what was called with which input."""

    output: Tensor
    calls: list[Any]
    inputs: list[Tensor]
    uses: list[Any]  # of shared tensors


def footprint(done: Pass, used: set[Any] | None = None) -> Footprint:
    """What to compare of a pass: all inputs, or none for calls that are not `used`."""
    uses = [(use.rule.gradient, *use.tensors) for use in done.uses]
    by_hand = [use for use in done.uses if use.rule is not COPY]
    calls = [(call.rule.gradient, *call.names.items()) for call in done.calls]
    nothing = torch.empty(0)
    inputs = [
        _detached(call.a) if used is None or (call.z and call.z.node in used) else nothing
        for call in (*done.calls, *by_hand)
    ]
    return Footprint(done.output.detach(), calls, inputs, uses)


def _detached(a: Tensor) -> Tensor:
    return a.detach() if a.requires_grad else a


def dtypes_of(f: Functional) -> set[torch.dtype]:
    """The dtypes that a network computes in, by its parameters."""
    return {p.dtype for p in f.parameters.values()}


def state_of(f: Functional) -> list[Any]:
    """What tells that a model has changed: versions of its tensors, and plain attributes.

    Writing through `.data` and what code finds elsewhere leave no trace.
    """
    tensors = [*f.all_parameters, *(b for _, b in tensor_places(f.modules, "buffers"))]
    versions = [(_place(t), 0 if t.is_inference() else t._version) for t in tensors]
    plain = [
        value
        for _, module in f.modules
        for key, value in vars(module).items()
        if type(value) in _PLAIN and key != "training"
    ]
    return [versions, plain]


def _place(t: Tensor) -> int:
    return t.data_ptr() if t.layout == torch.strided else id(t)


def moves(f: Functional, one: Footprint, here: Any, other: Footprint, there: Any) -> Moves:
    """How much inputs of layers differ in some rows of two passes with the same calls.

    They do not compare where a model leaves out padding that no example needs.
    """
    inputs = zip(one.inputs, other.inputs, strict=True)
    pairs = [(a[here], b[there]) for a, b in inputs if a.shape[1:] == b.shape[1:] and len(a)]
    return Moves(pairs, dtypes_of(f))


def weighed(
    f: Functional, layers: list[Layer], x: Any, wrt: str, *, shared: bool
) -> tuple[Pass, int]:
    """A pass, and the bytes that autograd keeps for going back, without those of parameters."""
    kept: dict[int, int] = {}

    def weigh(t: Tensor) -> Tensor:
        place = t.untyped_storage().data_ptr()
        kept[place] = max(kept.get(place, 0), t.numel() * t.element_size())
        return t

    with torch.autograd.graph.saved_tensors_hooks(weigh, lambda t: t):
        done = run(f, layers, x, shared=shared) if wrt == "theta" else run_inputs(f, x)
    own = {p.untyped_storage().data_ptr() for p in f.values.values()}
    return done, sum(size for place, size in kept.items() if place not in own)


def run_inputs(f: Functional, x: Any) -> Pass:
    """A pass with the floating-point inputs as parameters, or with none if they do not matter."""
    leaves: dict[str, Tensor] = {}

    def leaf(t: Tensor) -> Tensor:
        if t.is_floating_point():
            t = leaves[str(len(leaves))] = t.detach().clone().requires_grad_()
        return t

    with torch.enable_grad():
        result = f(f.theta, map_tensors(x, leaf))
        known = isinstance(result, Tensor) or any(t.requires_grad for _, t in named_tensors(result))
        output = rows_of(result, x) if known else torch.empty(0)
    return Pass(leaves if output.requires_grad else {}, result, output, [], [])


def insist_on_separate_rows(done: Pass) -> None:
    """Refuse a network by a pass of which the parameters are inputs."""
    if done.parameters and not rows_are_separate(done.output, list(done.parameters.values())):
        raise Entangled(
            "model must treat examples independently in evaluation mode, but outputs have"
            " derivatives in the inputs of other examples"
        )
