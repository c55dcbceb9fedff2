"""Parameters and buffers of a module: their places, ties, and computing with others in their place.

A module that is to be seen in evaluation, in another dtype, or as it was a while ago is not copied
for that: its own code runs with other tensors in the places of its own, which are back afterwards.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.parameter import is_lazy

from vademecum.models._modules import Modules, named_modules
from vademecum.models.inputs import map_tensors, named_tensors
from vademecum.models.modes import INTERNAL, evaluation

__all__ = [
    "ModelState", "aliases", "call_with", "insist_on_place", "run_with", "tensor_homes",
    "tensor_places", "unwrapped",
]  # fmt: skip

Aliases = list[tuple[nn.Module, str]]
Homes = dict[str, tuple[dict[str, Any], str]]
_HOLDERS = (Tensor, list, tuple, dict)


def tensor_places(
    model: nn.Module | Modules, kind: Literal["parameters", "buffers"]
) -> Iterator[tuple[str, Tensor]]:
    """All places of parameters or buffers: shared ones have several, shared modules one.

    So a call with other tensors can name them all itself: torch's own treatment of ties does not
    give a module back that has two names.
    """
    for prefix, module in named_modules(model):
        own = module._parameters if kind == "parameters" else module._buffers
        for name, tensor in own.items():
            if tensor is not None:
                yield f"{prefix}{name}", tensor


def tensor_homes(modules: Modules) -> Homes:
    """Where parameters and buffers are kept, by their places.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> table, name = tensor_homes(named_modules(model))["bias"]
        >>> table[name] is model.bias
        True
    """
    return {
        f"{prefix}{name}": (table, name)
        for prefix, module in modules
        for table in (module._parameters, module._buffers)
        for name in table
    }


def aliases(model: nn.Module | Modules) -> Aliases:
    """Plain attributes that hold parameters of a model, alone or in lists, tuples and dicts.

    torch's own way of computing with other tensors does not know of them.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> model.all = [model.weight, model.bias]
        >>> aliases(model)
        [(Linear(in_features=2, out_features=1, bias=True), 'all')]
    """
    found = [
        (module, key, value)
        for _, module in named_modules(model)
        for key, value in vars(module).items()
        if key not in INTERNAL and issubclass(type(value), _HOLDERS)
    ]
    own = {id(p) for _, p in tensor_places(model, "parameters")} if found else set[int]()
    return [
        (module, key)
        for module, key, value in found
        if any(id(t) in own for _, t in named_tensors(value))
    ]


def call_with(
    model: nn.Module,
    tensors: Mapping[str, Tensor],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    also: Aliases,
    homes: Homes | None = None,
) -> Any:
    """What a model gives with other tensors at some places.

    Args:
        model: The module.
        tensors: The tensors by their places, of which those that are tied have several.
        args: What it is called with.
        kwargs: What it is called with by name.
        also: Its `aliases`, which are to hold the same.
        homes: Its `tensor_homes`, if these are known, for speed.
    """
    kept = [(vars(module), key, vars(module)[key]) for module, key in also]
    own = tensor_places(model, "parameters") if also else ()
    instead = {id(p): tensors[place] for place, p in own if place in tensors}
    for attributes, key, value in kept:
        attributes[key] = map_tensors(value, lambda t: instead.get(id(t), t))
    call = partial(functional_call, tie_weights=False) if homes is None else partial(_call, homes)
    try:
        return call(model, dict(tensors), args, dict(kwargs or {}))
    finally:
        for attributes, key, value in kept:
            attributes[key] = value


def _call(
    homes: Homes,
    model: nn.Module,
    tensors: dict[str, Tensor],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """What `functional_call` does, without looking for the places by name."""
    before = [(homes[place], homes[place][0][homes[place][1]]) for place in tensors]
    try:
        for ((table, name), _), tensor in zip(before, tensors.values(), strict=True):
            table[name] = tensor
        return model(*args, **kwargs)
    finally:
        for (table, name), tensor in before:
            table[name] = tensor


def run_with(model: nn.Module, tensors: Mapping[str, Tensor], function: Callable[[], Any]) -> Any:
    """`function()`, with other tensors at some places of a model meanwhile.

    Args:
        model: The module.
        tensors: The tensors by their places, of which those that are tied have several.
        function: What to do, which may call any method of the model.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> run_with(model, {"bias": torch.ones(1)}, lambda: model.bias.item())
        1.0
    """
    around = {f"model.{place}": tensor for place, tensor in tensors.items()}
    return call_with(_Around(model), around, (function,), also=aliases(model))


def unwrapped(model: nn.Module) -> nn.Module:
    """The module itself, without what `torch.compile` has put around it, if we can work with it.

    Raises:
        ValueError: If it is no module, its tensors are to be made at its first call, or it is
            scripted or quantised.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be an nn.Module, got {type(model).__name__}")
    model = getattr(model, "_orig_mod", model)
    modules = named_modules(model)
    for kind in {type(module) for _, module in modules}:
        if issubclass(kind, torch.jit.ScriptModule):
            raise ValueError(
                f"model must not be scripted or traced by torch.jit, got {kind.__name__}"
            )
        if kind.__module__.startswith("torch.") and ".quantized." in kind.__module__:
            raise ValueError(
                f"model must compute in floating point, got a quantised {kind.__name__}"
            )
    for prefix, module in modules:
        tables: Any = module._parameters, module._buffers
        for name in (name for own in tables for name, p in own.items() if is_lazy(p)):
            raise ValueError(f"model must be initialised, and {prefix}{name} is not: call it once")
    return model


