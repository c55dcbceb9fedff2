"""Refusing sequences, inputs of a step and states that do not fit the weights they meet."""

import torch
from torch import Tensor

__all__ = ["drawn_weight", "insist_on_kind", "insist_on_sequence", "insist_on_step", "started"]


def insist_on_sequence(x: Tensor, d: int, weight: Tensor) -> None:
    """Refuse what is not (n, T, d) with at least one step, in the dtype and place of a weight."""
    if not isinstance(x, Tensor) or x.ndim != 3 or x.shape[2] != d or not x.shape[1]:
        raise ValueError(f"x must have the shape (n, T, {d}) with T >= 1, got {_shape(x)}")
    insist_on_kind("x", x, weight)


def insist_on_step(x: Tensor, d: int, weight: Tensor) -> None:
    """Refuse what is not (n, d), in the dtype and place of a weight."""
    if not isinstance(x, Tensor) or x.ndim != 2 or x.shape[1] != d:
        raise ValueError(f"x must have the shape (n, {d}), got {_shape(x)}")
    insist_on_kind("x", x, weight)


def started(name: str, state: Tensor | None, n: int, m: int, weight: Tensor) -> Tensor:
    """The state to start from: the one given, if it is (n, m), or zeros."""
    if state is None:
        return weight.new_zeros(n, m)
    if not isinstance(state, Tensor) or state.shape != (n, m):
        raise ValueError(f"{name} must have the shape ({n}, {m}), got {_shape(state)}")
    insist_on_kind(name, state, weight)
    return state


def drawn_weight(*shape: int, m: int) -> torch.nn.Parameter:
    r"""Uniform between $\pm 1/\sqrt m$, as torch draws the weights of its recurrent layers."""
    return torch.nn.Parameter(torch.empty(shape).uniform_(-(m**-0.5), m**-0.5))


def insist_on_kind(name: str, x: Tensor, weight: Tensor) -> None:
    """Refuse integers, another device than that of a weight, and another dtype."""
    if not x.is_floating_point():
        raise ValueError(f"{name} must be floating point, got {x.dtype}")
    if x.device != weight.device:
        raise ValueError(f"{name} must be on {weight.device}, as the model, got {x.device}")
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        raise ValueError(f"{name} must be {weight.dtype}, as the model, got {x.dtype}")


def _shape(x: object) -> str:
    return str(tuple(x.shape)) if isinstance(x, Tensor) else type(x).__name__
