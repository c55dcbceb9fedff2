r"""Tensors that all examples share and that no layer holds, taken apart by examples.

A class token, a table of positions, a scale that the model's own code adds, expands or multiplies
with: its gradient comes back summed over the examples. So each example gets a copy. A tensor $q$
that is broadcast over the examples becomes $q_1, \dots, q_n$ in

$$z_i = h_i + q \quad \longrightarrow \quad z_i = h_i + q_i,$$

whose gradients are what every example sends back. The same holds for what is computed of such
tensors alone (rows of a table, a weight that is normalised): the derivative of $q$ in the
parameters takes each $q_i$'s gradient the rest of the way.

`SharedTensors` sees every function of torch that is called within it. Products with a shared matrix
keep to the rule of a linear layer; expansions and arithmetic get the copies; any other function of
one shared tensor and of examples is mapped over these by `torch.func.vmap`. All this changes no
number beyond rounding.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode, handle_torch_function

from vademecum.gradients._layer_rules import COPY, LINEAR, TRANSPOSED, Rule
from vademecum.gradients._layer_rules.products import put
from vademecum.gradients._multihead_attention import attention
from vademecum.models import Moves, out_of_memory

__all__ = ["THROUGH", "Computed", "SharedTensors", "Use", "copies_for"]

_ARITHMETIC = {
    getattr(home, name)
    for home in (torch, Tensor)
    for stem in (
        "add",
        "sub",
        "mul",
        "div",
        "truediv",
        "true_divide",
        "multiply",
        "divide",
        "where",
    )
    for name in (stem, f"{stem}_", f"__{stem}__", f"__r{stem}__", f"__i{stem}__")
    if hasattr(home, name)
} | {torch.rsub, torch.subtract, Tensor.subtract, torch.addcmul}
_EXPANSIONS = {Tensor.expand, Tensor.expand_as, Tensor.broadcast_to, torch.broadcast_to}
_REPETITIONS = {Tensor.repeat, Tensor.tile, torch.tile}
_PRODUCTS = {torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.mm, Tensor.mm}


class Use(NamedTuple):
    """Where a shared tensor meets examples, like a call of a layer with the tensors as weights."""

    rule: Rule
    tensors: dict[str, Tensor]  # by what the rule calls them
    a: Tensor
    version: int
    z: GradientEdge


class SharedTensors(TorchFunctionMode):
    """A context in which `n` examples get copies of what they share; `uses` lists them."""

    def __init__(self, n: int, parameters: Iterable[Tensor]):
        super().__init__()
        self.n, self.uses = n, list[Use]()
        self._own = {id(p) for p in parameters}
        self._paused = False

    def let_be(self, layer: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What a layer gives that is noted as such: what it does in itself is not seen."""
        self._paused = True
        try:
            return handle_torch_function(layer, (), *args, **kwargs)
        finally:
            self._paused = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Let a function that takes shared tensors have a copy for each example."""
        kwargs = kwargs or {}
        if self._paused:
            return func(*args, **kwargs)
        if func is F.multi_head_attention_forward:
            return attention(self._linear, self.n, args, kwargs)
        given = [t for t in (*args, *kwargs.values()) if isinstance(t, Tensor)]
        shared = [t for t in given if self._is_shared(t)]
        if not shared:
            return func(*args, **kwargs)
        if func in _EXPANSIONS or func in _REPETITIONS:
            return self._expand(func(*args, **kwargs), args[0], repeat=func in _REPETITIONS)
        if not any(map(self._has_examples, given)):
            return func(*args, **kwargs)
        if func in _ARITHMETIC:
            return self._compute(func, args, kwargs, given)
        if func is F.linear:
            return self._linear(*args, **kwargs)
        if func in _PRODUCTS and not kwargs and self._is_shared(args[1]) and args[1].ndim == 2:
            return self._note(TRANSPOSED, {"weight": args[1]}, args[0], func(*args))
        return self._map(func, args, kwargs)

    def _is_shared(self, t: Tensor) -> bool:
        return t.requires_grad and not self._has_examples(t)

    def _has_examples(self, t: Tensor) -> bool:
        return t.shape[:1] == (self.n,) and id(t) not in self._own

    def _note(self, rule: Rule, tensors: dict[str, Tensor], a: Tensor, z: Tensor) -> Tensor:
        self.uses.append(Use(rule, tensors, a, a._version, get_gradient_edge(z)))
        return z

    def _copies(self, q: Tensor, axes: int) -> Tensor:
        """A copy of a tensor for each example, to be broadcast to so many axes."""
        copies = _copies(self.n, q, axes)
        return self._note(COPY, {"value": q}, copies.detach(), copies)

    def _is_broadcast(self, q: Tensor, shape: torch.Size) -> bool:
        return shape[:1] == (self.n,) and _can_be_broadcast(q, len(shape))

    def _expand(self, z: Tensor, q: Tensor, *, repeat: bool) -> Tensor:
        if not self._is_broadcast(q, z.shape):
            return z
        copies = self._copies(q, z.ndim)
        if not repeat:
            return copies.expand(z.shape)
        times = [long // short for long, short in zip(z.shape, copies.shape, strict=True)]
        return copies.repeat(times)

    def _compute(self, func: Any, args: Any, kwargs: Any, given: list[Tensor]) -> Tensor:
        shape = torch.broadcast_shapes(*(t.shape for t in given))

        def copied(t: Any) -> Any:
            if isinstance(t, Tensor) and self._is_shared(t) and self._is_broadcast(t, shape):
                return self._copies(t, len(shape))
            return t

        return func(*map(copied, args), **{k: copied(v) for k, v in kwargs.items()})

    def _linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        z = F.linear(input, weight, bias)
        each = {"weight": weight, "bias": bias}
        shared = {k: t for k, t in each.items() if t is not None and t.requires_grad}
        if not shared or not self._has_examples(input):
            return z
        return self._note(LINEAR, shared, input, z)

    def _map(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Any other function, mapped over the examples, if it gives one row for each."""
        z = func(*args, **kwargs)
        if not isinstance(z, Tensor) or not self._has_examples(z) or z is args[0]:
            return z
        flat = [*args, *kwargs.values()]
        shared = [isinstance(t, Tensor) and self._is_shared(t) for t in flat]
        carried = [isinstance(t, Tensor) and self._has_examples(t) for t in flat]

        def of_one(*each: Any) -> Tensor:
            one = [t[None] if carries else t for t, carries in zip(each, carried, strict=True)]
            return func(*one[: len(args)], **dict(zip(kwargs, one[len(args) :], strict=True)))[0]

        dims = tuple(0 if any(each) else None for each in zip(shared, carried, strict=True))
        copies = [
            self._copies(t, t.ndim + 1) if own else t for t, own in zip(flat, shared, strict=True)
        ]
        try:
            mapped = torch.func.vmap(of_one, dims)(*copies)
        except RuntimeError as error:
            if out_of_memory(error):
                raise
            return z  # which then is no use that is known
        return z if Moves([(z, mapped)], {z.dtype}).largest else mapped


