r"""Orders of units that bring activations next to another network's.

For the units $i$ of the one network and $j$ of the other, with $z$ their values over all examples
and positions,

$$S_{ij} = \sum_k \operatorname{corr}(z^a_{ki}, z^b_{kj}),$$

a sum over the places $k$ of the graph where the units are seen (before and behind a nonlinearity,
say). Each group is an assignment problem of its own: no other group counts. Units that never change
have the correlation 0 with all.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.generalization.alignment._assignments import best_assignment
from vademecum.generalization.alignment._traced_units import traced_units

__all__ = ["by_activations"]


def by_activations(a: nn.Module, b: nn.Module, batches: Iterable[Any]) -> list[Tensor]:
    """The order of each group of units whose activations correlate most, over all batches."""
    sums: list[list[_Moments]] = []
    for x in batches:
        ours, theirs = traced_units(a, x), traced_units(b, x)
        if not sums:
            sums = [[_Moments() for _ in values] for values in ours.values]
        for group, one, other in zip(sums, ours.values, theirs.values, strict=True):
            for moments, z_a, z_b in zip(group, one, other, strict=True):
                moments.add(z_a, z_b)
    orders = []
    for group in sums:
        orders.append(best_assignment(torch.stack([m.correlation() for m in group]).sum(0)))
    return orders


class _Moments:
    """Sums of two sets of variables, their squares and products, around a first guess of means."""

    def __init__(self):
        self._n, self._origins = 0, None
        self._sums: list[Tensor] = []

    def add(self, one: Tensor, other: Tensor) -> None:
        if self._origins is None:
            self._origins = [z.double().mean(1, keepdim=True) for z in (one, other)]
        u, v = (z.double() - o for z, o in zip((one, other), self._origins, strict=True))
        new = [u.sum(1), v.sum(1), u.square().sum(1), v.square().sum(1), u @ v.T]
        self._sums = [s + t for s, t in zip(self._sums, new, strict=True)] if self._n else new
        self._n += u.shape[1]

    def correlation(self) -> Tensor:
        u, v, uu, vv, uv = (s / self._n for s in self._sums)
        spread = (uu - u**2).clamp(min=0)[:, None].sqrt() * (vv - v**2).clamp(min=0).sqrt()
        return torch.where(spread > 0, (uv - u[:, None] * v) / spread, 0.0)
