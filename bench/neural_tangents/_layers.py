"""Networks of torch as lists that can be sent."""

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Pointwise", "Residual", "described", "parameters"]

_PLAIN = {nn.ReLU: "relu", nn.Tanh: "tanh", nn.Sigmoid: "sigmoid", nn.Flatten: "flatten"}


class Pointwise(nn.Module):
    """A function of torch's without a module of its own: "abs", "erf", "sin" or "cos"."""

    def __init__(self, name: str) -> None:
        super().__init__()
        if name not in ("abs", "erf", "sin", "cos"):
            raise ValueError(f'name must be "abs", "erf", "sin" or "cos", got {name!r}')
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        return getattr(torch, self.name)(x)


class Residual(nn.Module):
    """x + f(x)."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.branch = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)


def described(model: nn.Sequential) -> list[Any]:
    """The layers, each with its name and numbers."""
    return [_layer(module) for module in model]


def _layer(module: nn.Module) -> list[Any]:
    if type(module) in _PLAIN:
        return [_PLAIN[type(module)]]
    match module:
        case nn.Linear():
            return ["linear", module.bias is not None]
        case nn.Conv2d():
            return _conv(module)
        case nn.LeakyReLU():
            return ["leaky_relu", module.negative_slope]
        case nn.GELU(approximate="none"):
            return ["gelu"]
        case nn.MaxPool2d(padding=0, dilation=1, ceil_mode=False):
            return ["max_pool", _pair(module.kernel_size), _pair(module.stride)]
        case nn.AvgPool2d(padding=0, ceil_mode=False):
            return ["avg_pool", _pair(module.kernel_size), _pair(module.stride)]
        case nn.AdaptiveAvgPool2d(output_size=1):
            return ["global_avg_pool"]
        case nn.LayerNorm(elementwise_affine=False):
            return ["layer_norm", module.eps]
        case Pointwise():
            return [module.name]
        case Residual():
            return ["residual", described(module.branch)]
        case _:
            raise ValueError(f"model has a layer that the bridge does not know: {module}")


def _conv(module: nn.Conv2d) -> list[Any]:
    padding, stride = module.padding, module.stride
    circular = module.padding_mode == "circular"
    half = tuple((k - 1) // 2 for k in module.kernel_size)
    known = (
        not isinstance(padding, str)
        and (circular or module.padding_mode == "zeros")
        and set(module.dilation) == {1}
        and module.groups == 1
        and (not any(padding) or (padding == half and set(stride) == {1}))
    )
    if not known:
        raise ValueError(f"model has a convolution that stax does not know: {module}")
    return ["conv", stride, padding, circular, module.kernel_size, module.bias is not None]


def _pair(size: Any) -> list[int]:
    return [size, size] if isinstance(size, int) else list(size)


def parameters(model: nn.Sequential) -> list[Tensor | None]:
    """Weight and bias of each layer, None where it has no bias."""
    layers = [m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    return [tensor for layer in layers for tensor in (layer.weight, layer.bias)]
