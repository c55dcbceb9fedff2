"""Counting by hand what networks hold, and watching the sides of their maps."""

import torch
from torch import Tensor, nn

__all__ = ["conv", "dense", "entries", "held", "sides"]


def conv(k: int, maps: int, out: int, *, groups: int = 1, bias: bool = True) -> int:
    """The parameters of a convolution with kernels of side k."""
    return k * k * maps * out // groups + bias * out


def dense(features: int, out: int) -> int:
    """The parameters of a dense layer."""
    return (features + 1) * out


def entries(*modules: nn.Module) -> int:
    """How many numbers the parameters of modules hold."""
    return sum(p.numel() for module in modules for p in module.parameters())


def held(net: nn.Module, kind: type[nn.Module]) -> int:
    """How many numbers the modules of a kind hold within a network."""
    return entries(*(module for module in net.modules() if isinstance(module, kind)))


def sides(net: nn.Module, x: Tensor, *kinds: type[nn.Module]) -> list[int]:
    """The sides of the maps behind modules of some kinds, in the order of their calls."""
    seen: list[int] = []
    hooks = [
        module.register_forward_hook(lambda *call: seen.append(call[2].shape[-1]))
        for module in net.modules()
        if isinstance(module, kinds)
    ]
    with torch.no_grad():
        net(x)
    for hook in hooks:
        hook.remove()
    return seen
