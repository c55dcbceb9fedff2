r"""Activations and convolutions of covariances between all positions, each as one kernel of Triton.

A program has a row: a pair of inputs and a position of the first of them, with all positions of the
second. Each number is read and written once from the device's memory (taps come from its cache),
where operations of torch one by one would take some seven times as many bytes. Single precision, on
CUDA; everywhere else torch's operations do the same.
"""

from __future__ import annotations  # without Triton there are no names for the annotations

from typing import TYPE_CHECKING, no_type_check

import torch
from torch import Tensor

from vademecum.arrays.triton_code import has_triton, jit, libdevice, power_of_two, tl

if TYPE_CHECKING:
    from vademecum.kernels.wide._positions import Taps

__all__ = ["activated", "applies", "convolved"]

_ROW = 4096  # positions that a program holds at most


def applies(k: Tensor) -> bool:
    """Whether there are kernels for a block (a, b, h, w, h, w)."""
    if not has_triton() or not k.is_cuda or k.dtype != torch.float32 or k.ndim != 6:
        return False
    return k.is_contiguous() and k.shape[2:4].numel() <= _ROW


def activated(
    k: Tensor, theta: Tensor | None, q: Tensor, p: Tensor, a: float, b: float, snap: float
) -> tuple[Tensor, Tensor | None]:
    """Covariances and tangent kernels after a u + b abs(u); the latter over 2 b^2 / pi.

    Args:
        k: Covariances.
        theta: Tangent kernels, if they are wanted.
        q: Variances of the first inputs, (a, positions).
        p: Variances of the second ones, (b, positions).
        a: The square of a over 2 b^2 / pi.
        b: 2 b^2 / pi.
        snap: What correlations are multiplied by before they are cut to 1.
    """
    n, m = k.shape[:2]
    size = k.shape[2:4].numel()
    out, tangent = torch.empty_like(k), None if theta is None else torch.empty_like(k)
    with torch.cuda.device(k.device):
        _activate[(n * m * size,)](
            k, k if theta is None else theta.contiguous(), out, out if tangent is None else tangent,
            q.contiguous(), p.contiguous(), a, b, snap, size, m,
            TANGENT=theta is not None, BLOCK=power_of_two(size),
        )  # fmt: skip
    return out, tangent


def convolved(
    k: Tensor,
    theta: Tensor | None,
    taps: tuple[Taps, ...],
    weight: float,
    factors: tuple[float, float],
    biases: tuple[float, float],
) -> tuple[Tensor, Tensor | None]:
    """Covariances and tangent kernels after a convolution.

    Args:
        k: Covariances.
        theta: Tangent kernels, if there are any.
        taps: Those of both axes.
        weight: The variance of a weight over the number of taps.
        factors: Of covariances and of tangent kernels in the sum that gives tangent kernels.
        biases: What is added to covariances and to tangent kernels.
    """
    n, m, h, w = k.shape[:4]
    high, wide = (t.length(s) for t, s in zip(taps, (h, w), strict=True))
    out = k.new_empty(n, m, high, wide, high, wide)
    tangent = None if theta is None else torch.empty_like(out)
    geometry = [(t.stride, t.padding[0], t.dilation) for t in taps]
    with torch.cuda.device(k.device):
        _convolve[(n * m * high * wide,)](
            k, k if theta is None else theta.contiguous(), out, out if tangent is None else tangent,
            weight, *factors, *biases, h, w, high, wide,
            *geometry[0], *geometry[1],
            TANGENT=theta is not None, TALL=taps[0].size, BROAD=taps[1].size,
            BLOCK=power_of_two(high * wide),
        )  # fmt: skip
    return out, tangent


@jit
@no_type_check
def _activate(
    k, theta, out, tangent, q, p, a, b, snap, P, B, TANGENT: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    pair = row // P
    j = tl.arange(0, BLOCK)
    inside = j < P
    mine = tl.load(q + (pair // B) * P + row % P)
    its = tl.load(p + (pair % B) * P + j, mask=inside, other=0.0)
    r, s = tl.sqrt(mine), tl.sqrt(its)
    c = tl.load(k + row * P + j, mask=inside, other=0.0)
    c = c * (tl.where(mine > 0, 1.0 / r, 0.0) * snap) * tl.where(its > 0, 1.0 / s, 0.0)
    c = tl.minimum(tl.maximum(c, -1.0), 1.0)
    slope = libdevice.asin(c) + a
    value = (tl.sqrt(1.0 - c * c) + c * slope) * (r * b) * s
    tl.store(out + row * P + j, value, mask=inside)
    if TANGENT:
        t = tl.load(theta + row * P + j, mask=inside, other=0.0)
        tl.store(tangent + row * P + j, t * slope, mask=inside)


@jit
@no_type_check
def _convolve(
    k, theta, out, tangent, weight, of_k, of_theta, bias, shift, H, W, HIGH, WIDE,
    tall_stride, tall_pad, tall_dilation, broad_stride, broad_pad, broad_dilation,
    TANGENT: tl.constexpr, TALL: tl.constexpr, BROAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    P = HIGH * WIDE
    pair, here = row // P, row % P
    j = tl.arange(0, BLOCK)
    inside = j < P
    x = tl.zeros((BLOCK,), tl.float32)
    t = tl.zeros((BLOCK,), tl.float32)
    for a in tl.static_range(TALL):
        y1 = (here // WIDE) * tall_stride - tall_pad + a * tall_dilation
        y2 = (j // WIDE) * tall_stride - tall_pad + a * tall_dilation
        for b in tl.static_range(BROAD):
            x1 = (here % WIDE) * broad_stride - broad_pad + b * broad_dilation
            x2 = (j % WIDE) * broad_stride - broad_pad + b * broad_dilation
            seen = (y1 >= 0) & (y1 < H) & (x1 >= 0) & (x1 < W)
            seen = seen & (y2 >= 0) & (y2 < H) & (x2 >= 0) & (x2 < W) & inside
            at = ((pair * H + y1) * W + x1) * (H * W) + y2 * W + x2
            v = tl.load(k + at, mask=seen, other=0.0)
            x += v
            if TANGENT:
                t += v * of_k + tl.load(theta + at, mask=seen, other=0.0) * of_theta
    tl.store(out + row * P + j, x * weight + bias, mask=inside)
    if TANGENT:
        tl.store(tangent + row * P + j, t * weight + shift, mask=inside)
