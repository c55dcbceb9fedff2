r"""The rule for convolutions: products of what comes back with the patches that the kernel sees.

With $a_t$ for the patch at position $t$ the gradient is $\sum_t b_t a_t^T$, group by group. Patches
of a few examples at a time are copied to a place in the caches. Exact up to rounding.
"""

from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.gradients._layer_rules.products import Out, put

__all__ = ["convolution", "padded", "patches_of"]

_CACHE = {"cpu": 2**23}  # bytes of patches at a time, which are read as soon as written


def convolution(layer: Any, a: Tensor, b: Tensor, out: Out, *, add: bool) -> None:
    """The gradients for a convolution with zeros around."""
    g, n, channels = b.shape[:3]
    b = b.movedim(0, 1).flatten(3)  # (n, g, channels, positions)
    if "bias" in out:
        put(out["bias"], b.sum(-1), add=add)
    if "weight" not in out:
        return
    groups, shape = layer.groups, layer.weight.shape
    size = prod(shape[1:]), b.shape[-1]  # of the patches of a group
    b = b.unflatten(2, (groups, -1)).transpose(1, 2).flatten(2, 3)
    seen = patches_of(layer, padded(layer, a))
    step = min(n, max(1, _CACHE.get(a.device.type, 2**30) // (a.element_size() * seen[0].numel())))
    memory = torch.empty_like(seen[:step], memory_format=torch.contiguous_format)
    for start in range(0, n, step):
        here = slice(start, start + step)
        patches = memory[: len(seen[here])].copy_(seen[here]).view(-1, groups, *size)
        product = (b[here] @ patches.mT).unflatten(2, (g, channels // groups))
        put(out["weight"][here], product.transpose(1, 2).reshape(-1, g, *shape), add=add)


def padded(layer: Any, a: Tensor) -> Tensor:
    """The input with zeros around."""
    spans = [d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
    match layer.padding:
        case "valid":
            sides = [(0, 0) for _ in spans]
        case "same":
            sides = [(span // 2, span - span // 2) for span in spans]
        case amounts:
            sides = [(amount, amount) for amount in amounts]
    return F.pad(a, [amount for side in reversed(sides) for amount in side])


def patches_of(layer: Any, a: Tensor) -> Tensor:
    """What the kernel sees, as a view: (n, channels, *kernel, *positions)."""
    axes = len(layer.kernel_size)
    for i, (k, d, s) in enumerate(
        zip(layer.kernel_size, layer.dilation, layer.stride, strict=True)
    ):
        a = a.unfold(2 + i, d * (k - 1) + 1, s)[..., ::d]
    return a.permute(0, 1, *range(2 + axes, 2 + 2 * axes), *range(2, 2 + axes))
