"""Constants that nobody gave: of the steepest term, in the ball that holds the start."""

import pytest
import torch
from torch import Tensor

from vademecum.optimization import certify_descent

CURVATURES = torch.tensor([1.0, 9.0, 4.0], dtype=torch.float64)
CENTRES = torch.tensor([0.0, 0.0, 3.0], dtype=torch.float64)


def bowls(x: Tensor) -> Tensor:
    return CURVATURES * (x @ x) / 2


def valleys(x: Tensor) -> Tensor:
    return (x[0] - CENTRES) ** 2 / 2


def start(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def test_smoothness_is_that_of_the_steepest_term_and_curvature_that_of_the_mean():
    found = certify_descent(bowls, start(2, 1), method="sgd", steps=2, runs=2)
    assert found.constants["L"] == pytest.approx(9)
    assert found.constants["mu"] == pytest.approx(14 / 3)
    assert set(found.estimated) == {"L", "mu"}
    alone = certify_descent(lambda x: bowls(x).mean(), start(2, 1), steps=2)
    assert alone.constants["L"] == pytest.approx(14 / 3)


def test_the_longest_gradient_may_lie_beyond_the_optimum():
    found = certify_descent(valleys, start(3), method="averaged_sgd", steps=2, runs=2)
    assert found.constants["G"] == pytest.approx(4)  # of the last term at -1; 3 at the start


def test_curvature_is_searched_in_the_ball_that_holds_the_start():
    found = certify_descent(lambda x: (x**4 / 12 + x**2 / 2).sum(), start(2), steps=2)
    assert 4.9 < found.constants["L"] <= 5 + 1e-9  # x^2 + 1 at 2


def test_a_start_at_the_optimum_has_a_ball_around_it():
    assert certify_descent(lambda x: x @ x, start(0, 0), steps=2).constants["L"] == pytest.approx(2)
