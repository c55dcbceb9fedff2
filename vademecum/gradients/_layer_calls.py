"""Notes of what the layers of a network are called with, and of where their outputs go.

A note is made around the `forward` of a layer, before any hook can change what that gave.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from vademecum.gradients._layer_rules import EMBEDDING, Rule
from vademecum.gradients._shared_tensors import SharedTensors, copies_for

__all__ = ["Layer", "LayerCall", "Notes"]


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
    z: GradientEdge | None  # None where there is no graph
    lengths: tuple[int, int]  # of the first axes of input and output


class Notes:
    """Notes of the calls of layers."""

    def __init__(self, n: int, copies: Mapping[str, int], tensors: SharedTensors | None):
        self.n, self.copies, self.tensors, self.calls = n, copies, tensors, list[LayerCall]()

    @contextmanager
    def of(self, layers: list[Layer]) -> Iterator[None]:
        """Take notes of these layers for a while, around their `forward`."""
        ruled = [layer for layer in layers if layer.rule is not None]
        try:
            for layer in ruled:
                vars(layer.module)["forward"] = self._noting(layer)
            yield
        finally:
            for layer in ruled:
                vars(layer.module).pop("forward", None)

    def _noting(self, layer: Layer) -> Callable[..., Any]:
        """The code of a layer, with a note of each call; hooks cost more time than small layers."""
        forward, note = layer.module.forward, partial(self._note, *layer)

        def noted(*args: Any, **kwargs: Any) -> Any:
            return note(args, forward(*args, **kwargs))

        return noted if self.tensors is None else partial(self.tensors.let_be, noted)

    def _note(self, module: Any, rule: Rule, names: dict[str, str], args: Any, z: Tensor) -> Tensor:
        """Note a call, and give each example a copy of what it makes for all, if that is known."""
        a = args[0] if args else None
        if not isinstance(a, Tensor) or not a.ndim:
            return z
        if self.copies and rule is EMBEDDING and (axes := self.copies.get(names["weight"])):
            copies = copies_for(self.n, z, axes)
            if copies is not None:
                z, a = copies, a[None].expand(self.n, *a.shape)
        place = None if z.grad_fn is None else GradientEdge(z.grad_fn, z.output_nr)
        version, lengths = a._version if place else 0, (a.shape[0], z.shape[0] if z.ndim else 0)
        self.calls.append(LayerCall(rule, module, names, a, version, place, lengths))
        return z
