r"""Networks with other parameters and the same function: units reordered, or of another size.

Permuting the units of a hidden layer (the rows of $W_1$, the entries of $b_1$ and the columns of
$W_2$ together), or, where $\phi(c z) = c\, \phi(z)$ for $c > 0$ as for ReLU, multiplying a unit's
incoming weights and bias by $c$ and its outgoing weights by $1 / c$,

$$W_2\, \phi(W_1 x + b_1) = W_2 P^\top \phi(P W_1 x + P b_1)
= W_2 C^{-1} \phi(C W_1 x + C b_1),$$

changes the parameters and not the function. The units are found in the graph of the network's code
(see `unit_graph`), with all that read them; what cannot be followed is left as it is, and named.

Exact up to rounding of the new weights, and looked at: the outputs are compared in double
precision. Checked by the claim `parameter_symmetry`.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.arguments import floats
from vademecum.models import (
    ModelState,
    UnitGroup,
    UnitMember,
    call_arguments,
    map_tensors,
    named_tensors,
    refuse_nan,
    reordered,
    tensor_places,
    unit_graph,
    unwrapped,
)
from vademecum.randomness import source
from vademecum.results import one_line

__all__ = ["UnitChange", "permute_units", "rescale_units"]

_ALIKE = 2.0**-20  # of the largest output: far more than rounding, far less than another function


class UnitChange(NamedTuple):
    """A network with other parameters and the same function.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        >>> found = permute_units(model, torch.ones(1, 2))
        >>> list(found.layers), found.left
        (['0'], {'2': 'they are outputs of the model'})
    """

    model: nn.Module
    """A copy of the network, with its parameters changed and without gradients."""
    layers: dict[str, Tensor]
    """The order of the units (the new unit j is the old unit order[j]), or what they were
    multiplied by, of each layer that was changed."""
    left: dict[str, str]
    """The layers whose units were left as they are, with the reasons."""

    __repr__ = one_line


def permute_units(
    model: nn.Module,
    x: Any,
    *,
    permutations: Mapping[str, Tensor] | None = None,
    generator: torch.Generator | None = None,
) -> UnitChange:
    """Put the units of hidden layers in another order, and everything that reads them.

    Layers whose outputs are added up (residual networks) get one order.

    Args:
        model: Any module; a copy is made.
        x: An input, as the model takes it: one example will do.
        permutations: The new order of the units by the names of layers; by default a random one
            for every layer where that is possible.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If units cannot be permuted, since those that read them cannot be found or do
            not treat them alike, or an order is none.

    Example:
        >>> model = nn.Sequential(nn.Linear(1, 2), nn.Tanh(), nn.Linear(2, 1))
        >>> model[0].weight.data = torch.tensor([[1.0], [2.0]])
        >>> model[2].weight.data = torch.tensor([[3.0, 4.0]])
        >>> swap = {"0": torch.tensor([1, 0])}
        >>> other = permute_units(model, torch.ones(1, 1), permutations=swap).model
        >>> other[0].weight.data.flatten(), other[2].weight.data.flatten()
        (tensor([2., 1.]), tensor([4., 3.]))
    """

    def drawn(m: int, device: torch.device) -> Tensor:
        return torch.randperm(m, **source(generator, device)).to(device)

    return _changed(model, x, permutations, drawn, "permutations", _order, _permuted)


def rescale_units(
    model: nn.Module,
    x: Any,
    *,
    scales: Mapping[str, Tensor] | None = None,
    generator: torch.Generator | None = None,
) -> UnitChange:
    r"""Multiply the units of hidden layers by positive numbers, and undo it where they are read.

    Only behind functions with $\phi(c z) = c\, \phi(z)$: none, ReLU, leaky ReLU, absolute values,
    pooling. Behind batch or layer normalisation the scale and the shift are multiplied.

    Args:
        model: Any module; a copy is made.
        x: An input, as the model takes it: one example will do.
        scales: The factors by the names of layers; by default random ones between 1/2 and 2 for
            every layer where that is possible.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If units cannot be scaled, since those that read them cannot be found or do not
            scale with them, or a factor is not positive.

    Example:
        >>> model = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1))
        >>> model[0].weight.data = torch.tensor([[1.0], [2.0]])
        >>> model[2].weight.data = torch.tensor([[3.0, 4.0]])
        >>> twice = {"0": torch.tensor([2.0, 4.0])}
        >>> other = rescale_units(model, torch.ones(1, 1), scales=twice).model
        >>> other[0].weight.data.flatten(), other[2].weight.data.flatten()
        (tensor([2., 8.]), tensor([1.5000, 1.0000]))
    """

    def drawn(m: int, device: torch.device) -> Tensor:
        power = 2 * torch.rand(m, **source(generator, device)).to(device) - 1
        return 2**power

    return _changed(model, x, scales, drawn, "scales", _factors, _scaled)


Draw = Callable[[int, torch.device], Tensor]
Check = Callable[[str, Any, int], Tensor]
Apply = Callable[[Tensor, UnitMember, Tensor], Tensor]


def _changed(
    model: nn.Module,
    x: Any,
    wanted: Mapping[str, Tensor] | None,
    drawn: Draw,
    name: str,
    check: Check,
    apply: Apply,
) -> UnitChange:
    model = unwrapped(model)
    refuse_nan(x)
    found = unit_graph(model, x, scaling=name == "scales")
    groups, names, left = found.groups, found.names, found.left
    if wanted is None:
        free = [group for group in groups if not group.fixed]
        if not free:
            why = "; ".join(f"{layer!r}: {reason}" for layer, reason in left.items())
            raise ValueError(f"model must have units that can change, got none ({why})")
        chosen = [(group, drawn(group.size, _device(group))) for group in free]
    else:
        chosen = list(_asked(groups, wanted, name, check))
    copy = _with_units(deepcopy(model), names, chosen, apply)
    coarse = any(t.is_floating_point() and t.itemsize < 4 for _, t in _places(model))
    trial = _with_units(deepcopy(model).double(), names, chosen, apply) if coarse else copy
    _insist_on_same_function(model, trial, x)
    layers = {layer: change for group, change in chosen for layer in group.layers}
    return UnitChange(copy, layers, left)


def _with_units(
    model: nn.Module,
    names: dict[int, str],
    chosen: list[tuple[UnitGroup, Tensor]],
    apply: Apply,
) -> nn.Module:
    """The model itself, with its parameters changed."""
    model.zero_grad(set_to_none=True)
    own = dict(_places(model))
    with torch.no_grad():
        for group, change in chosen:
            for member in group.members.values():
                t = own[names[id(member.tensor)]]
                t.copy_(apply(t, member, change.to(t.device)))
    return model


def _places(model: nn.Module) -> list[tuple[str, Tensor]]:
    return [*tensor_places(model, "parameters"), *tensor_places(model, "buffers")]


def _device(group: UnitGroup) -> torch.device:
    return next(iter(group.members.values())).tensor.device


def _asked(groups: list[UnitGroup], wanted: Mapping[str, Tensor], name: str, check: Check) -> Any:
    """The groups of the layers that were named, with what is to be done to them."""
    by_layer = {layer: group for group in groups for layer in group.layers}
    done: dict[int, tuple[str, Tensor]] = {}
    for layer, given in wanted.items():
        if layer not in by_layer:
            raise ValueError(f"{name} must be for layers among {list(by_layer)}, got {layer!r}")
        group = by_layer[layer]
        if group.fixed:
            raise ValueError(f"{name} must leave the units of {layer!r} alone: {group.fixed}")
        change = check(f"{name}[{layer!r}]", given, group.size)
        other, before = done.setdefault(id(group), (layer, change))
        if not torch.equal(before, change):
            raise ValueError(f"{name} must be the same for {other!r} and {layer!r}: they are added")
        if other == layer:
            yield group, change


def _order(name: str, given: Any, size: int) -> Tensor:
    known = isinstance(given, Tensor) and given.dtype in (torch.int64, torch.int32)
    if not known or sorted(given.flatten().tolist()) != list(range(size)) or given.ndim != 1:
        raise ValueError(f"{name} must hold each of 0, ..., {size - 1} once, got {given}")
    return given.long()


def _factors(name: str, given: Any, size: int) -> Tensor:
    factors = floats(name, given, ndim=1, width=size)
    if not (factors > 0).all():
        raise ValueError(f"{name} must be > 0, got {factors.min().item():g}")
    return factors


def _permuted(tensor: Tensor, member: UnitMember, order: Tensor) -> Tensor:
    return reordered(tensor, member.axis, member.repeat, order)


def _scaled(tensor: Tensor, member: UnitMember, factors: Tensor) -> Tensor:
    each = factors.to(tensor.dtype).repeat_interleave(member.repeat) ** member.power
    return tensor * each.view(-1, *[1] * (tensor.ndim - member.axis - 1))


def _insist_on_same_function(model: nn.Module, copy: nn.Module, x: Any) -> None:
    """Refuse what the graph did not show: weights that are computed from others, say."""
    outputs = [_outputs(each, x) for each in (model, copy)]
    for one, other in zip(*outputs, strict=True):
        gap = (one - other).abs().max() if one.numel() else torch.zeros(())
        if not gap <= _ALIKE * one.abs().max():
            raise ValueError(
                "model must use its weights in ways that its graph shows, got outputs that differ"
                f" by {float(gap):.3g} with other units"
            )


def _outputs(model: nn.Module, x: Any) -> list[Tensor]:
    """What a model gives in double precision and in evaluation mode."""
    x = map_tensors(x, lambda t: t.double() if t.is_floating_point() else t)
    args, kwargs = call_arguments(map_tensors(x, Tensor.clone))
    with torch.no_grad():
        y = ModelState(model, dtype=torch.float64).run(lambda: model(*args, **kwargs))
    return [t for _, t in named_tensors(y) if t.is_floating_point()]
