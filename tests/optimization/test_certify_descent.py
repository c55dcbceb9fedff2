"""Certificates of descent against closed forms, exact moments, and the functions they refuse."""

import math
from typing import Any

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from vademecum.optimization import HeavyBall, Nesterov, certify_descent

DOUBLE: dict[str, Any] = {"dtype": torch.float64}
CURVATURES = torch.tensor([1.0, 4.0, 25.0], **DOUBLE)
START = torch.tensor([1.0, -2.0, 0.5], **DOUBLE)
AT = torch.arange(31, **DOUBLE)


def bowl(x: Tensor) -> Tensor:
    return CURVATURES.to(x) @ x.square() / 2


def cycling(x: Tensor) -> Tensor:
    """Lessard, Recht and Packard's function: f' = 25 x, x + 24 and 25 x - 24."""
    x = x[0]
    middle, right = x * x / 2 + 24 * x - 12, 12.5 * x * x - 24 * x + 36
    return torch.where(x < 1, 12.5 * x * x, torch.where(x < 2, middle, right))


def modes(method: str) -> Tensor:
    """The iterates along each axis by the recursion of the method, with L = 25 and mu = 1."""
    root = math.sqrt(25)
    eta, beta = 1 / 25, (root - 1) / (root + 1)
    before = x = START
    found = [x]
    for t in range(1, 31):
        if method == "heavy_ball":
            new = x - 4 / (root + 1) ** 2 * CURVATURES * x + beta**2 * (x - before)
        else:
            weight = {"gradient": 0.0, "strongly_convex": beta, "convex": (t - 2) / (t + 1)}[method]
            y = x + (weight if t > 1 else 0.0) * (x - before)
            new = y - eta * CURVATURES * y
        before, x = x, new
        found.append(x)
    return torch.stack(found)


