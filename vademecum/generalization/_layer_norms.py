r"""Norms of affine maps: the operator norm of a convolution, and an upper bound that is proven.

A convolution of an input with zeros around it is a part of the circular one on a torus that holds
the padded input: rows and columns are left out. So its norm is at most $\max_\omega \|\hat
K(\omega)\|_2$ over the frequencies of that torus, whatever the stride. And each entry of the input
is in at most $o$ windows, so that the norm is at most $\sqrt o$ times that of the kernel as a
matrix. The lesser of the two is the upper bound; from below, a Krylov space attains its value.
Norms of other layers are exact up to rounding.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call

from vademecum.convolution import conv_singular_values
from vademecum.generalization._network_chain import Affine
from vademecum.results import one_line

__all__ = ["LayerNorms", "layer_norms"]

_MOST = 2e10  # operations that the frequencies of a torus may take, some ten seconds
_ROUNDING = 1 + 1e-9  # of norms in double precision


class LayerNorms(NamedTuple):
    """Norms of one affine map as a matrix, at the size of its input.

    Example:
        >>> from vademecum.generalization import norm_bounds
        >>> layer = nn.Linear(2, 2)
        >>> layer.weight.data = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
        >>> found = norm_bounds(layer, torch.eye(2), torch.tensor([0, 1])).layers[0]
        >>> found.spectral, found.frobenius, found.rows
        (4.0, 5.0, 7.0)
    """

    path: str
    """Where the layer is in the model."""
    kind: str
    """What it is: "linear", "conv" or "scale", a batch normalisation."""
    shape: tuple[int, int]
    """The shape of the matrix."""
    spectral: float
    """The operator norm: exact up to rounding, or for a convolution what iteration attained."""
    spectral_high: float
    """What the operator norm is at most, for certain."""
    frobenius: float
    """The Frobenius norm of the matrix, in which weights of a convolution are repeated."""
    rows: float
    """The sum of the lengths of its rows."""
    bias: float
    """The length of the bias, repeated as the weights are; 0 without one."""

    __repr__ = one_line


def layer_norms(layer: Affine, generator: torch.Generator | None = None) -> LayerNorms:
    """The norms of one map, in double precision."""
    lengths = row_lengths(layer)
    shape = math.prod(layer.target), math.prod(layer.source)
    weight = layer.weight.detach().double()
    if layer.kind == "conv":
        low, high = _convolution(layer, generator)
    elif layer.kind == "linear":
        low = float(torch.linalg.matrix_norm(weight, 2))
        high = low * _ROUNDING
    else:
        low = float(weight.abs().max())
        high = low
    repeats = shape[0] // len(weight)
    bias = 0.0 if layer.bias is None else float(layer.bias.detach().double().norm()) * repeats**0.5
    total = float(lengths.square().sum().sqrt())
    return LayerNorms(layer.path, layer.kind, shape, low, max(low, high), total,
                      float(lengths.sum()), bias)  # fmt: skip


def row_lengths(layer: Affine) -> Tensor:
    """The lengths of the rows of the matrix, in the order of the outputs."""
    weight = layer.weight.detach().double()
    if layer.kind == "linear":
        return weight.norm(dim=1).repeat(math.prod(layer.target[:-1]))
    if layer.kind == "scale":
        return weight.abs().repeat_interleave(math.prod(layer.target[1:]))
    assert layer.module is not None
    ones = torch.ones(1, *layer.source, dtype=torch.float64, device=weight.device)
    parts = {"weight": weight.square()}
    if layer.bias is not None:
        parts["bias"] = torch.zeros_like(layer.bias, dtype=torch.float64)
    with torch.no_grad():
        squares = functional_call(layer.module, parts, (ones,))
    return squares.flatten().sqrt()


def _convolution(layer: Affine, generator: torch.Generator | None) -> tuple[float, float]:
    """The norm that iteration attains, and one that is proven to be enough."""
    conv = layer.module
    assert isinstance(conv, torch.nn.Conv1d | torch.nn.Conv2d | torch.nn.Conv3d)
    with torch.no_grad():
        found = conv_singular_values(conv, layer.source, k=1, generator=generator)
    low = float(found.values[0])
    if found.exact:
        return low, low * (1 + 1e4 * torch.finfo(conv.weight.dtype).eps)
    weight = conv.weight.detach().double()
    spans = [d * (k - 1) + 1 for d, k in zip(conv.dilation, conv.kernel_size, strict=True)]
    overlap = math.prod(  # entries of a kernel that meet one of the input are s / gcd(s, d) apart
        math.ceil(k * math.gcd(s, d) / s)
        for k, s, d in zip(conv.kernel_size, conv.stride, conv.dilation, strict=True)
    )
    groups = weight.unflatten(0, (conv.groups, -1))
    flat = float(torch.linalg.matrix_norm(groups.flatten(2), 2).max())
    high = overlap**0.5 * flat
    sizes = [(o - 1) * s + span for o, s, span in zip(layer.target[1:], conv.stride, spans,
                                                      strict=True)]  # fmt: skip
    cost = math.prod(sizes) * weight[0].numel() / math.prod(conv.kernel_size) * len(weight)
    if cost * min(weight.shape[:2]) <= _MOST:
        high = min(high, _on_torus(groups, sizes, conv.dilation))
    return low, high * _ROUNDING


def _on_torus(kernel: Tensor, sizes: list[int], dilation: tuple[int, ...]) -> float:
    """The largest norm over frequencies of a kernel (groups, out, in, ...) on a torus."""
    spread = torch.zeros(*kernel.shape[:3], *sizes, dtype=torch.float64, device=kernel.device)
    places = [slice(0, d * (k - 1) + 1, d) for d, k in zip(dilation, kernel.shape[3:],
                                                           strict=True)]  # fmt: skip
    spread[(slice(None),) * 3 + tuple(places)] = kernel
    axes = tuple(range(3, spread.ndim))
    blocks = torch.fft.rfftn(spread, dim=axes).flatten(3).movedim(-1, 0)
    return float(torch.linalg.matrix_norm(blocks, 2).max())
