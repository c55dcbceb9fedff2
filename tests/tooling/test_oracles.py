"""The exact oracles behind the claims, against SymPy and SciPy."""

import numpy as np
import pytest
import scipy.stats
import sympy

import vademecum.tooling
from vademecum.tooling.claims.arrays import _distance, uniform, whole
from vademecum.tooling.claims.decompositions import exact_determinant, exact_inverse, regular
from vademecum.tooling.claims.language import half_up, raises


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_exact_linear_algebra(n):
    a = regular(n)
    matrix = sympy.Matrix(a.tolist())
    assert exact_determinant(a) == matrix.det() != 0
    expected = [
        [sympy.Rational(v.numerator, v.denominator) for v in row] for row in exact_inverse(a)
    ]
    assert matrix.inv() == sympy.Matrix(expected)


def test_determinant_of_a_singular_matrix():
    assert exact_determinant(np.array([[1, 2], [2, 4]])) == 0
    assert exact_determinant(np.array([[0, 1], [1, 0]])) == -1


def test_distance_to_the_uniform_law():
    x = np.sort(uniform(500) ** 1.5)
    assert _distance(x) == pytest.approx(scipy.stats.kstest(x, "uniform").statistic)


def test_ranges():
    drawn = whole(1000, most=2)
    assert set(drawn.tolist()) == {-2, -1, 0, 1, 2}
    drawn = uniform(1000, low=2.0, high=3.0)
    assert 2 <= drawn.min() < 2.1 < 2.9 < drawn.max() < 3


def test_half_up():
    assert [half_up(2.5, 0), half_up(0.125, 2), half_up(-2.5, 0)] == [3.0, 0.13, -2.0]


def test_raises_catches_just_the_error_it_is_asked_for():
    assert raises(ValueError, lambda: int("x")) == 1
    assert raises(ValueError, lambda: int("1")) == 0
    with pytest.raises(ZeroDivisionError):
        raises(ValueError, lambda: 1 / 0)


def test_the_room_exports_nothing():
    assert vademecum.tooling.__all__ == []