CASES: dict[str, tuple[dict[str, Any], Any]] = {
    "gradient": (
        {"method": "gradient_descent", "mu": 1.0},
        lambda gap, R2: (24 / 25) ** AT * gap,
    ),
    "convex": ({"method": "nesterov"}, lambda gap, R2: 50 * R2 / (AT + 1) ** 2),
    "strongly_convex": ({"method": "nesterov", "mu": 1.0}, lambda gap, R2: 25 * R2 * 0.8**AT),
    "heavy_ball": (
        {"method": "heavy_ball", "mu": 1.0},
        lambda gap, R2: ((2 / 3) ** AT * (1 + 5 / 3 * AT)) ** 2 * gap,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_gaps_and_bounds_are_those_of_closed_forms(name):
    options, bound = CASES[name]
    x = modes(name)
    gaps = (CURVATURES * x.square()).sum(1) / 2
    result = certify_descent(bowl, START, L=25.0, steps=30, **options)
    torch.testing.assert_close(result.gap, gaps[result.steps], rtol=1e-10, atol=1e-14)
    wanted = bound(gaps[0], START.square().sum())[result.steps]
    torch.testing.assert_close(result.bound, wanted, rtol=1e-12, atol=0)
    assert result.held is True
    assert result.estimated == ()
    late = result.steps > 0
    assert result.tightness == pytest.approx(float((result.gap / result.bound)[late].max()))
    assert result.low.equal(result.gap)
    assert result.high.equal(result.gap)


def test_gradient_descent_on_convex_functions_and_to_stationary_points():
    gaps = (CURVATURES * modes("gradient").square()).sum(1) / 2
    convex = certify_descent(bowl, START, L=25.0, steps=30)
    assert (convex.method, convex.assuming) == ("gradient_descent", "convex")
    assert convex.steps.tolist() == list(range(1, 31))
    torch.testing.assert_close(convex.bound, 12.5 * START.square().sum() / AT[1:])
    torch.testing.assert_close(convex.gap, gaps[1:], rtol=1e-10, atol=1e-14)
    smooth = certify_descent(bowl, START, L=25.0, minimum=0.0, assuming="smooth", steps=30)
    squares = (CURVATURES * modes("gradient")).square().sum(1)
    torch.testing.assert_close(smooth.gap, squares.cummin(0).values[:-1], rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(smooth.bound, 50 * gaps[0] / AT[1:])
    assert smooth.measures == "gradient"
    assert smooth.held


def test_heavy_ball_attains_its_bound_along_the_steepest_axis():
    start = torch.tensor([0.0, 0.0, 3.0], **DOUBLE)
    result = certify_descent(bowl, start, method="heavy_ball", L=25.0, mu=1.0, steps=40)
    torch.testing.assert_close(result.gap, result.bound, rtol=1e-9, atol=1e-13)
    assert result.tightness == pytest.approx(1.0)
    assert result.held


@pytest.mark.parametrize(
    ("options", "held"),
    [
        ({"L": 25.0, "mu": 1.0}, True),
        ({"L": 25.0, "mu": 3.0, "steps": 100}, False),  # mu is too large
        ({"L": 12.0, "mu": 1.0}, False),  # L is too small, and the run climbs
        ({"L": 1.0, "mu": 1.0, "steps": 3000}, False),  # until it leaves all bounds
        ({"method": "nesterov", "L": 12.0}, False),
        ({"method": "nesterov", "L": 1.0, "steps": 3000}, False),
        ({"method": "heavy_ball", "L": 10.0, "mu": 1.0, "steps": 3000}, False),
        ({"L": 12.0, "assuming": "smooth", "minimum": 0.0}, False),
    ],
)
def test_wrong_constants_are_refuted(options, held):
    result = certify_descent(bowl, START, **{"steps": 60, **options})
    assert result.held is held
    assert (result.tightness > 1) is not held


def test_constants_that_are_estimated_are_exact_on_quadratics_and_leave_violations_open():
    result = certify_descent(bowl, START, assuming="strongly_convex", steps=30)
    assert result.estimated == ("L", "mu")
    assert result.constants["L"] == pytest.approx(25.0)
    assert result.constants["mu"] == pytest.approx(1.0)
    assert result.held
    violated = certify_descent(bowl, START, mu=3.0, steps=100)
    assert violated.estimated == ("L",)
    assert violated.tightness > 1
    assert violated.held is None
    along = certify_descent(bowl, START, assuming="pl", L=25.0, steps=200)
    assert along.estimated == ("mu",)
    assert along.constants["mu"] == pytest.approx(1.0, abs=0.01)
    assert along.held


def test_the_optimum_is_found_to_high_precision():
    at = torch.tensor([0.3, -0.7, 2.0], **DOUBLE)

    def shifted(x: Tensor) -> Tensor:
        return (x - at).cosh().sum() + (x - at).square().sum()

    given = certify_descent(shifted, START, L=50.0, mu=3.0, minimum=3.0, steps=60)
    found = certify_descent(shifted, START, L=50.0, mu=3.0, steps=60)
    torch.testing.assert_close(given.gap, found.gap, rtol=0, atol=1e-14)
    assert found.estimated == ()
    flat = certify_descent(lambda x: (x[0] - x[1]).square() / 2, START[:2], L=2.0, steps=5)
    assert flat.constants["distance"] == pytest.approx(3 / math.sqrt(2))  # to the next minimiser


def test_what_has_no_minimum_is_said_to_have_none():
    with pytest.warns(ConvergenceWarning, match="no minimiser was found"):
        result = certify_descent(lambda x: x.sum(), START, L=1.0, steps=5)
    assert "minimum" in result.estimated


def test_heavy_ball_is_refused_where_it_cycles():
    start = torch.tensor([3.3], **DOUBLE)
    with pytest.raises(ValueError, match="f must be quadratic for heavy_ball, which can cycle"):
        certify_descent(cycling, start, method="heavy_ball", L=25.0, mu=1.0)
    x, path = start.clone().requires_grad_(), []
    optimizer = HeavyBall([x], lr=1 / 9, momentum=4 / 9)
    for _ in range(300):
        optimizer.zero_grad()
        cycling(x).backward()
        optimizer.step()
        path.append(x.item())
    assert path[-3:] == pytest.approx(path[-6:-3], abs=1e-12)  # with the period 3
    assert max(map(abs, path[-3:])) > 1
    for method in ("gradient_descent", "nesterov"):
        assert certify_descent(cycling, start, method=method, L=25.0, mu=1.0).held


def test_nesterov_is_the_optimiser_of_this_room():
    y = START.clone().requires_grad_()
    optimizer = Nesterov([y], lr=1 / 25)
    for _ in range(10):
        optimizer.zero_grad()
        bowl(y).backward()
        optimizer.step()
    with optimizer.iterates():
        value = bowl(y).item()
    result = certify_descent(bowl, START, method="nesterov", L=25.0, steps=10)
    assert result.gap[-1] == pytest.approx(value)


def test_a_bound_below_rounding_says_nothing():
    at = torch.tensor([3.0, 4.0], dtype=torch.float32)
    result = certify_descent(lambda x: 1e6 + (x - at).square().sum() / 2, at + 1e-3, L=1.0, steps=3)
    assert result.held is None
