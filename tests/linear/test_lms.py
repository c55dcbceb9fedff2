"""The LMS rule against the plain loop, and its bounds against what happens beyond them."""

import inspect
import math
import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from vademecum.linear.least_squares import LinearRegression
from vademecum.linear.lms import LMS, lms_rate_bounds


@parametrize_with_checks([LMS(max_iter=5000)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def data(n, d, t=1, noise=0.3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) + 1
    return x, x @ rng.normal(size=(d, t)) + 2 + noise * rng.normal(size=(n, t))


def plain_rule(x, y, rate, bias):
    w, b = np.zeros((y.shape[1], x.shape[1])), np.zeros(y.shape[1])
    for x_i, y_i in zip(x, y, strict=True):
        e = y_i - w @ x_i - b
        w += rate * np.outer(e, x_i)
        b += rate * bias * e
    return w, b


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("n", "d", "t"), [(1, 1, 1), (63, 3, 1), (64, 3, 2), (200, 10, 4)])
def test_blocks_are_the_plain_rule(n, d, t, bias):
    x, y = data(n, d, t)
    unit = LMS(rate=0.02, fit_intercept=bias).partial_fit(x, y)
    w, b = plain_rule(x, y, 0.02, bias)
    np.testing.assert_allclose(unit.coef_, w, atol=1e-12)
    np.testing.assert_allclose(unit.intercept_, b, atol=1e-12)
    again = unit.partial_fit(x[: n // 2 + 1], y[: n // 2 + 1])
    w, b = plain_rule(
        np.concatenate([x, x[: n // 2 + 1]]), np.concatenate([y, y[: n // 2 + 1]]), 0.02, bias
    )
    np.testing.assert_allclose(again.coef_, w, atol=1e-12)
    np.testing.assert_allclose(again.intercept_, b, atol=1e-12)
    assert again.n_iter_ == 2


def test_fit_is_epochs_of_the_rule():
    x, y = data(30, 2)
    with pytest.warns(ConvergenceWarning, match=r"max_iter=3 reached: .* moved the weights by \d"):
        unit = LMS(rate=0.05, max_iter=3, tol=0.0).fit(x, y[:, 0])
    w, b = plain_rule(np.tile(x, (3, 1)), np.tile(y, (3, 1)), 0.05, True)
    np.testing.assert_allclose(unit.coef_, w[0], atol=1e-12)
    assert unit.intercept_ == pytest.approx(b[0])
    assert unit.loss_ > 0
    orders = [LMS(rate=0.05, shuffle=True, random_state=k) for k in (0, 0, 1)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        a, b, c = (o.set_params(max_iter=2).fit(x, y).coef_ for o in orders)
    np.testing.assert_array_equal(a, b)
    assert (a != c).any()


def test_consistent_data_are_fitted():
    x, y = data(50, 4, noise=0.0)
    unit = LMS(tol=1e-12, max_iter=100_000).fit(x, y)
    best = LinearRegression().fit(x, y)
    np.testing.assert_allclose(unit.coef_, best.coef_, atol=1e-8)
    assert unit.rate_ == pytest.approx(1 / ((x**2).sum(1) + 1).max())
    assert unit.loss_ < 1e-16


def test_a_smaller_rate_ends_nearer_to_least_squares():
    x, y = data(50, 4)
    best = LinearRegression().fit(x, y).coef_
    off = [
        np.abs(LMS(rate=rate, tol=1e-9, max_iter=10**5).fit(x, y).coef_ - best).max()
        for rate in (0.05, 0.005)
    ]
    assert 0 < off[1] < off[0] / 5


def test_bounds_by_hand_and_by_behaviour():
    x = torch.tensor([[2.0, 0.0], [0.0, 1.0]]).double()
    assert lms_rate_bounds(x, fit_intercept=False) == pytest.approx((0.5, 1.0))
    assert lms_rate_bounds(0 * x, fit_intercept=False) == (math.inf, math.inf)
    z = torch.cat([x, torch.ones(2, 1)], 1)
    top = float(torch.linalg.svdvals(z)[0]) ** 2 / 2
    assert lms_rate_bounds(x) == pytest.approx((2 / 5, 2 / top))
    y = x @ torch.ones(2).double()
    below, above = (
        LMS(rate=rate, fit_intercept=False).partial_fit(x.repeat(40, 1), y.repeat(40)).coef_
        for rate in (0.45, 0.55)
    )
    assert float((below - 1).norm()) < 1e-3
    assert float((above - 1).norm()) > 1e3
    for rate, shrinks in ((0.9, True), (1.1, False)):  # in the mean over independent draws
        step = torch.eye(2) - rate * (x.T @ x) / 2
        assert bool(torch.linalg.eigvalsh(step).abs().max() < 1) == shrinks


def test_zero_examples():
    unit = LMS(fit_intercept=False).fit(np.zeros((3, 2)), [1.0, 2.0, 3.0])
    assert unit.coef_.tolist() == [0.0, 0.0]


def test_single_precision_tensors():
    x, y = (torch.from_numpy(v).float() for v in data(100, 3))
    unit = LMS().fit(x, y)
    assert unit.coef_.dtype == unit.intercept_.dtype == unit.predict(x).dtype == torch.float32
    double = LMS().fit(x.double(), y.double())
    torch.testing.assert_close(unit.coef_.double(), double.coef_, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_learns_in_single(dtype):
    x, w = torch.randn(300, 3).to(dtype), torch.tensor([[1.0], [-2.0], [0.5]])
    unit = LMS().fit(x, (x.float() @ w + 2).to(dtype))
    assert unit.coef_.dtype == unit.intercept_.dtype == dtype
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(unit.coef_.float(), w.T, atol=4 * eps, rtol=0)


def test_rates_of_data_whose_squares_underflow():
    x = torch.tensor([[1e-25], [2e-25]])
    unit = LMS(fit_intercept=False).fit(x, x[:, 0])
    assert (unit.coef_.item(), unit.rate_) == (pytest.approx(1.0), pytest.approx(2.5e49))
    x = torch.randn(9, 2, requires_grad=True)  # nor may gradients get into a number
    largest = float((x.detach() ** 2).sum(1).max() + 1)
    assert lms_rate_bounds(x).every_step == pytest.approx(2 / largest)


X, Y = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]]), torch.tensor([0.0, 1.0, 0.0])
ERRORS = [
    ({"rate": 0.0}, X, Y, "rate must be > 0, got 0"),
    ({"rate": math.inf}, X, Y, "rate must be finite, got inf"),
    (
        {"rate": 10.0},
        X,
        Y,
        r"rate must be < 0.0267 for these examples, got 10: the weights overflow",
    ),
    ({"tol": -1.0}, X, Y, "tol must be >= 0, got -1"),
    ({"max_iter": 0}, X, Y, "max_iter must be >= 1, got 0"),
    ({}, X, Y[:2], "y must have shape"),
    ({}, X * math.nan, Y, "X must be finite"),
]


@pytest.mark.parametrize(("options", "x", "y", "message"), ERRORS)
def test_errors(options, x, y, message):
    with pytest.raises(ValueError, match=message):
        LMS(**options).fit(x, y)


def test_errors_between_calls():
    unit = LMS().partial_fit(X, Y)
    with pytest.raises(ValueError, match="y must have the targets of the first call"):
        unit.partial_fit(X, Y[:, None])
    with pytest.raises(ValueError, match="X must be 2 wide"):
        unit.partial_fit(torch.ones(3, 3), Y)


@pytest.mark.parametrize(
    ("x", "message"), [(X[0], "x must have 2 axes"), (X * math.nan, "x must be finite")]
)
def test_errors_of_the_bounds(x, message, unchecked):
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(lms_rate_bounds)(x)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    x, y = (torch.from_numpy(v) for v in data(300, 5, 2))
    gpu, cpu = LMS().fit(x.cuda(), y.cuda()), LMS().fit(x, y)
    assert gpu.coef_.is_cuda
    torch.testing.assert_close(gpu.coef_.cpu(), cpu.coef_, rtol=1e-8, atol=1e-9)
    assert lms_rate_bounds(x.cuda()) == pytest.approx(lms_rate_bounds(x))
