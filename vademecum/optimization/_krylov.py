"""A model's Hessian for Krylov methods, whose basis shares the memory with the products."""

from typing import Any, NamedTuple

import torch
from torch import nn

from vademecum.arguments import whole
from vademecum.foundations import LinearOperator
from vademecum.gradients import functional, hessian
from vademecum.gradients.network_function import Functional
from vademecum.models import Loss, Output

__all__ = ["KrylovHessian", "in_full_precision", "krylov_hessian"]

_BASIS = 26  # vectors that `eigsh` holds by default for one eigenvalue
_LEAST = 3


class KrylovHessian(NamedTuple):
    """The network as a function, its Hessian, how many vectors fit beside it, what is left."""

    f: Functional
    H: LinearOperator
    held: int
    left: int | None


def krylov_hessian(
    model: nn.Module,
    x: Any,
    y: Any,
    *,
    loss: Loss | None,
    memory: int | None,
    frozen: bool,
    output: Output,
) -> KrylovHessian:
    """The Hessian, with at most half of the memory set aside for vectors."""
    f = functional(model, frozen=frozen, output=output)
    in_full_precision(f.dtype)
    held, left = _shares(memory, f)
    H = hessian(model, x, y, loss=loss, memory=left, frozen=frozen, output=output)
    return KrylovHessian(f, H, held, left)


def in_full_precision(dtype: torch.dtype) -> None:
    """Refuse half precision, in which Krylov methods do not work."""
    if torch.finfo(dtype).bits < 32:
        raise ValueError(f"model must be in single or double precision, got {dtype}")


def _shares(memory: int | None, f: Functional) -> tuple[int, int | None]:
    """How many vectors a Krylov method may hold in half of the memory, and what is left."""
    width = f.size * f.dtype.itemsize
    if memory is None:
        return _BASIS, None
    held = min(_BASIS, whole("memory", memory, low=2 * (_LEAST + 2) * width) // 2 // width - 2)
    return held, memory - (held + 2) * width
