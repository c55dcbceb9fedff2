r"""A network as a chain: affine maps, with maps in between that need no weights.

Each affine map $z \mapsto A z + b$ is a linear layer, a convolution at the size of its input, or a
batch normalisation in evaluation, which scales channels. In between stand activations and pooling,
of each of which one number counts, its Lipschitz constant $\rho$ in the Euclidean norm:

| map | $\rho$ |
|---|---|
| ReLU, tanh, sigmoid / 4, ELU, leaky ReLU with slopes up to 1, reshaping, dropout | 1 |
| GELU, SiLU | 1.13, 1.1 |
| maxima over windows of which $o$ overlap at a place | $\sqrt o$ |
| means over windows of $w$ entries | $\sqrt{o / w}$ |

Whatever is no chain of these (shortcuts, attention, layer normalisation, products) is refused by
the name of the call.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.models import Call, evaluation, recorded

__all__ = ["Affine", "Between", "read_chain"]

_SAME = {
    "flatten", "view", "reshape", "contiguous", "dropout", "dropout1d", "dropout2d", "dropout3d",
    "identity", "squeeze", "unsqueeze", "clone", "unflatten", "detach", "alpha_dropout",
    "feature_alpha_dropout",
}  # fmt: skip
_UNITS = {
    "relu": 1.0, "relu6": 1.0, "tanh": 1.0, "hardtanh": 1.0, "gelu": 1.13, "silu": 1.1,
    "softsign": 1.0, "tanhshrink": 1.0, "elu": 1.0, "leaky_relu": 1.0, "selu": 1.7581,
    "sigmoid": 0.25, "softplus": 1.0, "mish": 1.09, "hardswish": 1.5,
}  # fmt: skip
_HOMOGENEOUS = {"relu", "leaky_relu"}


class Affine(NamedTuple):
    """A map with weights, on inputs of one size."""

    path: str
    kind: str  # "linear", "conv" or "scale"
    weight: Tensor  # (out, in), a kernel, or one factor for each channel
    bias: Tensor | None  # one number for each row of the weight
    module: nn.Module | None  # the convolution
    source: tuple[int, ...]  # the shape of an input, without batch
    target: tuple[int, ...]


class Between(NamedTuple):
    """A map without weights."""

    path: str
    name: str
    rho: float
    homogeneous: bool  # elementwise and positively homogeneous, or a reshaping
    zero: bool  # whether it maps zero to zero


def read_chain(model: nn.Module, x: Any) -> tuple[list[Affine | Between], Tensor]:
    """The maps of a network in order, and what they give; no chain is refused by name."""
    with evaluation(model), torch.no_grad():
        run = recorded(model, x)
    if len(run.sources) != 1:
        raise ValueError(f"x must be one tensor, got {len(run.sources)}")
    chain: list[Affine | Between] = []
    last, end = run.sources[0].index, run.sources[0].tensor
    for call in run.calls:
        values = [v for v in call.outputs if v is not None]
        if call.name in ("size", "dim", "__len__") or not values:
            continue
        if len(call.tensors) != 1 or call.tensors[0].index != last or len(values) != 1:
            raise _refused(call)
        chain.append(_read(call, values[0].tensor))
        last, end = values[0].index, values[0].tensor
    if not any(isinstance(map_, Affine) for map_ in chain):
        raise ValueError("model must have a layer with weights, got none")
    return chain, end


def _read(call: Call, out: Tensor) -> Affine | Between:
    source = call.tensors[0].tensor
    shapes = tuple(source.shape[1:]), tuple(out.shape[1:])
    rest = [a for a in (*call.args, *call.kwargs.values()) if isinstance(a, Tensor)]
    if call.name == "linear":
        return Affine(call.path, "linear", rest[0], rest[1] if rest[1:] else None, None, *shapes)
    if call.name in ("conv1d", "conv2d", "conv3d"):
        layer = call.module
        if not isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            raise _refused(call)
        return Affine(call.path, "conv", layer.weight, layer.bias, layer, *shapes)
    if call.name == "batch_norm" and isinstance(call.module, nn.modules.batchnorm._BatchNorm):
        return _scaling(call, call.module, shapes)
    if call.name in _SAME:
        return Between(call.path, call.name, 1.0, True, True)
    if call.name in _UNITS:
        numbers = [a for a in (*call.args, *call.kwargs.values()) if type(a) in (int, float)]
        known = call.name in ("elu", "leaky_relu")  # whose only number is a slope
        rho = max(_UNITS[call.name], *map(abs, numbers if known else []), 0.0)
        zero = not bool(call.bind()(torch.zeros_like(source)).any())
        return Between(call.path, call.name, rho, call.name in _HOMOGENEOUS, zero)
    return _pooling(call, source, out)


def _pooling(call: Call, source: Tensor, out: Tensor) -> Between:
    axes = source.ndim - 2
    sizes = list(zip(source.shape[2:], out.shape[2:], strict=False))
    if call.name.startswith("adaptive_avg_pool") and all(b == 1 for _, b in sizes):
        return Between(call.path, call.name, math.prod(source.shape[2:]) ** -0.5, False, True)
    layer: Any = call.module
    kind = "max" if "max_pool" in call.name else "avg" if "avg_pool" in call.name else ""
    if not kind or call.name.startswith("adaptive") or not hasattr(layer, "kernel_size"):
        raise _refused(call)
    if kind == "max" and layer.dilation not in (1, (1,) * axes):
        raise _refused(call, f" with dilation={layer.dilation}")
    if kind == "avg" and layer.divisor_override is not None if axes > 1 else False:
        raise _refused(call, " with divisor_override")
    kernel, stride = (
        (v,) * axes if isinstance(v, int) else tuple(v) for v in (layer.kernel_size, layer.stride)
    )
    overlap = math.prod(math.ceil(k / s) for k, s in zip(kernel, stride, strict=True))
    if kind == "max":
        return Between(call.path, call.name, overlap**0.5, False, True)
    inside = layer.count_include_pad and not layer.ceil_mode
    window = math.prod(kernel) if inside else 1  # else a window may hold few entries
    return Between(call.path, call.name, (overlap / window) ** 0.5, False, True)


def _scaling(call: Call, layer: Any, shapes: tuple[Any, Any]) -> Affine:
    if layer.running_var is None:
        raise _refused(call, " without running statistics")
    scale = (layer.running_var + layer.eps).rsqrt()
    scale = scale if layer.weight is None else scale * layer.weight
    shift = -layer.running_mean * scale
    shift = shift if layer.bias is None else shift + layer.bias
    return Affine(call.path, "scale", scale.detach(), shift.detach(), None, *shapes)


def _refused(call: Call, how: str = "") -> ValueError:
    return ValueError(
        "model must be a chain of linear layers, convolutions, batch normalisations, activations"
        f" and pooling, got {call.name}{how} in {call.place}"
    )
