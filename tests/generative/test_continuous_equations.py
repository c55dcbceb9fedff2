"""Stochastic equations and the integrator of their flow, against quadrature and SciPy."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import RK45, quad, solve_ivp

from vademecum.generative import VESDE, VPSDE
from vademecum.generative.continuous import _runge_kutta as pair

F64 = torch.float64


@pytest.mark.parametrize("process", [VPSDE(), VPSDE(beta_min=3.0, beta_max=2.0),
                                     VESDE(sigma_min=0.2, sigma_max=5.0)])  # fmt: skip
def test_marginals_solve_the_moment_equations(process):
    """With a drift a(t) x the scale has s' = a s and the variance V' = 2 a V + g^2."""

    def slope(t, y):
        time = torch.tensor(t, dtype=F64)
        a = float(process.drift(torch.ones(1, 1, dtype=F64), time))
        return [a * y[0], 2 * a * y[1] + float(process.diffusion(time)) ** 2]

    times = np.array([0.1, 0.45, 1.0])
    found = solve_ivp(slope, (0, 1), [1.0, 0.0], t_eval=times, rtol=1e-10, atol=1e-12).y
    scale, std = process.marginal(torch.tensor(times))
    np.testing.assert_allclose(scale, found[0], rtol=1e-8)
    np.testing.assert_allclose(std**2, found[1], rtol=1e-8)
    clean = process.marginal(torch.zeros(2))
    assert clean.scale.tolist() == [1, 1]
    assert clean.std.tolist() == [0, 0]
    assert clean.std.dtype == F64


def test_vpsde_and_vesde_have_the_rates_they_are_given():
    t = torch.tensor([0.0, 0.3, 1.0])
    vp = VPSDE(beta_min=1.0, beta_max=5.0)
    assert vp.diffusion(t).square().tolist() == pytest.approx([1.0, 2.2, 5.0])
    total = quad(lambda s: 1 + 4 * s, 0, 0.3)[0]
    assert float(vp.marginal(t[1]).scale) == pytest.approx(math.exp(-total / 2))
    ve = VESDE(sigma_min=0.5, sigma_max=2.0)
    assert ve.marginal(t).std.square().tolist() == pytest.approx([0, 0.25 * (16**0.3 - 1), 3.75])
    x = torch.randn(3, 2, 2)
    torch.testing.assert_close(vp.drift(x, t), -0.5 * torch.tensor([1, 2.2, 5]).view(3, 1, 1) * x)
    assert not ve.drift(x, t).any()
    assert repr(vp) == "VPSDE(beta_min=1.0, beta_max=5.0)"
    assert repr(ve) == "VESDE(sigma_min=0.5, sigma_max=2.0)"


@pytest.mark.parametrize(
    ("process", "variance"), [(VPSDE(), 1.0), (VESDE(sigma_min=3.0, sigma_max=5.0), 17.0)]
)
def test_the_prior_is_what_unit_data_become(process, variance):
    x = process.sample_prior((20_000, 2), dtype=F64, generator=torch.Generator().manual_seed(0))
    assert float(x.square().mean()) == pytest.approx(variance, rel=6 * (2 / 40_000) ** 0.5)
    law = torch.distributions.Normal(0.0, variance**0.5)
    for given in (x, x[:12].reshape(2, 3, 4)):
        found = process.prior_log_prob(given)
        torch.testing.assert_close(found, law.log_prob(given).flatten(1).sum(1))
    assert process.sample_prior((2, 3)).dtype == torch.float32


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: VPSDE(beta_min=0.0), "beta_min must be > 0, got 0.0"),
        (lambda: VPSDE(beta_max=math.nan), "beta_max must be > 0, got nan"),
        (lambda: VESDE(sigma_min=-1.0), "sigma_min must be > 0, got -1.0"),
        (lambda: VESDE(sigma_min=2.0, sigma_max=1.0), "sigma_max must be > 2, got 1.0"),
    ],
)
def test_bad_equations_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_pair_is_that_of_scipy():
    np.testing.assert_allclose(pair.NODES[:6], RK45.C)
    for row, own in zip(RK45.A[1:], pair.STAGES[:5], strict=True):
        np.testing.assert_allclose(own, row[: len(own)])
    np.testing.assert_allclose(pair.STAGES[5], RK45.B)
    np.testing.assert_allclose(pair.ERRORS, -RK45.E, rtol=1e-12)


@pytest.mark.parametrize(("start", "end"), [(0.0, 2.0), (2.0, 0.5)])
def test_integration_follows_scipy_both_ways(start, end):
    y = torch.tensor([[1.0, 0.5], [-2.0, 0.1]], dtype=F64)

    def field(t, y):
        return torch.stack([y[:, 1] * math.cos(t), -y[:, 0] * y[:, 1].cos()], 1)

    def flat(t, y):
        return field(t, torch.tensor(y).reshape(2, 2)).flatten().numpy()

    wanted = solve_ivp(flat, (start, end), y.flatten().numpy(), rtol=1e-12, atol=1e-12).y[:, -1]
    errors = []
    for tol in (1e-4, 1e-6, 1e-8):
        found = pair.integrate(field, y, start, end, tol=tol, max_iter=500)
        assert found.reached == end
        errors.append(float(np.abs(found.y.flatten().numpy() - wanted).max()))
        assert errors[-1] < 20 * tol  # a few steps' errors, which grow little here
    assert errors[2] > 1e-12  # no more work than was asked for
    assert found.evaluations < 400


def test_integration_takes_no_more_evaluations_than_scipy_and_counts_them():
    """One example with SciPy's norm of the error: the two differ only in how steps grow."""
    calls = []

    def field(t, y):
        calls.append(t)
        return torch.stack([y[:, 1], 5 * (1 - y[:, 0] ** 2) * y[:, 1] - y[:, 0]], 1)  # van der Pol

    def flat(t, y):
        return [y[1], 5 * (1 - y[0] ** 2) * y[1] - y[0]]

    y = torch.tensor([[2.0, 0.0]], dtype=F64)
    found = pair.integrate(field, y, 0.0, 20.0, tol=1e-6, max_iter=5000)
    theirs = solve_ivp(flat, (0, 20), [2.0, 0.0], rtol=1e-6, atol=1e-6)
    assert found.evaluations == len(calls)
    assert found.evaluations < 1.2 * theirs.nfev
    np.testing.assert_allclose(found.y[0], theirs.y[:, -1], atol=1e-3)


