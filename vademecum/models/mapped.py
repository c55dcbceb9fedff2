"""Derivatives in the parameters for each example by itself, as `torch.func` maps them over all.

Exact up to rounding, for any network whose examples do not influence each other; slower than what
knows the layers. Not all of torch's rules for mapping are right (that of `cdist` with the same
points for all examples is not), so the first example is compared with a backward pass.
"""

from collections.abc import Callable, Mapping
from functools import partial
from operator import itemgetter
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from vademecum.models.failures import cannot_be_mapped, warn_of_slow_path
from vademecum.models.independence import Moves
from vademecum.models.inputs import map_tensors, named_tensors
from vademecum.models.losses import Loss

__all__ = ["mapped_derivatives"]


@runtime_checkable
class Network(Protocol):
    """A network as a function of parameters by name, and of inputs."""

    model: nn.Module

    @property
    def values(self) -> dict[str, Tensor]:
        """The parameters to differentiate at."""
        ...

    def call(self, parameters: Mapping[str, Tensor], x: Any) -> Any:
        """What the network gives."""
        ...


def mapped_derivatives(
    f: Network,
    loss: Loss,
    x: Any,
    y: Tensor,
    *,
    derivative: Callable[..., Any] = torch.func.grad,
    after: Callable[[Any], Any] = lambda g: g,
) -> Any:
    """`after` of each example's derivatives by name, from `torch.func`.

    Where an operation cannot be mapped, or is not mapped rightly, with a warning, from a loop of
    plain backward passes, which all operations know. If `after` is given the loss is a number.
    """
    parameters = {name: p.detach() for name, p in f.values.items()}

    def of_one(y: Tensor, *tensors: Tensor) -> Any:
        each = iter(tensors)
        one = map_tensors(x, lambda _: next(each)[None])
        return after(derivative(lambda p: loss(f.call(p, one), y[None]))(parameters))

    reason: RuntimeError | str = "torch.func.vmap does not know recurrent layers"
    if not any(isinstance(module, nn.RNNBase) for module in f.model.modules()):
        try:
            found = torch.func.vmap(of_one)(y, *(t for _, t in named_tensors(x)))
            if _is_right(f, loss, map_tensors(x, itemgetter(slice(1))), y[:1], after, found):
                return found
            reason = "torch.func.vmap gives others than a backward pass"
        except RuntimeError as error:
            if not cannot_be_mapped(error):
                raise
            if "randomness" in str(error):
                raise ValueError("model must not depend on chance in evaluation mode") from error
            reason = error
    warn_of_slow_path("derivatives are taken of one example after the other", reason)
    each = (slice(i, i + 1) for i in range(len(y)))
    found = [after(_derivative(f, loss, map_tensors(x, itemgetter(i)), y[i])) for i in each]
    return default_collate(found)


def _derivative(f: Network, loss: Loss, x: Any, y: Tensor) -> dict[str, Tensor]:
    """The derivatives of the loss, entry by entry, in the parameters."""
    parameters = {name: p.detach().requires_grad_() for name, p in f.values.items()}
    with torch.enable_grad():
        value = loss(f.call(parameters, x), y)
    pull = partial(torch.autograd.grad, inputs=list(parameters.values()), retain_graph=True,
                   materialize_grads=True)  # fmt: skip
    found = zip(*(pull(entry) for entry in value.flatten()), strict=True)
    return {
        name: torch.stack(each).view(value.shape + each[0].shape)
        for name, each in zip(parameters, found, strict=True)
    }


def _is_right(
    f: Network, loss: Loss, x: Any, y: Tensor, after: Callable[[Any], Any], found: Any
) -> bool:
    """Whether the derivatives of an example, the first of those found, are those of autograd.

    Where the loss has several entries, those of a weighted sum of them are compared.
    """
    parameters = {name: p.detach().requires_grad_() for name, p in f.values.items()}
    with torch.enable_grad():
        value = loss(f.call(parameters, x), y)
        if not value.requires_grad:
            return True
        weights = torch.linspace(1, 2, value.numel()).to(value).view(value.shape)
        total = (weights * value).sum()
    gradients = torch.autograd.grad(total, list(parameters.values()), materialize_grads=True)
    plain = named_tensors(after(dict(zip(parameters, gradients, strict=True))))

    def summed(t: Tensor) -> Tensor:
        return torch.tensordot(weights.to(t), t[0], value.ndim) if value.ndim else t[0]

    pairs = [
        (summed(each), one) for (_, each), (_, one) in zip(named_tensors(found), plain, strict=True)
    ]
    size = max((float(one.abs().max()) for _, one in pairs if one.numel()), default=0.0)
    scale = 1 / size if 0 < size < float("inf") else 1.0
    dtypes = {p.dtype for p in parameters.values()}
    return not Moves([(one * scale, other * scale) for one, other in pairs], dtypes).largest
