"""Signals of whole numbers, and sums over them as they are defined: in Python's integers."""

from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vademecum.claims import integers

__all__ = ["by_definition", "correlation_by_definition", "crooked", "flipped", "gauss", "whole"]


def whole(*shape: int, most: int = 9) -> Tensor:
    """Random integers from -most to most."""
    return integers(*shape, most=most).long()


def crooked(*shape: int) -> Tensor:
    """Random integers that are no mirror image of themselves: the last is larger than the first."""
    found = whole(*shape)
    found.view(-1)[-1] = found.view(-1)[0].abs() + 7
    return found


def by_definition(f: Tensor, h: Tensor) -> Tensor:
    r"""The full convolution $\sum_t f[t] h[u - t]$, for every u where the sum is not empty."""
    shape = [a + b - 1 for a, b in zip(f.shape, h.shape, strict=True)]
    return _sums(f, h, shape, [0] * f.ndim, -1)


def correlation_by_definition(f: Tensor, h: Tensor) -> Tensor:
    r"""$\sum_t f[t] h[u + t]$ for every u where it is not empty, from $1 - \mathrm{len} f$ on."""
    shape = [a + b - 1 for a, b in zip(f.shape, h.shape, strict=True)]
    return _sums(f, h, shape, [1 - a for a in f.shape], 1)


def _sums(f: Tensor, h: Tensor, shape: list[int], first: list[int], sign: int) -> Tensor:
    signal = {t: v for t, v in _entries(f) if v}
    kernel = dict(_entries(h))
    values = []
    for place in product(*map(range, shape)):
        u = [i + a for i, a in zip(place, first, strict=True)]
        at = (
            (tuple(i + sign * s for i, s in zip(u, t, strict=True)), v) for t, v in signal.items()
        )
        values.append(sum(v * kernel.get(where, 0) for where, v in at))
    return torch.tensor(values).view(shape)


def _entries(x: Tensor) -> list[tuple[tuple[int, ...], Any]]:
    values = x.resolve_conj().numpy()
    return [(place, values[place].item()) for place in np.ndindex(*x.shape)]


def flipped(x: Tensor) -> Tensor:
    """The entries in reversed order along every axis, by NumPy."""
    return torch.from_numpy(np.flip(x.numpy()).copy())


@lru_cache
def _legendre(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(nodes)


def gauss(low: float, high: float, nodes: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of Gauss and Legendre on an interval."""
    t, w = _legendre(nodes)
    return low + (high - low) * (t + 1) / 2, w * (high - low) / 2
