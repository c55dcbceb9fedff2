r"""The VC dimension of a class: known for a family, searched for a finite class.

The subsets of a shattered set are shattered. So the search in a table goes through sets of columns
in lexicographic order and extends only those that are shattered: with the number that the columns
so far give to each row, the rows fall into $2^k$ cells, and a further column is added if it takes
both values in each cell. All further columns are looked at together. Exact; the number of sets is
what it costs, at most $\sum_{i \le \log_2 |\mathcal F|} \binom mi$ for $m$ points.

The claims are `vc_dimension` and `vc_finite_class`.
"""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from vademecum.generalization.growth import Family, Table, dimension_of_domain, table
from vademecum.results import one_line

__all__ = ["VCDimension", "vc_dimension"]


class VCDimension(NamedTuple):
    """The size of the largest shattered set.

    Example:
        >>> vc_dimension("rectangles", d=2)
        VCDimension(value=4, points=None, sets=0)
    """

    value: int
    """The VC dimension."""
    points: Int[Tensor, " value"] | None
    """The columns of a largest shattered set of a table; None for a family."""
    sets: int
    """How many shattered sets of a table were extended; 0 for a family."""

    __repr__ = one_line


def vc_dimension(family: Family | Table, *, d: int | None = None) -> VCDimension:
    """The size of the largest set that a class shatters, exactly.

    Args:
        family: The name of a family (see `growth_function`), or the values 0 and 1 of a finite
            class, with a row for each function and a column for each point of its domain.
        d: The dimension of half-spaces and rectangles.

    Raises:
        ValueError: If the family is unknown, or `d` is missing or has no meaning.

    Example:
        >>> vc_dimension("half-spaces", d=2).value
        3
        >>> steps = torch.ones(7, 6).triu()  # thresholds on six points
        >>> vc_dimension(steps).value
        1
    """
    if isinstance(family, Tensor):
        if d is not None:
            raise ValueError(f"d must be None for a table, got {d}")
        return _searched(table(family))
    d = dimension_of_domain(family, d)
    known = {
        "thresholds": 1,
        "intervals": 2,
        "half-spaces": d + 1,
        "homogeneous half-spaces": d,
        "rectangles": 2 * d,
    }
    return VCDimension(known[family], None, 0)


def _searched(values: Tensor) -> VCDimension:
    m, most = values.shape[1], len(values).bit_length() - 1  # no more than log2 of the rows
    best: list[int] = []
    sets = 0
    cells = torch.zeros(len(values), dtype=torch.int64, device=values.device)
    columns = values.T.long()
    stack = [([], cells)]
    while stack and len(best) < most:
        chosen, cells = stack.pop()
        first = chosen[-1] + 1 if chosen else 0
        if len(chosen) + m - first <= len(best) or first == m:
            continue
        sets += 1
        further = _extended(cells, columns[first:], len(chosen))
        for j in reversed(further.nonzero()[:, 0].tolist()):
            stack.append(([*chosen, first + j], 2 * cells + columns[first + j]))
        if len(chosen) + 1 > len(best) and bool(further.any()):
            best = stack[-1][0]
    points = torch.tensor(best, dtype=torch.int64, device=values.device)
    return VCDimension(len(best), points, sets)


def _extended(cells: Tensor, columns: Tensor, k: int) -> Tensor:
    """Which columns take both values in each of the 2**k cells."""
    seen = torch.zeros(len(columns), 2 ** (k + 1), dtype=torch.bool, device=cells.device)
    seen.scatter_(1, 2 * cells + columns, True)
    return seen.all(1)
