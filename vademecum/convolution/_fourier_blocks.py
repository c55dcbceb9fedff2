r"""Singular values of convolutions that repeat themselves, from one small matrix a frequency.

A layer with stride $s$ on a signal of $n = s m$ entries that repeats itself computes
$y_r[u] = \sum_{q,t} w_{rq}[t]\, x_q[(s u + d t - p) \bmod n]$. In the orthonormal bases of waves
$e^{2 \pi i f t / n} / \sqrt n$ and $e^{2 \pi i \omega u / m} / \sqrt m$ the frequency $\omega$ of
the output meets the $s$ frequencies $f \equiv \omega$ modulo $m$ of the input, and no others:

$$B_\omega = \frac{1}{\sqrt s} \Big[ \sum_t w[t]\, e^{2 \pi i d t f / n} \Big]_{f \equiv \omega} ,$$

a matrix with a row for each output channel and a column for each input channel and such $f$ (the
padding $p$ only turns phases). The singular values of the layer are those of all $B_\omega$. Real
weights have $B_{-\omega} = \overline{B_\omega}$, so half of the frequencies are enough. Windows
that do not overlap share no input: the kernel as a matrix says it all, once for each position.

References:
    Sedghi, Gupta and Long, The singular values of convolutional layers, ICLR, 2019.
"""

import math

import torch
from torch import Tensor

from vademecum.arrays import portions
from vademecum.convolution._layer_geometry import Geometry

__all__ = ["all_singular_values", "has_blocks"]

_AT_ONCE = 2**27  # bytes of blocks to make at a time where there is no limit
_SMALL = 256  # rows: an H200 took 1.5 ms for each matrix of 64, LAPACK on one core 0.4


def has_blocks(g: Geometry) -> bool:
    """Whether the layer falls apart into small matrices."""
    return g.weight is not None and g.kind == "conv" and (_disjoint(g) or _repeats(g))


def _disjoint(g: Geometry) -> bool:
    """Whether no two windows share an input, and none shows padding."""
    bare = not any(map(any, g.pads))
    return bare and all(span <= s for span, s in zip(g.spans, g.stride, strict=True))


def _repeats(g: Geometry) -> bool:
    """Whether the outputs are all those of a signal that repeats itself."""
    sizes = zip(g.source[1:], g.target[1:], g.stride, strict=True)
    return g.mode == "circular" and all(n == s * m for n, m, s in sizes)


def all_singular_values(g: Geometry, memory: int | None) -> Tensor:
    """All singular values in descending order, as many as the matrix has rows or columns."""
    assert g.weight is not None
    out, each = g.weight.shape[0] // g.groups, g.weight.shape[1]
    weight = g.weight.reshape(g.groups, out, each, -1)  # groups, maps, channels, taps
    if _disjoint(g):
        found = _svdvals(weight.flatten(2)).flatten()
        values = found.repeat(math.prod(g.target[1:]))
    else:
        values = _by_frequency(g, weight, memory)
    count = min(math.prod(g.source), math.prod(g.target))
    values = values.sort(descending=True).values
    missing = count - len(values)  # columns or rows of zeros
    return torch.cat((values, values.new_zeros(missing))) if missing > 0 else values[:count]


def _by_frequency(g: Geometry, weight: Tensor, memory: int | None) -> Tensor:
    omega, twice = _frequencies(g, half=not weight.is_complex())
    aliases = math.prod(g.stride)
    bytes_each = 2 * weight.element_size() // (2 if weight.is_complex() else 1)
    each = 2 * aliases * math.prod(weight.shape[:3]) * bytes_each  # the block, and its work space
    if memory is not None and each > memory:
        raise ValueError(f"memory must be at least the {each} bytes of one frequency, got {memory}")
    limit = _AT_ONCE if memory is None else memory
    found = []
    for here in portions(len(omega), each=each, memory=limit):
        values = _svdvals(_blocks(g, weight, omega[here]))
        found += [values.flatten(), values[twice[here]].flatten()]
    return torch.cat(found)


def _svdvals(matrices: Tensor) -> Tensor:
    """Singular values of many small matrices, by the processor: a GPU takes them one by one."""
    small = matrices.is_cuda and max(matrices.shape[-2:]) <= _SMALL
    return torch.linalg.svdvals(matrices.cpu() if small else matrices).to(matrices.device)


def _frequencies(g: Geometry, *, half: bool) -> tuple[Tensor, Tensor]:
    """Frequencies of the output, one row each, and which of them stand for their negative too."""
    m = torch.tensor(g.target[1:], device=g.device)
    omega = torch.cartesian_prod(*(torch.arange(n, device=g.device) for n in g.target[1:]))
    omega = omega.view(-1, g.axes)
    place = torch.tensor([math.prod(g.target[i + 2 :]) for i in range(g.axes)], device=g.device)
    mirror = (((-omega) % m) * place).sum(1) - (omega * place).sum(1)
    if not half:
        return omega, torch.zeros_like(mirror, dtype=torch.bool)
    return omega[mirror >= 0], mirror[mirror >= 0] > 0


def _blocks(g: Geometry, weight: Tensor, omega: Tensor) -> Tensor:
    """The matrices of some frequencies: frequencies, groups, maps, channels times aliases."""
    shifts = torch.cartesian_prod(*(torch.arange(s, device=g.device) for s in g.stride))
    target = torch.tensor(g.target[1:], device=g.device)
    f = omega[:, None] + shifts.view(-1, g.axes) * target  # frequencies, aliases, axes
    phase = torch.zeros(*f.shape[:2], *g.kernel, dtype=torch.float64, device=g.device)
    for axis, (n, k, d) in enumerate(zip(g.source[1:], g.kernel, g.dilation, strict=True)):
        turns = (f[:, :, axis, None] * torch.arange(k, device=g.device) * d) % n
        shape = [1] * axis + [k] + [1] * (g.axes - axis - 1)
        phase = phase + (turns.double() / n).view(*f.shape[:2], *shape)
    angle = 2 * math.pi * phase.flatten(2)
    scale = math.prod(g.stride) ** -0.5
    wave = torch.polar(torch.full_like(angle, scale), angle)
    wave = wave.to(weight.dtype.to_complex())
    blocks = torch.einsum("fat,grct->fgrca", wave, weight.to(wave.dtype))
    return blocks.flatten(3)
