"""Rows of passes as numbers that add up, and the rows of the result that they come to."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.regularization.signal._maps import Estimate
from vademecum.regularization.signal._measured_moments import moments_of
from vademecum.regularization.signal.rows import SignalPrediction, SignalRow

__all__ = ["PassRow", "added", "finished"]

_POWERS = (0, 2, 4, 1, 2, 3, 0, 0, 0)  # of the scale of a signal, in the sums of its moments


class PassRow(NamedTuple):
    """A row of one pass, as numbers that add up, weighted by examples."""

    name: str
    kind: str
    shape: tuple[int, ...]
    note: str
    sums: list[float]
    gradient: list[float] | None
    low: Tensor | None
    high: Tensor | None
    flat: float | None
    predicted: Estimate | None
    predicted_backward: Estimate | None


def added(one: list[PassRow], other: list[PassRow]) -> list[PassRow]:
    """Two passes as one."""
    if [(r.name, r.kind) for r in one] != [(r.name, r.kind) for r in other]:
        raise ValueError("model must make the same calls for each portion of x")
    return [_both(a, b) for a, b in zip(one, other, strict=True)]


def _both(a: PassRow, b: PassRow) -> PassRow:
    u, v = (r.sums[0] for r in (a, b))
    sums = [x + y for x, y in zip(a.sums, b.sums, strict=True)]
    gradient = None
    if a.gradient is not None and b.gradient is not None:
        gradient = [x + y for x, y in zip(a.gradient, b.gradient, strict=True)]
    means = [
        None if s is None or t is None else _mean(a.sums, b.sums, s, t)
        for s, t in ((a.predicted, b.predicted), (a.predicted_backward, b.predicted_backward))
    ]
    low = high = flat = None
    if a.low is not None and b.low is not None and a.high is not None and b.high is not None:
        low, high = torch.minimum(a.low, b.low), torch.maximum(a.high, b.high)
    if a.flat is not None and b.flat is not None:
        flat = (u * a.flat + v * b.flat) / (u + v)
    return PassRow(a.name, a.kind, a.shape, a.note, sums, gradient, low, high, flat, *means)


def _mean(sums: list[float], others: list[float], s: Estimate, t: Estimate) -> Estimate:
    """The mean of two estimates over examples, of products over those that are in pairs."""
    u, v, one, two = sums[0], others[0], sums[6], others[6]
    q, m = ((u * x + v * y) / (u + v) for x, y in ((s.q, t.q), (s.m, t.m)))
    pairs = one + two
    return Estimate(q, (one * s.p + two * t.p) / pairs if pairs else q, m)


def finished(rows: list[PassRow], scale: float = 1.0) -> list[SignalRow]:
    """The rows with moments instead of sums.

    Args:
        rows: Those of all passes together.
        scale: What gradients are to be divided by.
    """
    calls: dict[tuple[str, str], int] = {}
    made: list[SignalRow] = []
    for r in rows:
        call = calls[r.name, r.kind] = calls.get((r.name, r.kind), -1) + 1
        several = r.sums[6] > 1
        back, guess = r.gradient, r.predicted_backward
        if back is not None:
            back = moments_of([s / scale**k for s, k in zip(back, _POWERS, strict=True)])
        if guess is not None:
            guess = Estimate(guess.q / scale**2, guess.p / scale**2, 0.0)
        dead = None if r.low is None else float((r.low == r.high).double().mean())
        predictions = _prediction(r.predicted, several), _prediction(guess, several)
        fields = (r.name, r.kind, call, r.shape, moments_of(r.sums), back, dead, r.flat)
        made.append(SignalRow(*fields, *predictions, r.note))
    return made


def _prediction(e: Estimate | None, several: bool) -> SignalPrediction | None:
    if e is None or not all(map(math.isfinite, e)):
        return None
    c = min(e.p / e.q, 1.0) if several and e.q > 0 else None
    return SignalPrediction(e.q, max(e.q - e.m**2, 0.0), c)
