"""Counting by hand what networks hold, and watching the sides of their maps."""

import torch
from torch import Tensor, nn

__all__ = ["conv", "dense", "entries", "held", "resnet_table", "sides"]


def conv(k: int, maps: int, out: int, *, groups: int = 1, bias: bool = True) -> int:
    """The parameters of a convolution with kernels of side k."""
    return k * k * maps * out // groups + bias * out


def dense(features: int, out: int) -> int:
    """The parameters of a dense layer."""
    return (features + 1) * out


def resnet_table(depth: int, expansion: int, *, projections: bool) -> int:
    """The parameters of ResNet by a closed sum over its layers, with batch normalisation."""
    blocks = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
    bottleneck = depth >= 50

    def layer(k: int, maps: int, out: int) -> int:
        return k * k * maps * out + 2 * out

    total, maps = layer(7, 3, 64), 64
    for stage, count in enumerate(blocks.get(depth, blocks[34])):
        width = 64 * 2**stage
        out = width * expansion if bottleneck else width
        for _ in range(count):
            if bottleneck:
                total += layer(1, maps, width) + layer(3, width, width) + layer(1, width, out)
            else:
                total += layer(3, maps, width) + layer(3, width, width)
            if maps != out and projections:
                total += layer(1, maps, out)
            maps = out
    return total + dense(maps, 1000)


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
