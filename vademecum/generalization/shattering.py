r"""Which sets of points a class shatters, and the size of the largest: its VC dimension.

A class $\mathcal F$ of functions with values 0 and 1 **shatters** $x_1, \dots, x_n$ if each of the
$2^n$ labellings of these points occurs; $\mathrm{VC}(\mathcal F)$ is the largest $n$ for which some
set of $n$ points is shattered. One answer is a function for every labelling, the other a labelling
that no function gives, with the reason:

- *thresholds*, *intervals*, *rectangles*: a point labelled 0 between, or in the smallest box
  around, points labelled 1;
- *half-spaces*: the points are affinely dependent, $\sum_i \lambda_i x_i = 0$ with $\sum_i
  \lambda_i = 0$, so that the hulls of $\{\lambda_i > 0\}$ and of $\{\lambda_i < 0\}$ have a point
  in common (Radon), and no half-space has the one and none of the other. Dependence is decided
  in rational arithmetic, so exactly;
- a finite class: all its rows were looked at.

The claim is `vc_dimension`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vademecum.arguments import floats, whole
from vademecum.arrays import row_reduce
from vademecum.generalization.growth import FAMILIES, Family, Table, codes, table
from vademecum.results import one_line

__all__ = ["Shattering", "shatters"]

_MOST = 20  # points: a million labellings
Fit = Callable[[Tensor, Tensor], Any]


class Shattering(NamedTuple):
    """Whether a set is shattered, with a function for each labelling or one that has none.

    Example:
        >>> shatters("thresholds", torch.tensor([[1.0], [2.0]])).missing
        tensor([1, 0])
    """

    shattered: bool
    """Whether all labellings occur."""
    witness: Any
    """What gives each labelling, row by row of `labels`: thresholds, ends of intervals (n, 2),
    normals with their bias (n, d + 1) for $w^\\top x + b \\ge 0$, corners (n, 2, d), rows of the
    table, or what the function returned; None if the set is not shattered."""
    labels: Int[Tensor, " labellings n"] | None
    """The labellings, all of them; None if the set is not shattered."""
    missing: Int[Tensor, " n"] | None
    """A labelling that does not occur; None if the set is shattered."""
    proof: Any
    """Why it does not: for half-spaces Radon's weights, with which the points (and 1, if there is a
    bias) add up to zero: positive on the ones, at most zero on the zeros, once below; for boxes
    the place of a point labelled 0 that is in each box around the ones; None for a table."""

    __repr__ = one_line


def shatters(family: Family | Table | Fit, x: Float[Tensor, " n d"] | None = None) -> Shattering:
    r"""Whether a class shatters a set of points: all witnesses, or a proof that one is missing.

    Args:
        family: The name of a family (see `growth_function`); or the values 0 and 1 of a finite
            class, with a row for each function and a column for each point; or a function of points
            and a labelling which returns what gives the labelling, or None: then None counts as
            proof.
        x: The points, one a row; none for a table, whose columns they are.

    Raises:
        ValueError: If there are more points than can be enumerated and they might be shattered.

    Example:
        >>> corners = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> shatters("half-spaces", corners).shattered
        True
        >>> found = shatters("half-spaces", torch.tensor([[0.0, 0.0], [1.0, 1.0], [3.0, 3.0]]))
        >>> found.missing, found.proof  # the second point lies between the others
        (tensor([0, 1, 0]), tensor([-2.,  3., -1.], dtype=torch.float64))
    """
    if isinstance(family, Tensor):
        if x is not None:
            raise ValueError(f"x must be None for a table, got {type(x).__name__}")
        return _by_rows(family)
    points = floats("x", x, ndim=2)
    if callable(family):
        return _one_by_one(family, points)
    if family not in FAMILIES:
        raise ValueError(
            f"family must be one of {', '.join(map(repr, FAMILIES))}, a table or a function,"
            f" got {family!r}"
        )
    if family in ("thresholds", "intervals") and points.shape[1] != 1:
        raise ValueError(f"x must be (n, 1) for {family}, got shape {tuple(points.shape)}")
    if "half-spaces" in family:
        return _half_spaces(points, bias=family == "half-spaces")
    return _boxes(points, open_end=family == "thresholds")


def labellings(n: int, device: torch.device | None = None) -> Int[Tensor, " labellings n"]:
    """All labellings of n points, rows of zeros and ones in the order of binary numbers.

    Example:
        >>> labellings(2).tolist()
        [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    numbers = torch.arange(2 ** whole("n", n, low=0, high=_MOST), device=device)
    return numbers[:, None] >> torch.arange(n - 1, -1, -1, device=device) & 1


def _by_rows(values: Tensor) -> Shattering:
    """Enumerate a table: the first row that gives each labelling."""
    rows, n = table(values), values.shape[1]
    if len(rows) < 2**n:  # then some beginning of a labelling is missing among so few of them
        short = min(n, len(rows).bit_length())
        heads = torch.arange(short, device=rows.device)[None]
        seen = set(codes(rows, heads)[0].tolist())
        head = next(c for c in range(2**short) if c not in seen)
        bits = [head >> i & 1 for i in range(short - 1, -1, -1)] + [0] * (n - short)
        return _missing(torch.tensor(bits, device=rows.device))
    every = labellings(n, rows.device)
    own = codes(values.to(torch.uint8), torch.arange(n, device=rows.device)[None])[0]
    places = torch.arange(len(own), device=own.device)
    first = torch.full((2**n,), len(own), device=own.device)
    return Shattering(True, first.scatter_reduce(0, own, places, "amin"), every, None, None)


def _missing(labels: Tensor, proof: Any = None) -> Shattering:
    return Shattering(False, None, None, labels, proof)


def _one_by_one(fit: Fit, x: Tensor) -> Shattering:
    every, found = labellings(len(x), x.device), []
    for labels in every:
        found.append(fit(x, labels))
        if found[-1] is None:
            return _missing(labels)
    return Shattering(True, found, every, None, None)


def _boxes(x: Tensor, *, open_end: bool) -> Shattering:
    """Intervals, rectangles, and thresholds, which are boxes without an upper end."""
    n, d = x.shape
    ends = [x.argmin(0)] if open_end else [x.argmin(0), x.argmax(0)]
    extreme = torch.cat(ends).unique()
    outer = torch.zeros(n, dtype=torch.int64, device=x.device)
    outer[extreme] = 1
    if n > len(extreme):  # every box around the extreme points contains the others
        return _missing(outer, int((outer == 0).nonzero()[0]))
    every = labellings(n, x.device)
    inside = every.bool()[:, :, None]
    low = torch.where(inside, x, torch.inf).amin(1)  # above everything where there are no ones
    high = torch.where(inside, x, -torch.inf).amax(1)
    high = torch.full_like(high, torch.inf) if open_end else high
    within = ((x >= low[:, None]) & (x <= high[:, None])).all(2)
    wrong = (within != every.bool()).nonzero()
    if len(wrong):
        row, point = wrong[0].tolist()
        return _missing(every[row], point)
    if open_end:
        return Shattering(True, low[:, 0], every, None, None)
    witness = torch.stack((low, high), 1)
    return Shattering(True, witness[:, :, 0] if d == 1 else witness, every, None, None)


def _half_spaces(x: Tensor, *, bias: bool) -> Shattering:
    """Independent points take any signs; of dependent ones Radon's partition is impossible."""
    n = len(x)
    A = torch.cat((x.double(), torch.ones_like(x[:, :1].double())), 1) if bias else x.double()
    reduced, pivots = row_reduce(A.T.tolist())  # its null vectors are the points' dependences
    free = sorted(set(range(n)) - set(pivots))
    if free:
        weights = torch.zeros(n, dtype=torch.float64)
        weights[free[0]] = -1.0
        weights[pivots] = torch.tensor(
            [float(row[free[0]]) for row in reduced], dtype=torch.float64
        )
        weights = weights.to(x.device)
        return _missing((weights > 0).long(), weights)
    every = labellings(n, x.device)
    w = (torch.linalg.pinv(A) @ (2.0 * every.T - 1).to(A)).T
    if not ((((w @ A.T) >= 0) == every.bool()).all()):
        raise ValueError("x must be farther from dependent: rounding hides the half-spaces")
    return Shattering(True, w, every, None, None)
