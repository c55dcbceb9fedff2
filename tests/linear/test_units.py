"""Features and data in any unit: against the same problem in units near one.

Columns $x_j = s_j z_j$ with powers of two $s_j$ are exact, so least squares of them has the weights
of the $z_j$ divided by $s_j$. A penalty on the weights does not scale; its reference is Cholesky's
decomposition in rational arithmetic.
"""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression as Reference

from vademecum.linear import (
    LMS,
    PCA,
    Lasso,
    LinearRegression,
    LogisticRegression,
    RidgeRegression,
    SoftmaxRegression,
    lasso_path,
    lms_rate_bounds,
    whiten,
)

COLUMNS = 2.0 ** np.array([27, -27, 0, 13, -13])  # from 1e-8 to 1e8
WHOLE = [(np.float32, 2.0**-80), (np.float32, 2.0**80), (np.float64, 2.0**-80),
         (np.float64, 2.0**252)]  # fmt: skip


def plain(n=40, d=5, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.integers(-8, 9, (n, d)) / 4.0
    return x, np.round(x @ rng.normal(size=d) + rng.normal(size=n), 2) + 1


def exact_ridge(x, y, alpha, intercept=True):
    """The weights by elimination in rational arithmetic."""
    n, d = x.shape
    rows = [[Fraction(v) for v in row] for row in x.tolist()]
    targets = [Fraction(v) for v in y.tolist()]
    means = [sum(column) / n * intercept for column in zip(*rows, strict=True)]
    z = [[v - m for v, m in zip(row, means, strict=True)] for row in rows]
    r = [v - sum(targets) / n * intercept for v in targets]
    a: list[list[Any]]
    a = [[sum(row[i] * row[j] for row in z) + (i == j) * Fraction(alpha) for j in range(d)]
         + [sum(row[i] * t for row, t in zip(z, r, strict=True))] for i in range(d)]  # fmt: skip
    for i in range(d):
        a[i] = [v / a[i][i] for v in a[i]]
        for k in range(d):
            if k != i:
                a[k] = [v - a[k][i] * p for v, p in zip(a[k], a[i], strict=True)]
    return np.array([float(row[d]) for row in a])


def test_a_large_column_does_not_hide_the_others():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(10_000, 5)) * [1e6, 1, 1, 1, 1]
    y = x[:, 1:].sum(1)
    assert RidgeRegression().fit(x, y).score(x, y) > 0.9999999
    assert RidgeRegression(alphas=[0.1, 1.0]).fit(x, y).score(x, y) > 0.9999999
    assert RidgeRegression(alphas=1.0).fit(x[:4], y[:4]).score(x[:4], y[:4]) > 0.5


@pytest.mark.parametrize("gap", [1e10, 0.0])
def test_large_columns_that_nearly_agree_do_not_hide_the_others(gap):
    rng = np.random.default_rng(0)  # as two times of a row, in nanoseconds
    x = rng.normal(size=(2000, 5)) * [1e15, 1, 1, 1, 1]
    x[:, 1] = x[:, 0] + gap * x[:, 1]
    y = x[:, 2:] @ [1.0, 2.0, 3.0]
    for alphas in (1.0, [1.0, 2.0]):
        for selection in ("gcv", "loo"):
            model = RidgeRegression(alphas=alphas, selection=selection)
            assert model.fit(x, y).score(x, y) > 0.99999
            assert model.fit(x, y, np.ones(2000)).score(x, y) > 0.99999
    wide, y = rng.normal(size=(20, 30)), rng.normal(size=20)
    wide[:, 0] *= 1e14
    found = RidgeRegression(alphas=[1.0, 10.0]).fit(wide, y).coef_path_
    for w, alpha in zip(found, (1.0, 10.0), strict=True):
        np.testing.assert_allclose(w, exact_ridge(wide, y, alpha), atol=1e-9)


def test_columns_that_agree_share_their_weight():
    x, y = plain()
    x = x[:, [0, 0, 1, 2]] * [1e6, 1e6, 1, 1]
    for alphas in (1e-9, [1e-9, 1.0]):
        w = RidgeRegression(alphas=alphas).fit(x, y).coef_
        np.testing.assert_allclose(w[0], w[1], atol=1e-15 * 1e6 * np.abs(w).max())
        assert np.abs(w[:2]).min() > 1e-7


def test_a_penalty_is_nothing_to_large_data():
    x, y = plain()
    wanted = LinearRegression().fit(x, y).coef_
    for alphas in (1.0, [1.0, 2.0]):
        found = RidgeRegression(alphas=alphas).fit(x * 2.0**252, y).coef_
        np.testing.assert_allclose(found * 2.0**252, wanted, rtol=1e-9)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("n", [40, 5, 3])
