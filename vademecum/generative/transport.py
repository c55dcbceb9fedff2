r"""The Wasserstein distance of two finite laws, and how to move one onto the other.

$$W_1(p, q) = \min_\gamma \sum_{ij} \gamma_{ij} \|x_i - y_j\|, \qquad
\sum_j \gamma_{ij} = p_i, \quad \sum_i \gamma_{ij} = q_j .$$

On a line the best plan keeps the order: the sorted masses are matched from left to right, and
$W_1 = \int |F_p - F_q|$. In more dimensions equal masses are matched one to one by SciPy's
`linear_sum_assignment`; samples of different sizes are repeated up to a common multiple. Both are
exact up to rounding. The plan does not change under small moves, so the distance is differentiated
with the plan held fixed. Checked by `generative.wasserstein_1`.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vademecum.arguments import floats, probabilities
from vademecum.arrays import lengths, power_of_two
from vademecum.results import one_line

__all__ = ["Transport", "wasserstein_1"]

MOST = 5000
"""How many points are matched off a line at most: SciPy takes some ten seconds for them."""


class Transport(NamedTuple):
    """The distance of two laws, and a plan that attains it.

    Example:
        >>> found = wasserstein_1(torch.tensor([0.0, 3.0]), torch.tensor([1.0]))
        >>> found.distance, found.mass  # half of it moves by 1, half by 2
        (tensor(1.5000), tensor([0.5000, 0.5000]))
    """

    distance: Float[Tensor, ""]
    """The Wasserstein distance, differentiable in the points."""
    rows: Int[Tensor, " moves"]
    """The point of the first law from which a mass is moved."""
    columns: Int[Tensor, " moves"]
    """The point of the second law to which it is moved."""
    mass: Float[Tensor, " moves"]
    """How much is moved; all of it together is 1."""

    __repr__ = one_line


def wasserstein_1(
    x: Float[Tensor, " n *d"],
    y: Float[Tensor, " m *d"],
    *,
    x_weights: Float[Tensor, " n"] | None = None,
    y_weights: Float[Tensor, " m"] | None = None,
) -> Transport:
    """The exact Wasserstein-1 distance between two samples, or two weighted sets of points.

    Args:
        x: Points of the first law, (n,) on a line or (n, d).
        y: Points of the second law.
        x_weights: Their probabilities, on a line; by default all are equal.
        y_weights: Those of the second law.

    Returns:
        The distance and a best plan, computed in double precision. On a line any number of points
        takes the time of sorting them; else up to 5,000 of them are matched, on the CPU.

    Raises:
        ValueError: If the points do not fit, or are too many; if weights are given off a line.

    References:
        Villani, Topics in optimal transportation, AMS, 2003.

    Example:
        >>> x = torch.tensor([[0.0, 0.0], [4.0, 0.0]])
        >>> wasserstein_1(x, x + torch.tensor([3.0, 4.0])).distance  # |(3, 4)|
        tensor(5.)
    """
    a, b = _points(x, y)
    unit = power_of_two(a, b)
    a, b = a / unit, b / unit
    weights = {"x_weights": (x_weights, a), "y_weights": (y_weights, b)}
    p, q = (_weights(name, *given) for name, given in weights.items())
    with torch.no_grad():
        if a.shape[1] > 1:
            if p is not None or q is not None:
                raise ValueError(
                    "x_weights and y_weights must be None off a line, where points of equal mass"
                    f" are matched; repeat points instead, got {a.shape[1]} dimensions"
                )
            rows, columns, mass = _matched(a, b)
        else:
            rows, columns, mass = _in_order(a[:, 0], b[:, 0], p, q)
    gaps = a[rows] - b[columns]
    ways = lengths(gaps, 1) if gaps.shape[1] > 1 else gaps[:, 0].abs()
    return Transport((mass * ways).sum().mul(unit).to(x.dtype), rows, columns, mass.to(x.dtype))


def _points(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Both laws' points in double precision, a row each."""
    for name, points in (("x", x), ("y", y)):
        floats(name, points)
    if x.ndim not in (1, 2) or x.shape[1:] != y.shape[1:]:
        raise ValueError(
            f"x and y must be (n,) and (m,), or (n, d) and (m, d), got {tuple(x.shape)}"
            f" and {tuple(y.shape)}"
        )
    if (x.dtype, x.device) != (y.dtype, y.device):
        raise ValueError(f"y must be {x.dtype} on {x.device} like x, got {y.dtype} on {y.device}")
    if x.is_complex():
        raise ValueError(f"x must be real, got {x.dtype}")
    return x.double().reshape(len(x), -1), y.double().reshape(len(y), -1)


