r"""The losses of examples by themselves, whatever reduction a loss function has.

The loss of a batch of one example is that example's, as a mean and as a sum: so the function is
mapped over batches of one.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.models.failures import cannot_be_mapped, warn_of_slow_path
from vademecum.models.inputs import map_tensors, named_tensors
from vademecum.models.losses import Loss, loss_for
from vademecum.models.outputs import differentiable_output

__all__ = ["cotangents", "example_loss", "summed", "targets_of"]


def cotangents(loss: Loss, result: Any, y: Tensor) -> Float[Tensor, " n ..."]:
    """The derivatives of the examples' losses in their outputs, all of them in one row."""
    parts = [t.detach().requires_grad_(t.requires_grad) for _, t in named_tensors(result)]
    leaves = [t for t in parts if t.requires_grad]
    with torch.enable_grad():
        total = _losses(loss, result, parts, y).sum()
    found = torch.autograd.grad(total, leaves, materialize_grads=True)
    return found[0] if isinstance(result, Tensor) else torch.cat([u.flatten(1) for u in found], 1)


def _losses(loss: Loss, result: Any, parts: list[Tensor], y: Tensor) -> Float[Tensor, " n"]:
    """The loss of each example by itself, whatever reduction the loss function has."""

    def of_one(y: Tensor, *each: Tensor) -> Tensor:
        own = iter(each)
        return _one_number(loss(map_tensors(result, lambda _: next(own)), y))

    dims = [0 if t.shape[:1] == (len(y),) else None for t in (y, *parts)]
    given = [t if dim is None else t[:, None] for t, dim in zip((y, *parts), dims, strict=True)]
    try:
        losses = torch.func.vmap(of_one, tuple(dims))(*given)
    except RuntimeError as error:
        if not cannot_be_mapped(error):
            raise
        warn_of_slow_path("loss is taken of one example after the other", error)
        each = ([t if d is None else t[i] for t, d in zip(given, dims, strict=True)]
                for i in range(len(y)))  # fmt: skip
        losses = torch.stack([of_one(*one) for one in each])
    if not losses.requires_grad:
        raise ValueError("loss must be differentiable, and this one is constant")
    return losses.flatten()


def example_loss(y: Tensor, loss: Loss | None) -> Loss:
    """The loss that was given, or else the one for targets of this kind, which needs a tensor."""
    usual = loss_for(y, loss)
    return loss or (lambda z, y: usual(differentiable_output(z, graph=False), y))


def targets_of(y: Any) -> Tensor:
    """The targets, if they are a tensor."""
    if not isinstance(y, Tensor):
        raise ValueError(f"y must be a tensor, got {type(y).__name__}")
    return y


def summed(loss: Loss) -> Loss:
    """The loss as one number without axes."""
    return lambda output, y: _one_number(loss(output, y)).sum()


def _one_number(loss: Tensor) -> Tensor:
    if not isinstance(loss, Tensor):
        raise ValueError(f"loss must give one number as a tensor, got {type(loss).__name__}")
    if not loss.is_floating_point() or loss.numel() != 1:
        raise ValueError(
            f"loss must give one number for one example, got {loss.dtype} of shape"
            f" {tuple(loss.shape)}"
        )
    return loss