@pytest.mark.parametrize("alphas", [[1.0], [1e-4, 1.0, 100.0]])
def test_ridge_of_columns_in_any_unit(n, intercept, alphas):
    x, y = plain(n)
    x = x * COLUMNS
    path = RidgeRegression(alphas=alphas, fit_intercept=intercept).fit(x, y)
    for k, alpha in enumerate(alphas):
        wanted = exact_ridge(x, y, alpha, intercept)
        one = RidgeRegression(alphas=alpha, fit_intercept=intercept).fit(x, y)
        for found in (path.coef_path_[k], one.coef_):
            # of each feature, as a share of what all of them contribute to the fit
            error = np.abs(found - wanted) * np.abs(x).max(0)
            assert error.max() < 1e-7 * np.abs(y).max()
            assert found[[0, 3]] == pytest.approx(wanted[[0, 3]], rel=1e-6)


@pytest.mark.parametrize("selection", ["gcv", "loo"])
@pytest.mark.parametrize("n", [40, 4])
def test_scores_of_columns_in_any_unit(n, selection):
    x, y = plain(n)
    x, alphas = x * COLUMNS, [1e-2, 1.0, 100.0]
    path = RidgeRegression(alphas=alphas, selection=selection).fit(x, y)
    for score, alpha in zip(path.scores_, alphas, strict=True):
        if selection == "loo":
            rest = [np.arange(n) != i for i in range(n)]
            maps = [exact_ridge(x[r], y[r], alpha) for r in rest]
            errors = [
                y[i] - y[r].mean() - (x[i] - x[r].mean(0)) @ w
                for i, (r, w) in enumerate(zip(rest, maps, strict=True))
            ]
            assert score == pytest.approx(np.mean(np.square(errors)), rel=1e-6)
        else:
            hat = [exact_ridge(x, e, alpha) for e in np.eye(n)]
            trace = 1 + sum((x[i] - x.mean(0)) @ w for i, w in enumerate(hat))
            w = exact_ridge(x, y, alpha)
            r = y - y.mean() - (x - x.mean(0)) @ w
            assert score == pytest.approx(n * (r @ r) / (n - trace) ** 2, rel=1e-6)


@pytest.mark.parametrize("offset", [0.0, 100.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_least_squares_of_columns_in_any_unit(dtype, offset):
    x, y = (v.astype(dtype) for v in plain())
    base = Reference().fit((x + offset).astype(float), y.astype(float))
    found = LinearRegression().fit((x + dtype(offset)) * COLUMNS.astype(dtype), y)
    tol = 1e-10 if dtype == np.float64 else 2e-6
    np.testing.assert_allclose(found.coef_ * COLUMNS, base.coef_, rtol=tol, atol=tol)
    assert found.rank_ == 5


def test_the_shortest_weights_in_any_unit():
    """Of repeated columns, in units of their own: the larger one takes the square's share."""
    x, y = plain()
    x = np.c_[x, 2.0**20 * x[:, 1:2], 0 * x[:, :1] + 3] * 2.0**-10
    found, base = LinearRegression().fit(x, y), LinearRegression().fit(x[:, :5], y)
    assert found.rank_ == 5
    shares = np.array([1.0, 2.0**20]) / (1 + 2.0**40)
    np.testing.assert_allclose(found.coef_[[1, 5]], base.coef_[1] * shares, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found.coef_[[0, 2, 3, 4]], base.coef_[[0, 2, 3, 4]], rtol=1e-9)
    assert found.coef_[6] == 0


@pytest.mark.parametrize(("dtype", "unit"), WHOLE)
@pytest.mark.parametrize("n", [40, 4])
def test_regressions_of_data_in_any_unit(n, dtype, unit):
    """Penalties that scale with the data leave the same problem."""
    x, y = plain(n)
    x, y = x.astype(dtype), y.astype(dtype)
    pairs = [
        (LinearRegression(), LinearRegression()),
        (RidgeRegression(alphas=1.0), RidgeRegression(alphas=unit**2)),
        (RidgeRegression(alphas=[1.0, 3.0]), RidgeRegression(alphas=[unit**2, 3.0 * unit**2])),
        (Lasso(alpha=0.1), Lasso(alpha=0.1 * unit)),
        (LMS(fit_intercept=False), LMS(fit_intercept=False)),
    ]
    rtol, atol = (1e-4, 1e-5) if dtype == np.float32 else (1e-9, 1e-12)
    for base, scaled in pairs:
        first, second = base.fit(x, y), scaled.fit(x * dtype(unit), y)
        np.testing.assert_allclose(second.coef_ * unit, first.coef_, rtol, atol)
        np.testing.assert_allclose(second.predict(x * dtype(unit)), first.predict(x), rtol, atol)
        assert type(second.coef_[0]) is dtype


@pytest.mark.parametrize(("dtype", "unit"), WHOLE)
def test_targets_in_any_unit(dtype, unit):
    x, y = (v.astype(dtype) for v in plain())
    pairs = [
        (LinearRegression(), LinearRegression()),
        (RidgeRegression(), RidgeRegression()),
        (Lasso(alpha=0.1), Lasso(alpha=0.1 * unit)),
        (LMS(), LMS()),
    ]
    for base, scaled in pairs:
        first, second = base.fit(x, y), scaled.fit(x, y * dtype(unit))
        np.testing.assert_allclose(second.coef_ / unit, first.coef_, rtol=1e-4, atol=1e-5)


def test_lasso_of_columns_in_any_unit():
    """Given its signs the optimum is linear: solved with the columns in units near one."""
    x, y = plain(60)
    z, r, alpha = x - x.mean(0), y - y.mean(), 0.1
    single = Lasso(alpha=alpha, tol=1e-8).fit(x * COLUMNS, y).coef_
    alphas = torch.tensor([alpha]).double()
    path = lasso_path(torch.tensor(x * COLUMNS), torch.tensor(y), alphas=alphas, tol=1e-8)
    for found in (single, path.coefs[0].numpy()):
        active = found != 0
        assert active.tolist() == [True, False, True, True, False]
        own, right = z[:, active], z.T @ r / 60 - alpha * np.sign(found) / COLUMNS
        wanted = np.linalg.solve(own.T @ own / 60, right[active])
        np.testing.assert_allclose((found * COLUMNS)[active], wanted, rtol=1e-6)


@pytest.mark.parametrize("solver", ["auto", "full", "covariance_eigh", "randomized"])
@pytest.mark.parametrize(("dtype", "unit"), [*WHOLE[:3], (np.float64, 2.0**252)])
def test_components_of_data_in_any_unit(dtype, unit, solver):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(600, 40)) * 0.8 ** np.arange(40) + 1).astype(dtype)
    options = {"svd_solver": solver, "n_oversamples": 0, "iterated_power": 1, "random_state": 0}
    base, scaled = PCA(3, **options).fit(x), PCA(3, **options).fit(x * dtype(unit))
    tol = 1e-4 if dtype == np.float32 else 1e-9
    np.testing.assert_allclose(scaled.components_, base.components_, atol=tol)
    np.testing.assert_allclose(scaled.singular_values_ / unit, base.singular_values_, rtol=tol)
    ratios = scaled.explained_variance_ratio_, base.explained_variance_ratio_
    np.testing.assert_allclose(*ratios, rtol=tol)
    assert scaled.noise_variance_ / unit**2 == pytest.approx(base.noise_variance_, rel=1e-3)
    white = [p.set_params(whiten=True).transform(v) for p, v in
             ((base, x), (scaled, x * dtype(unit)))]  # fmt: skip
    np.testing.assert_allclose(white[1], white[0], atol=10 * tol)


