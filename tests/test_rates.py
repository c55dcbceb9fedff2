"""`slope` accepts the true exponent, and neither another one nor points that are few or bent."""

import numpy as np
import pytest
from scipy import stats

from vademecum.claims import slope

X = np.geomspace(1, 1000, 30)


def noisy(seed: int, scale: float, n: int = 30) -> tuple[np.ndarray, np.ndarray]:
    x = np.geomspace(1, 1000, n)
    return x, np.exp(scale * np.random.default_rng(seed).standard_normal(n))


def test_the_tolerance_is_students_quantile_times_the_standard_error():
    x, noise = noisy(0, 0.02)
    found = slope("it", x, 5 * x**-0.5 * noise, -0.5)
    assert found.holds
    *_, error = stats.linregress(np.log(x), np.log(x**-0.5 * noise))
    assert found.tol == pytest.approx(stats.t.isf(0.5e-6, 28) * error, rel=1e-6)


def test_the_right_rate_holds_for_every_draw_and_one_a_fifth_off_never():
    for seed in range(200):
        x, noise = noisy(seed, 0.03)
        assert slope("it", x, x**-0.5 * noise, -0.5).holds
        assert slope("it", x, x**-0.5 * noise, -0.6).refutes
        assert slope("it", x, x**-0.5 * noise, -0.4).refutes


@pytest.mark.parametrize("rate", [-1.0, -0.5, 1.0])
def test_noise_does_not_make_it_accept_another_rate(rate):
    """A constant offered as a power: the slack is capped, whatever the noise."""
    accepted = 0
    for seed in range(200):
        x, noise = noisy(seed, 0.5, n=8)
        found = slope("it", x, noise, rate)
        assert found.tol <= 0.1 * max(abs(rate), 0.5) + 1e-9
        accepted += found.holds
    # the fitted exponent errs by 0.5 / sqrt(sum of squares of log x) = 0.08 in the standard error
    assert accepted == 0


@pytest.mark.parametrize("rate", [-1.2, -1.0, -0.6, -0.1, 0.0])
def test_bent_points_fit_no_rate(rate):
    assert slope("it", X, 1 / X + 0.01, rate).refutes
    assert slope("it", X, X + 0.01 * X**2, -rate).refutes


def test_one_sided_rates():
    assert slope("it", X, X**-0.5, -0.6, relation=">=").holds
    assert slope("it", X, X**-0.5, -0.4, relation=">=").refutes
    assert slope("it", X, X**-0.5, -0.4, relation="<=").holds
    assert slope("it", X, 1 / X + 0.01, -0.9, relation="<=").refutes  # flat in the end


def test_a_derived_bias_widens_the_tolerance():
    assert slope("it", X, X**-0.5, -0.58).refutes
    assert slope("it", X, X**-0.5, -0.58, tol=0.1).holds


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X[:7], X[:7], "at least 8 pairs, got 7 of x and 7 of y"),
        (X, X[:8], "at least 8 pairs, got 30 of x and 8 of y"),
        (X[:19], X[:19], "at least 2 decades, got 1.86"),
        (np.ones(8), np.ones(8), "at least 2 decades, got 0"),
    ],
)
def test_few_points_or_a_short_range_are_refused(x, y, message):
    with pytest.raises(ValueError, match=message):
        slope("it", x, y, 1.0)
