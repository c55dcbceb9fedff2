r"""The width factors of NTK coordinates, and the network in its parameters themselves.

With $w = s\, \omega$ the gradient of an output in the coordinates is $s$ times that in the
parameters. So the tangent kernel of a network in NTK coordinates comes from layers as they are, of
which rules are known, with a factor $s^2$ for each parameter. Exact up to rounding.
"""

from copy import deepcopy
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from vademecum.models import named_modules, tensor_places

__all__ = [
    "Scaled", "ScaledTensor", "become", "remove_scales", "scaled_tensors", "unscaled",
]  # fmt: skip


class Scaled(nn.Module):
    """The map from a coordinate to the parameter, a number of its own for each tensor."""

    def __init__(self, scale: float):
        super().__init__()
        self.scale = scale

    def forward(self, omega: Tensor) -> Tensor:
        """The parameter."""
        return self.scale * omega

    def right_inverse(self, w: Tensor) -> Tensor:
        """The coordinate."""
        return w / self.scale

    def extra_repr(self) -> str:
        """The factor."""
        return f"scale={self.scale:.6g}"


class ScaledTensor(NamedTuple):
    """A coordinate, its factor, and the layers that use it under these names."""

    omega: Tensor
    scale: float
    names: list[str]
    places: list[tuple[nn.Module, str]]


def scaled_tensors(model: nn.Module) -> list[ScaledTensor]:
    """The coordinates of a network that have a factor."""
    found: dict[int, ScaledTensor] = {}
    for prefix, module in named_modules(model):
        for key, chain in getattr(module, "parametrizations", {}).items():
            if isinstance(chain[0], Scaled):
                omega = chain.original
                each = found.setdefault(id(omega), ScaledTensor(omega, chain[0].scale, [], []))
                each.names.append(prefix + key)
                each.places.append((module, key))
    return list(found.values())


def remove_scales(found: list[ScaledTensor]) -> None:
    """Make coordinates the parameters again, with their gradients."""
    for omega, scale, _, places in found:
        for module, key in places:
            parametrize.remove_parametrizations(module, key, leave_parametrized=False)
        become(omega, omega.detach() * scale, 1 / scale)


def become(p: Tensor, value: Tensor, slope: float) -> None:
    """Give a parameter another value, and its gradient the factor of the chain rule."""
    with torch.no_grad():
        p.copy_(value)
        if p.grad is not None:
            p.grad.mul_(slope)


def unscaled(model: nn.Module) -> tuple[nn.Module, dict[str, float]]:
    """A network in its parameters themselves, with the factors of those that have one, by name.

    A network without such factors is given as it is, and so is one whose layers have other
    parametrisations beside them. Else the modules are copied, and the coordinates in question; all
    other tensors are shared.
    """
    coordinates = scaled_tensors(model)
    layers = {id(module): module for each in coordinates for module, _ in each.places}
    if not coordinates or not all(map(_only_scaled, layers.values())):
        return model, {}
    own = {id(each.omega) for each in coordinates}
    kinds: tuple[Literal["parameters", "buffers"], ...] = ("parameters", "buffers")
    shared = {id(t): t for kind in kinds for _, t in tensor_places(model, kind) if id(t) not in own}
    copy = deepcopy(model, dict(shared))
    found = scaled_tensors(copy)
    for omega, scale, _, places in found:
        omega.data.mul_(scale)
        for module, key in places:
            _as_it_was(module)
            module.register_parameter(key, cast(nn.Parameter, omega))
    return copy, {name: each.scale for each in found for name in each.names}


def _only_scaled(module: nn.Module) -> bool:
    chains = cast(nn.ModuleDict, module.parametrizations).values()
    return all(isinstance(part, Scaled) for chain in chains for part in cast(Any, chain))


def _as_it_was(module: nn.Module) -> None:
    """Make a layer one of its own class again, without touching that of the original."""
    if parametrize.is_parametrized(module):
        del module.parametrizations
        module.__class__ = type(module).__bases__[0]