def test_an_error_is_measured_by_the_larger_of_both_states():
    """At 3 before and 9 after, with a tolerance of 0.1, an error of 1 is one time what is allowed.

    The other example has half of that in each of two entries; the worst of both counts.
    """
    y = torch.tensor([[3.0, 0.0], [0.0, 1.0]], dtype=F64)
    after = torch.tensor([[-9.0, 0.0], [0.0, 0.0]], dtype=F64)
    error = torch.tensor([[1.0, 0.0], [0.05, 0.1]], dtype=F64)
    assert pair._size(error, y, after, 0.1) == pytest.approx(math.sqrt(1 / 2))
    assert pair._size(error, after, y, 0.1) == pytest.approx(math.sqrt(1 / 2))
    assert pair._size(error[1:], y[1:], after[1:], 0.1) == pytest.approx(1 / 2)


def test_the_end_is_reached_to_the_last_digit():
    """What is left of a way, added to where one is, may miss its end by a rounding error."""
    times = np.random.default_rng(0).random((500, 2))
    for start, end in times.tolist():
        found = pair.integrate(lambda t, y: 0 * y, torch.ones(1, 1), start, end, tol=0.1,
                               max_iter=50)  # fmt: skip
        assert found.reached == end


def test_a_step_into_what_is_no_number_is_taken_again_and_shorter():
    """y' = -sqrt(y) from 1 is (1 - t / 2)^2; where a step goes below 0 there is no slope."""
    seen = []

    def field(t, y):
        seen.append(bool((y < 0).any()))
        return -y.sqrt()

    one = torch.ones(1, 1, dtype=F64)
    found = pair.integrate(field, one, 0.0, 1.9, tol=1e-3, max_iter=100)
    assert any(seen)
    assert found.reached == 1.9
    assert float(found.y) == pytest.approx(0.05**2, abs=1e-3)


def test_steps_across_a_front_are_refused():
    """Where the slope jumps from 1 to 100 a step that was right before it is far too long."""

    def field(t, y):
        return 1 + 99 / (1 + torch.exp(torch.tensor((1 - t) / 0.01, dtype=F64))) + 0 * y

    y = torch.zeros(1, 1, dtype=F64)
    found = pair.integrate(field, y, 0.0, 1.5, tol=1e-6, max_iter=500)
    wanted = 1.5 + 99 * 0.5  # what the rounded corner adds and takes is the same
    assert float(found.y) == pytest.approx(wanted, rel=1e-5)


def test_integration_is_as_exact_as_its_worst_example():
    """A fast example among a thousand slow ones: an error in the mean would overlook it."""
    rates = torch.ones(1000, 1, dtype=F64)
    rates[7] = 300.0
    y = torch.ones(1000, 1, dtype=F64)
    found = pair.integrate(lambda t, y: -rates * (y - math.cos(t)), y, 0.0, 1.0, tol=1e-6,
                           max_iter=1000)  # fmt: skip
    a = 300.0
    wanted = (a * a * math.cos(1) + a * math.sin(1) + math.exp(-a)) / (a * a + 1)
    assert float(found.y[7]) == pytest.approx(wanted, abs=2e-6)


def test_integration_stops_where_it_cannot_go_on():
    y = torch.ones(1, 1, dtype=F64)
    blowing = pair.integrate(lambda t, y: y**2, y, 0.0, 2.0, tol=1e-6, max_iter=3000)  # 1 / (1 - t)
    assert blowing.reached == pytest.approx(1.0, abs=1e-3)
    nan = pair.integrate(lambda t, y: y * math.nan, y, 0.0, 1.0, tol=1e-6, max_iter=20)
    assert nan.reached == 0.0
    assert nan.y.equal(y)
    assert pair.integrate(lambda t, y: y, y, 0.3, 0.3, tol=1e-6, max_iter=2).evaluations == 0
