r"""Gradients of a convolution, written as convolutions.

torch's layer is the correlation $y_{o,q} = \sum_{c,t} w_{o,c,t}\, x_{c,\,sq + dt - p}$ with stride
$s$, dilation $d$ and padding $p$; positions $q$, $t$ are multi-indices in one to three dimensions.
With the upstream gradient $g = \partial R / \partial y$,

$$\frac{\partial R}{\partial w_{o,c,t}} = \sum_q g_{o,q}\, x_{c,\,sq + dt - p}, \qquad
\frac{\partial R}{\partial x_{c,j}} = \sum_{o,q,t:\, sq + dt - p = j} g_{o,q}\, w_{o,c,t}:$$

the first correlates the input with $g$, stride and dilation exchanging their roles, and sums over
the batch; the second correlates $g$, with $s - 1$ zeros between its entries, with the kernel
rotated by 180 degrees and padded by $d(k-1) - p$. For a true convolution $y = x * w$, that is a
correlation with the rotated kernel, a rotation of $w$ moves to the result. Exact to rounding; both
functions call nothing but torch's forward convolution.

References:
    Dumoulin and Visin, A guide to convolution arithmetic for deep learning, 2016.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from vademecum.arguments import floats, whole

__all__ = ["conv_input_grad", "conv_weight_grad"]

Size = int | Sequence[int]


def conv_weight_grad(
    x: Float[Tensor, " batch channels *n"],
    upstream: Float[Tensor, " batch maps *m"],
    kernel_size: Size,
    *,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Float[Tensor, " maps channels_of_group *k"]:
    r"""The gradient in the kernel: the input correlated with the upstream gradient.

    Args:
        x: The layer's input, with one, two or three spatial axes.
        upstream: The gradient $g$ of the risk in the layer's output.
        kernel_size: The spatial size of the kernel, one number or one for each axis.
        stride: As in the layer, like the next three.
        padding: The zeros on either side.
        dilation: The distance between neighbouring taps.
        groups: The number of blocks of channels that do not mix.

    Raises:
        ValueError: If the shapes do not belong to one convolution.

    Example:
        >>> x, g = torch.tensor([[[1.0, 2.0, 4.0]]]), torch.tensor([[[1.0, 10.0]]])
        >>> conv_weight_grad(x, g, 2)
        tensor([[[21., 42.]]])
    """
    g = floats("upstream", upstream)
    n, k, s, p, d = _geometry(floats("x", x), g, kernel_size, stride, padding, dilation)
    _fit(n, k, s, p, d, g)
    if len(g) != len(x):
        raise ValueError(f"upstream must have {len(x)} examples, got shape {tuple(g.shape)}")
    channels, maps = _blocks("x", x.shape[1], groups), _blocks("upstream", g.shape[1], groups)
    images = x.reshape(len(x), groups, channels, *n).transpose(0, 2).flatten(1, 2)
    taps = g.reshape(len(g), groups, maps, *g.shape[2:]).movedim(0, 2).flatten(0, 1)
    span = [(m - 1) * s + (k - 1) * d + 1 for m, k, s, d in zip(g.shape[2:], k, s, d, strict=True)]
    right = [a - p - n for a, p, n in zip(span, p, n, strict=True)]
    images = _pad(images, p, right)
    return _convolution(x)(images, taps, stride=d, dilation=s, groups=groups).transpose(0, 1)


def conv_input_grad(
    weight: Float[Tensor, " maps channels_of_group *k"],
    upstream: Float[Tensor, " batch maps *m"],
    input_size: Size,
    *,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Float[Tensor, " batch channels *n"]:
    r"""The gradient in the input: the upstream gradient correlated with the rotated kernel.

    Args:
        weight: The kernel.
        upstream: The gradient $g$ of the risk in the layer's output.
        input_size: The spatial size of the input, which a stride leaves open; one number or one
            for each axis.
        stride: As in the layer, like the next three.
        padding: The zeros on either side.
        dilation: The distance between neighbouring taps.
        groups: The number of blocks of channels that do not mix.

    Raises:
        ValueError: If the shapes do not belong to one convolution.

    Example:
        >>> w, g = torch.tensor([[[1.0, 2.0]]]), torch.tensor([[[1.0, 10.0]]])
        >>> conv_input_grad(w, g, 3)
        tensor([[[ 1., 12., 20.]]])
    """
    g = floats("upstream", upstream)
    k, n, s, p, d = _geometry(floats("weight", weight), g, input_size, stride, padding, dilation)
    _fit(n, k, s, p, d, g)
    if g.shape[1] != len(weight):
        raise ValueError(f"upstream must have {len(weight)} maps, got shape {tuple(g.shape)}")
    maps = _blocks("weight", len(weight), groups)
    kernel = weight.reshape(groups, maps, *weight.shape[1:]).transpose(1, 2).flatten(0, 1)
    kernel = kernel.flip(tuple(range(2, kernel.ndim)))
    wide = [(m - 1) * s + 1 for m, s in zip(g.shape[2:], s, strict=True)]
    stuffed = g.new_zeros(*g.shape[:2], *wide)
    stuffed[(..., *(slice(None, None, step) for step in s))] = g
    left = [d * (k - 1) - p for d, k, p in zip(d, k, p, strict=True)]
    right = [n + d * (k - 1) - a - b for n, d, k, a, b in zip(n, d, k, left, wide, strict=True)]
    return _convolution(g)(_pad(stuffed, left, right), kernel, dilation=d, groups=groups)


def _geometry(x: Tensor, g: Tensor, size: Size, *knobs: Size) -> list[list[int]]:
    """The spatial shape of `x`, then `size`, stride, padding and dilation for each axis."""
    axes = x.ndim - 2
    if not 1 <= axes <= 3 or g.ndim != x.ndim:
        raise ValueError(
            "a convolution has one to three spatial axes after batch and channels, got the shapes"
            f" {tuple(x.shape)} and {tuple(g.shape)}"
        )
    found = [list(x.shape[2:])]
    for name, value in zip(("size", "stride", "padding", "dilation"), (size, *knobs), strict=True):
        each = list(value) if isinstance(value, Sequence) else [value] * axes
        if len(each) != axes:
            raise ValueError(f"{name} must have {axes} entries, got {value}")
        found.append([whole(name, v, low=0 if name == "padding" else 1) for v in each])
    return found


def _fit(n: list[int], k: list[int], s: list[int], p: list[int], d: list[int], g: Tensor) -> None:
    axes = zip(n, k, s, p, d, strict=True)
    m = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in axes)
    if m != g.shape[2:]:
        raise ValueError(f"upstream must have the spatial size {m}, got shape {tuple(g.shape)}")


def _blocks(name: str, channels: int, groups: int) -> int:
    if channels % whole("groups", groups, low=1):
        raise ValueError(f"groups must divide the {channels} channels of {name}, got {groups}")
    return channels // groups


def _pad(x: Tensor, left: list[int], right: list[int]) -> Tensor:
    """Zeros before and after each spatial axis; negative numbers cut."""
    sides = zip(reversed(left), reversed(right), strict=True)
    return F.pad(x, [width for side in sides for width in side])


def _convolution(x: Tensor):
    return {3: torch.conv1d, 4: torch.conv2d, 5: torch.conv3d}[x.ndim]