@pytest.mark.parametrize(("dtype", "unit"), WHOLE)
def test_white_in_any_unit(dtype, unit):
    x = torch.from_numpy(plain()[0].astype(dtype))
    base, scaled = whiten(x), whiten(x * unit)
    torch.testing.assert_close(scaled.z, base.z)
    torch.testing.assert_close(scaled.inverse / unit, base.inverse)
    for method in ("pca", "zca", "cholesky"):
        columns = x.double() * 2.0 ** torch.tensor([13.0, -13.0, 0.0, 6.0, -6.0]).double()
        z = whiten(columns, method=method).z
        torch.testing.assert_close(z.T @ z / 40, torch.eye(5).double(), atol=1e-7, rtol=0)


@pytest.mark.parametrize(("dtype", "unit"), WHOLE)
def test_rates_in_any_unit(dtype, unit):
    x = torch.from_numpy(plain()[0].astype(dtype))
    bounds = [lms_rate_bounds(v, fit_intercept=False) for v in (x, x * unit)]
    assert [v * unit**2 for v in bounds[1]] == pytest.approx(list(bounds[0]), rel=1e-5)


@pytest.mark.parametrize(("dtype", "unit"), WHOLE)
@pytest.mark.parametrize("kind", [LogisticRegression, SoftmaxRegression])
def test_likelihood_in_any_unit(kind, dtype, unit):
    """The tolerance is one of the gradient, which scales with the data."""
    x, y = plain(60)
    x, y = x.astype(dtype), (y > 1).astype(int)
    options = {"fit_intercept": False}
    base = kind(weight_decay=0.01, tol=1e-9, **options).fit(x, y)
    scaled = kind(weight_decay=0.01 * unit**2, tol=1e-9 * unit, **options).fit(x * dtype(unit), y)
    tol = 1e-5 if dtype == np.float32 else 1e-7
    np.testing.assert_allclose(scaled.coef_ * unit, base.coef_, rtol=tol, atol=tol)
    assert scaled.converged_


@pytest.mark.parametrize("kind", [LogisticRegression, SoftmaxRegression])
def test_likelihood_of_columns_in_any_unit(kind):
    """No entry of the gradient exceeds the tolerance, so nothing of what it allows is missed."""
    x, y = plain(200)
    y = (y > 1).astype(int)
    units = 2.0 ** np.array([10, -10, 0, 5, -5])
    base = kind(weight_decay=0.0, tol=1e-12).fit(x, y)
    found = kind(weight_decay=0.0, tol=1e-12).fit(x * units, y)
    np.testing.assert_allclose(found.coef_ * units, base.coef_, rtol=1e-5, atol=1e-7)
