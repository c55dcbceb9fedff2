"""Elimination in fractions, against minors, expansions and products of known rank."""

import math
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vademecum.arrays import rational_determinant, rational_rank, row_reduce


def leibniz(rows):
    """The determinant, by expansion along the first row."""
    if not rows:
        return 1
    return sum(
        (-1) ** j * v * leibniz([row[:j] + row[j + 1 :] for row in rows[1:]])
        for j, v in enumerate(rows[0])
    )


def minor_rank(matrix):
    """The size of the largest square part with a determinant other than zero."""
    height, width = len(matrix), len(matrix[0])
    for size in range(min(height, width), 0, -1):
        for rows in combinations(range(height), size):
            for columns in combinations(range(width), size):
                if leibniz([[matrix[i][j] for j in columns] for i in rows]):
                    return size
    return 0


@st.composite
def matrices(draw):
    height, width = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    entries = st.integers(-3, 3) | st.fractions(-2, 2, max_denominator=5)
    return [[draw(entries) for _ in range(width)] for _ in range(height)]


@given(matrices())
def test_reduced_form_and_its_row_space(matrix):
    rows, pivots = row_reduce(matrix)
    assert len(rows) == len(pivots) == rational_rank(matrix) == minor_rank(matrix)
    assert all(a < b for a, b in pairwise(pivots))
    for i, row in enumerate(rows):
        assert [row[p] for p in pivots] == [int(i == k) for k in range(len(pivots))]
        assert not any(row[: pivots[i]])
    for row in matrix:  # a row of the matrix is the combination that its pivots name
        parts = [(row[p], basis) for p, basis in zip(pivots, rows, strict=True)]
        assert [sum(c * basis[j] for c, basis in parts) for j in range(len(row))] == row
    assert row_reduce(rows) == (rows, pivots)  # and no row of the form is outside: equal ranks
    assert rational_rank([*matrix, *rows]) == len(rows)
    assert rational_rank([list(column) for column in zip(*matrix, strict=True)]) == len(rows)


@given(st.integers(0, 4).flatmap(lambda n: st.lists(
    st.lists(st.integers(-2, 2) | st.fractions(-2, 2, max_denominator=5), min_size=n, max_size=n),
    min_size=n, max_size=n,
)))  # fmt: skip
def test_determinants_by_expansion(matrix):
    assert rational_determinant(matrix) == leibniz(matrix)


def test_determinants_with_signs_of_permutations_and_cancellation():
    assert rational_determinant([[0, 0, 2], [3, 1, 5], [0, 7, 1]]) == 42  # a cycle of three
    assert rational_determinant([[0, 1, 0], [1, 0, 0], [0, 0, 5]]) == -5  # an exchange of two
    assert rational_determinant([[0.1, 0.3], [1, 3]]) == 3 * Fraction(0.1) - Fraction(0.3) != 0
    assert rational_determinant([[1, 2], [2, 4]]) == 0


@pytest.mark.parametrize(("m", "n", "r"), [(3, 5, 2), (6, 4, 3), (5, 5, 5), (4, 4, 0)])
def test_rank_of_a_product_of_unit_triangles(m, n, r):
    left = torch.randint(-9, 10, (m, r)).tril(-1) + torch.eye(m, r, dtype=torch.long)
    right = torch.randint(-9, 10, (r, n)).triu(1) + torch.eye(r, n, dtype=torch.long)
    assert rational_rank((left @ right).tolist()) == r


def test_what_rounding_would_hide():
    n = 12
    hilbert = [[Fraction(1, i + j + 1) for j in range(n)] for i in range(n)]
    assert rational_rank(hilbert) == n > np.linalg.matrix_rank(np.array(hilbert, float))
    assert rational_rank([[1, 1], [1, 1 + 2**-52]]) == 2
    assert rational_rank([[0.1, 0.2], [0.2, 0.4]]) == 1
    assert rational_rank([[0.1, 0.3], [0.2, 0.6]]) == 1
    assert rational_rank([[0.1, 0.3], [1, 3]]) == 2  # 0.3 is not three times 0.1 in doubles
    assert rational_rank([[10**30, 1], [10**60, 10**30 + 1]]) == 2


def test_solutions_and_inverses():
    rows, pivots = row_reduce([[2, 1, 5], [1, -1, 1]])  # x = 2, y = 1
    assert [row[-1] for row in rows] == [2, 1]
    assert pivots == [0, 1]
    rows, _ = row_reduce([[1, 2, 1, 0], [3, 4, 0, 1]])
    half = Fraction(1, 2)
    assert [row[2:] for row in rows] == [[-2, 1], [3 * half, -half]]


def test_nothing_and_zeros():
    assert row_reduce([]) == ([], [])
    assert row_reduce([[], []]) == ([], [])
    assert row_reduce([[0, 0], [0, 0]]) == ([], [])


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[1, 2], [3]], r"matrix must have rows of one length, got \[2, 1\]"),
        ([[math.nan]], "matrix must have finite entries .*, got nan"),
        ([[1, -math.inf]], "matrix must have finite entries .*, got -inf"),
        ([[np.int64(2)]], r"entries of Python's types, got np.int64\(2\)"),
    ],
)
def test_row_reduce_refuses(matrix, message, unchecked):
    with pytest.raises(ValueError, match=message):
        row_reduce(matrix)


def test_a_determinant_needs_a_square():
    with pytest.raises(ValueError, match=r"matrix must be square, got shape \(2, 3\)"):
        rational_determinant([[1, 2, 3], [4, 5, 6]])