def insist_on_place(model: nn.Module, name: str, x: Tensor, *, wider: bool = True) -> None:
    """Refuse inputs that are on another device than a model, or in a narrower dtype.

    In a wider one its numbers mean the same, and it can be computed with (see `ModelState`); it is
    refused as well where the model itself shall run.
    """
    for p in [*model.parameters(), *model.buffers()]:
        if p.device != x.device:
            raise ValueError(f"{name} must be on {p.device} as model is, got {x.device}")
        least = torch.promote_types(p.dtype, x.dtype) if wider else p.dtype
        if p.is_floating_point() and least != x.dtype:
            more = ", or wider" if wider else ""
            raise ValueError(f"{name} must be {p.dtype} as model is{more}, got {x.dtype}")


class ModelState:
    """The tensors of a model as they are now, to compute with in evaluation mode.

    Args:
        model: Any module, which is neither copied nor moved.
        dtype: That of the floating-point tensors; by default they are the model's own.
        device: Where the tensors are; on "meta" they have shapes and no values, and cost nothing.
        copy: Whether to keep copies, so that what happens to the model later has no effect.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 1), nn.Dropout())
        >>> state = ModelState(model, dtype=torch.float64)
        >>> state.run(model, torch.ones(1, 2).double()).dtype, model[0].weight.dtype
        (torch.float64, torch.float32)
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        copy: bool = False,
    ):
        self.model = unwrapped(model)
        self._around, self._tensors = _Around(self.model), {}
        self._aliases = aliases(self.model)
        made: dict[int, Tensor] = {}
        for kind in ("parameters", "buffers"):
            for place, own in tensor_places(self._around, kind):
                if id(own) not in made:
                    t = own.detach().to(device, dtype if own.is_floating_point() else None)
                    t = t.clone() if copy or kind == "buffers" else t  # which code may count in
                    made[id(own)] = nn.Parameter(t, False) if kind == "parameters" else t
                self._tensors[place] = made[id(own)]

    def __deepcopy__(self, memo: dict[int, Any]) -> "ModelState":
        return self  # nothing ever changes it

    def run(self, function: Callable[..., Any], *args: Any, fused: bool = False) -> Any:
        """`function(*args)`, with the model in evaluation and these tensors in it meanwhile.

        Attention may use fused kernels if that is said, where nothing is differentiated twice.
        """
        with evaluation(self.model, fused=fused):
            return call_with(self._around, self._tensors, (function, *args), also=self._aliases)


class _Around(nn.Module):
    """A module through which `call_with` runs any function while it swaps tensors."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)
