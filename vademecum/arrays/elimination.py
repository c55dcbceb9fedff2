r"""Gauss-Jordan elimination in fractions: ranks, solutions, inverses and determinants, exactly.

Each column's pivot is the first entry that is not zero, $a_{ij} \leftarrow a_{ij} - a_{ic}\, a_{pj}
/ a_{pc}$ clears the column, and nothing is rounded, so that "dependent" and "independent" are
certain. Fractions grow with every step: n rows of k-bit integers end at some $n k$ bits.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from vademecum.results import one_line

__all__ = ["Echelon", "rational_determinant", "rational_rank", "row_reduce"]

Matrix = Sequence[Sequence[int | float | Fraction]]


class Echelon(NamedTuple):
    """The reduced row echelon form of a matrix: the rows that are not zero, and their pivots.

    Example:
        >>> row_reduce([[0, 2], [0, 3]]).pivots
        [1]
    """

    rows: list[list[Fraction]]
    """Each has a 1 in the column of its pivot, where all the others have a 0."""
    pivots: list[int]
    """The columns of the leading ones, increasing."""

    __repr__ = one_line


def row_reduce(matrix: Matrix) -> Echelon:
    """The reduced row echelon form, by Gauss-Jordan elimination in fractions.

    Args:
        matrix: The rows, of Python's numbers (`tensor.tolist()`); a float is the fraction with a
            power of two below the line that it stands for.

    Raises:
        ValueError: If the rows differ in length, or an entry is not finite or not one of Python's.

    Example:
        >>> rows, pivots = row_reduce([[2, 4, 2], [1, 2, 3]])
        >>> [[str(v) for v in row] for row in rows], pivots
        ([['1', '2', '0'], ['0', '0', '1']], [0, 2])
    """
    rest = _fractions(matrix)
    rows: list[list[Fraction]] = []
    pivots: list[int] = []
    for column in range(len(rest[0]) if rest else 0):
        place = _pivot(rest, column)
        if place is None:
            continue
        top = rest.pop(place)
        top = [v / top[column] for v in top]
        rest = [_less(row, top, column) for row in rest]
        rows = [*(_less(row, top, column) for row in rows), top]
        pivots.append(column)
    return Echelon(rows, pivots)


def rational_rank(matrix: Matrix) -> int:
    """The rank of a matrix, without rounding (see `row_reduce`).

    Example:
        >>> rational_rank([[1, 2], [2, 4], [0, 1]])
        2
    """
    return len(row_reduce(matrix).pivots)


def rational_determinant(matrix: Matrix) -> Fraction:
    """The determinant of a square matrix, without rounding (see `row_reduce`).

    Raises:
        ValueError: If the matrix is not square, or as `row_reduce` does.

    Example:
        >>> rational_determinant([[0, 2], [3, 4]])
        Fraction(-6, 1)
    """
    rest = _fractions(matrix)
    if rest and len(rest[0]) != len(rest):
        raise ValueError(f"matrix must be square, got shape {(len(rest), len(rest[0]))}")
    determinant = Fraction(1)
    for column in range(len(rest)):
        place = _pivot(rest, column)
        if place is None:
            return Fraction(0)
        top = rest.pop(place)
        determinant *= (-1) ** place * top[column]
        top = [v / top[column] for v in top]
        rest = [_less(row, top, column) for row in rest]
    return determinant


def _fractions(matrix: Matrix) -> list[list[Fraction]]:
    rows = [[_fraction(v) for v in row] for row in matrix]
    if len({len(row) for row in rows}) > 1:
        raise ValueError(f"matrix must have rows of one length, got {[len(row) for row in rows]}")
    return rows


def _pivot(rows: list[list[Fraction]], column: int) -> int | None:
    """The first row that does not vanish in the column."""
    return next((i for i, row in enumerate(rows) if row[column]), None)


def _fraction(v: Any) -> Fraction:
    known = isinstance(v, int | float | Fraction)  # NumPy's integers would wrap in products
    if not known or (isinstance(v, float) and not math.isfinite(v)):
        raise ValueError(f"matrix must have finite entries of Python's types, got {v!r}")
    return Fraction(v)


def _less(row: list[Fraction], top: list[Fraction], column: int) -> list[Fraction]:
    """The row without its share of another one, which has a 1 in the column."""
    c = row[column]
    return [v - c * t for v, t in zip(row, top, strict=True)] if c else row
