"""What an operation with fixed weights needs, told by its own adjoint.

Outputs get positive numbers where they are needed, no two alike, and inputs are needed where the
derivative is not zero.
"""

from typing import Any

import torch
from torch import Tensor

from vademecum.convolution.receptive._needs import Need, thinned
from vademecum.models import Call, Value

__all__ = ["Found", "NoValues", "by_adjoint"]

Found = list[tuple[Value, Need]]
GOLDEN = 0.6180339887498949


class NoValues(RuntimeError):
    """An operation whose needs depend on values, where there are shapes alone."""


def by_adjoint(call: Call, needs: list[Need | None], *, thin: int = 0) -> Found:
    """What the operation itself says, differentiated.

    Args:
        call: An operation that is linear in its floating-point tensors.
        needs: What is needed of its outputs.
        thin: How many leading axes it treats as a batch, which need not be long then.
    """
    constant = [t for t in _constants((call.args, call.kwargs)) if isinstance(t, Tensor)]
    whole = [v for v in call.tensors if not v.tensor.is_floating_point()]
    if any(t.is_meta for t in [*constant, *(v.tensor for v in whole)]):
        raise NoValues(f"{call.place} needs values")
    real = [v for v in call.tensors if v.tensor.is_floating_point()]
    (lead,) = [n.mask.shape[:thin] for n in needs if n is not None][:1] or [()]
    zeros = [
        torch.zeros(*lead, *v.tensor.shape[thin:], dtype=v.tensor.dtype, requires_grad=True)
        for v in real
    ]
    by_index = dict(zip([v.index for v in real], zeros, strict=True))
    with torch.enable_grad():
        given = [by_index[v.index] if v in real else v.tensor.cpu() for v in call.tensors]
        made = call.bind(_on_cpu)(*given)
        pairs = [
            (y, _weights(need.mask, y))
            for y, need in zip(made if call.several else [made], needs, strict=False)
            if need is not None and y.requires_grad
        ]
    if not pairs:
        return []
    outs, weights = zip(*pairs, strict=True)
    grads = torch.autograd.grad(outs, zeros, weights, allow_unused=True)
    return [
        (v, Need(thinned(g != 0), {})) for v, g in zip(real, grads, strict=True) if g is not None
    ]


def _on_cpu(a: Any) -> Any:
    return a.detach().cpu() if isinstance(a, Tensor) else a


def _constants(a: Any) -> list[Any]:
    if isinstance(a, dict):
        a = tuple(a.values())
    if isinstance(a, tuple | list):
        return [leaf for each in a for leaf in _constants(each)]
    return [a]


def _weights(mask: Tensor, y: Tensor) -> Tensor:
    """Positive numbers where something is needed, with no pattern to cancel."""
    numbers = torch.arange(y.numel(), dtype=torch.float64).mul_(GOLDEN).frac_().add_(1)
    return numbers.view(y.shape).mul_(mask.expand(y.shape)).to(y.dtype)
