r"""Any energy as chains need it: its values and gradients at many points at once.

An energy maps points (chains, P) to (chains,) numbers, each of its own row alone, so that the
gradient of their sum holds the gradients of all. An object may know a faster way: `with_gradient`
gives both, `gradient` the second only, `estimate` both from a random part of the data.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vademecum.arguments import floats

__all__ = [
    "Energy", "Point", "estimated", "gradient", "point", "starting_point", "usable", "values",
]  # fmt: skip

Energy = Callable[[Tensor], Tensor]


class Point(NamedTuple):
    """Where chains are: positions, energies there, and their gradients."""

    theta: Float[Tensor, " chains P"]
    energy: Float[Tensor, " chains"]
    gradient: Float[Tensor, " chains P"]


def values(energy: Energy, theta: Tensor) -> Tensor:
    """The energies at points, without a graph."""
    with torch.no_grad():
        return _one_for_each(energy(theta), theta).detach()


def point(energy: Energy, theta: Tensor) -> Point:
    """The energies at points with their gradients."""
    own: Any = getattr(energy, "with_gradient", None)
    if own is not None:
        found, slope = own(theta)
        return Point(theta, found, slope)
    return Point(theta, *_differentiated(energy, theta))


def gradient(energy: Energy, theta: Tensor) -> Tensor:
    """The gradients alone, where that is cheaper."""
    own: Any = getattr(energy, "gradient", None)
    return own(theta) if own is not None else point(energy, theta).gradient


def estimated(energy: Energy, theta: Tensor, generator: torch.Generator | None) -> Point:
    """The same from a random part of the data, where the energy offers that."""
    own: Any = getattr(energy, "estimate", None)
    if own is None:
        return point(energy, theta)
    found, slope = own(theta, generator=generator)
    return Point(theta, found, slope)


def usable(at: Point) -> Bool[Tensor, " chains"]:
    """Where energies and gradients are finite numbers."""
    return at.energy.isfinite() & at.gradient.isfinite().all(-1)


def starting_point(name: str, theta: Any) -> Tensor:
    """Points of chains as an argument: (chains, P), at least one chain, finite."""
    if not isinstance(theta, Tensor) or theta.ndim != 2:
        given = f"shape {tuple(theta.shape)}" if isinstance(theta, Tensor) else type(theta).__name__
        raise ValueError(f"{name} must be a tensor (chains, P), got {given}")
    if len(theta) == 0:
        raise ValueError(f"{name} must have at least one chain, got shape {tuple(theta.shape)}")
    return floats(name, theta).detach()


def _differentiated(energy: Energy, theta: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        at = theta.detach().requires_grad_()
        found = _one_for_each(energy(at), at)
        if not found.requires_grad:
            raise ValueError("energy must be differentiable, and this one is constant")
        (slope,) = torch.autograd.grad(found.sum(), at, materialize_grads=True)
    return found.detach(), slope


def _one_for_each(found: Any, theta: Tensor) -> Tensor:
    if not isinstance(found, Tensor) or found.shape != theta.shape[:1]:
        given = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(
            f"energy must give one number for each of {len(theta)} chains, got {given}"
        )
    return found
