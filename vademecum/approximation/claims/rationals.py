"""Linear algebra in exact rationals: the oracle of some claims."""

from collections.abc import Sequence
from fractions import Fraction

__all__ = ["rational_rank", "row_reduce"]


def row_reduce(
    matrix: Sequence[Sequence[int | Fraction]],
) -> tuple[list[list[Fraction]], list[int]]:
    """The reduced row echelon form without its zero rows, and the columns of its pivots.

    Example:
        >>> row_reduce([[2, 4], [1, 2]])
        ([[Fraction(1, 1), Fraction(2, 1)]], [0])
    """
    rest = [[Fraction(v) for v in row] for row in matrix]
    rows: list[list[Fraction]] = []
    pivots: list[int] = []
    for column in range(len(rest[0])):
        found = next((i for i, row in enumerate(rest) if row[column]), None)
        if found is None:
            continue
        top = rest.pop(found)
        top = [v / top[column] for v in top]
        rest = [_less(row, top, column) for row in rest]
        rows = [*(_less(row, top, column) for row in rows), top]
        pivots.append(column)
    return rows, pivots


def rational_rank(matrix: Sequence[Sequence[int | Fraction]]) -> int:
    """The rank, exactly.

    Example:
        >>> rational_rank([[1, 2], [2, 4], [0, 1]])
        2
    """
    return len(row_reduce(matrix)[1])


def _less(row: list[Fraction], top: list[Fraction], column: int) -> list[Fraction]:
    c = row[column]
    return [v - c * t for v, t in zip(row, top, strict=True)] if c else row
