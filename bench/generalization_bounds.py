"""Rows of the room `generalization`: inverse divergences and VC dimensions."""

import math
from collections.abc import Iterator
from functools import partial
from itertools import combinations

import torch
from scipy.optimize import brentq
from torch import Tensor

from bench.harness import Row, Skipped
from vademecum.generalization import VCDimension, kl_inverse, vc_dimension

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    g = torch.Generator().manual_seed(0)
    n = 2_000
    q, c = (torch.rand(2, n, generator=g).double() * 0.98 + 0.01).to(device)
    yield Row(
        f"kl inverse of {n:,} risks",
        partial(kl_inverse, q, c, side="upper"),
        {"SciPy's brentq, one by one": partial(_brentq, q, c), "bisection": partial(_halved, q, c)},
        _same,
    )
    if device.type == "cpu":
        values = torch.randint(2, (300, 14), generator=g)
        yield Row(
            "VC dimension of 300 functions on 14 points",
            partial(vc_dimension, values),
            {"all sets of points": partial(_brute, values)},
            _same_dimension,
        )


def _kl(q: float, p: float) -> float:
    return q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p))


def _brentq(q: Tensor, c: Tensor) -> Tensor:
    found = []
    for a, b in zip(q.tolist(), c.tolist(), strict=True):
        top = 1 - 1e-15
        missing = _kl(a, top) <= b
        found.append(1.0 if missing else brentq(lambda p, a=a, b=b: _kl(a, p) - b, a, top))
    return torch.tensor(found, dtype=torch.float64, device=q.device)


def _halved(q: Tensor, c: Tensor) -> Tensor:
    """Bisection in 50 halvings, all at once: the last midpoint, as certificates often have it."""
    low, high = q.clone(), torch.ones_like(q)
    for _ in range(50):
        p = (low + high) / 2
        above = q * (q / p).log() + (1 - q) * ((1 - q) / (1 - p)).log() > c
        low, high = torch.where(above, low, p), torch.where(above, p, high)
    return (low + high) / 2


def _same(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


def _brute(values: Tensor) -> int:
    rows, m = {tuple(row) for row in values.tolist()}, values.shape[1]
    best = 0
    for k in range(1, len(rows).bit_length()):
        if not any(
            len({tuple(row[i] for i in each) for row in rows}) == 2**k
            for each in combinations(range(m), k)
        ):
            return best
        best = k
    return best


def _same_dimension(ours: VCDimension, theirs: int) -> None:
    assert ours.value == theirs, (ours, theirs)