def _copies(n: int, q: Tensor, axes: int) -> Tensor:
    return q.reshape(*[1] * (axes - q.ndim), *q.shape).expand(n, *[-1] * (axes - 1))


def _can_be_broadcast(q: Tensor, axes: int) -> bool:
    return q.ndim < axes or len(q) == 1


def copies_for(n: int, q: Tensor, axes: int) -> Tensor | None:
    """A copy of a tensor for each example, with so many axes, unless it has a row for each."""
    return _copies(n, q, axes) if q.shape[:1] != (n,) and _can_be_broadcast(q, axes) else None


class Computed(NamedTuple):
    """Tensors that were computed of parameters alone, and the rule for them."""

    rule: Rule
    tensors: dict[str, Tensor]
    parameters: dict[str, Tensor]


def _through(layer: Computed, a: Tensor, b: Tensor, out: dict[str, Tensor], *, add: bool) -> None:
    """The gradients in the parameters, from those in the tensors that were computed of them."""
    g, n, inner = len(b), len(a), dict[str, Tensor]()
    for own, q in layer.tensors.items():
        inner[own] = q.new_empty(n, g, *q.shape)
    layer.rule.gradient(None, a, b, inner, add=False)
    found = torch.autograd.grad(
        list(layer.tensors.values()),
        [layer.parameters[name] for name in out],
        [each.flatten(0, 1) for each in inner.values()],
        is_grads_batched=True,
        retain_graph=True,
        allow_unused=True,
        materialize_grads=True,
    )
    for each, gradient in zip(out.values(), found, strict=True):
        put(each, gradient.view(each.shape), add=add)


THROUGH = Rule(_through)
