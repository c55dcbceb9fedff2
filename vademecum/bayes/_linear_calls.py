"""The linear and convolutional layers that a network calls: what goes in, and what comes out."""

from collections import Counter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.gradients.network_function import Functional
from vademecum.models import named_modules

__all__ = ["LinearCall", "calls_of", "places_of", "rows_of"]


class LinearCall(NamedTuple):
    """One call of a layer."""

    name: str
    module: nn.Linear | nn.Conv2d
    a: Tensor
    z: Tensor


def calls_of(f: Functional, theta: Tensor, x: Any) -> tuple[Any, list[LinearCall]]:
    """What the network gives, and the calls of its layers in order."""
    found: list[LinearCall] = []
    handles = []

    def noted(name: str) -> Any:
        def hook(module: Any, args: Any, z: Any) -> None:
            found.append(LinearCall(name, module, args[0], z))

        return hook

    for prefix, module in named_modules(f.model):
        if isinstance(module, nn.Linear | nn.Conv2d):
            handles.append(module.register_forward_hook(noted(prefix[:-1])))
    try:
        z = f(theta, x)
    finally:
        for handle in handles:
            handle.remove()
    return z, found


def places_of(f: Functional, call: LinearCall) -> Tensor:
    """Where the rows (W, b) of a layer are in the vector of parameters.

    Raises:
        ValueError: If the layer's parameters are not its own, or do not count.
    """
    uses = Counter(id(p) for _, p in f.model.named_parameters(remove_duplicate=False))
    prefix = f"{call.name}." if call.name else ""
    starts, at = {}, 0
    for name, shape in f.shapes.items():
        starts[name], at = at, at + shape.numel()
    parts = []
    for name, p in call.module.named_parameters():
        if prefix + name not in starts or uses[id(p)] > 1:
            raise ValueError(
                f"{prefix + name} must be a parameter of its own that counts, and it is shared,"
                " computed or frozen"
            )
        size = p.numel()
        rows = torch.arange(size, device=f.device).view(len(p), -1) + starts[prefix + name]
        parts.append(rows)
    return torch.cat(parts, 1)


def rows_of(call: LinearCall) -> Tensor:
    """What each output of a layer is a linear map of, as rows (n, positions, d), with a 1 for b."""
    module, a = call.module, call.a
    if isinstance(module, nn.Conv2d):
        if module.groups > 1 or module.padding_mode != "zeros" or isinstance(module.padding, str):
            raise ValueError(
                f"layers must be convolutions without groups and with padding by zeros for"
                f" structure 'kron', got {call.name!r}"
            )
        size, stride, dilation = module.kernel_size, module.stride, module.dilation
        a = F.unfold(a, size, dilation, module.padding, stride).mT  # pyright: ignore
    else:
        a = a.reshape(len(a), -1, a.shape[-1])
    return a if module.bias is None else torch.cat([a, torch.ones_like(a[..., :1])], -1)