def _weights(name: str, weights: Tensor | None, points: Tensor) -> Tensor | None:
    if weights is None:
        return None
    if probabilities(name, weights).shape != (len(points),):
        raise ValueError(f"{name} must have shape ({len(points)},), got {tuple(weights.shape)}")
    return weights.detach().to(points.device, torch.float64)


Plan = tuple[Tensor, Tensor, Tensor]


def _in_order(x: Tensor, y: Tensor, p: Tensor | None, q: Tensor | None) -> Plan:
    """The plan on a line: masses from left to right."""
    n, m = len(x), len(y)
    rows, columns = _sorting(x), _sorting(y)
    if p is None and q is None and n == m:
        return rows, columns, x.new_full((n,), 1 / n)
    here = _reached(p, rows, n, m)
    there = _reached(q, columns, m, n)
    if here.dtype != there.dtype:  # integers, in units of 1 / (n m), beside probabilities
        here, there = (t.double() / (n * m) if t.dtype == torch.int64 else t for t in (here, there))
    end = torch.maximum(here[-1], there[-1])
    for reached in (here, there):
        reached[reached == reached[-1]] = end  # which rounding may keep apart
    ends = torch.cat([here, there]).sort().values
    mass = torch.diff(ends, prepend=ends.new_zeros(1))
    moved = mass > 0
    ends, mass = ends[moved], mass[moved]
    return rows[_first(here, ends)], columns[_first(there, ends)], mass.double() / end


def _sorting(x: Tensor) -> Tensor:
    """The order of numbers; NumPy finds it in half of torch's time on a CPU."""
    return x.argsort() if x.is_cuda else torch.from_numpy(np.argsort(x.numpy()))


def _first(reached: Tensor, ends: Tensor) -> Tensor:
    """Where a sorted sequence first reaches each of some sorted numbers."""
    if reached.is_cuda:
        return torch.searchsorted(reached, ends)
    return torch.from_numpy(np.searchsorted(reached.numpy(), ends.numpy()))  # 7 times as fast


def _reached(weights: Tensor | None, order: Tensor, n: int, others: int) -> Tensor:
    """The distribution function at the sorted points; integers where all weights are equal."""
    if weights is None:
        return others * torch.arange(1, n + 1, device=order.device)
    return weights[order].cumsum(0)


def _matched(x: Tensor, y: Tensor) -> Plan:
    """The plan between points of equal mass, each repeated up to a common multiple."""
    from scipy.optimize import linear_sum_assignment

    n = math.lcm(len(x), len(y))
    if n > MOST:
        what = f"{len(x)} and {len(y)}"
        what += f", whose least common multiple is {n}" if len(x) != len(y) else ""
        raise ValueError(f"x and y must be at most {MOST} points off a line, got {what}")
    i, j = (torch.arange(n) // (n // len(points)) for points in (x, y))
    cost = torch.cdist(x.cpu(), y.cpu(), compute_mode="donot_use_mm_for_euclid_dist")
    rows, columns = linear_sum_assignment(cost[i][:, j].numpy())
    rows, columns = (k[torch.from_numpy(found)] for k, found in ((i, rows), (j, columns)))
    return rows.to(x.device), columns.to(x.device), x.new_full((n,), 1 / n)
