"""Multi-task regression against ridge regression, its objective, and scikit-learn's contract."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks

from vademecum.regularization import MultiTaskLinear


@parametrize_with_checks([MultiTaskLinear(), MultiTaskLinear(rank=3, fit_intercept=False)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def data(n=30, d=5, t=4, r=2, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) + 2
    W = rng.normal(size=(t, r)) @ rng.normal(size=(r, d))
    return x, x @ W.T + 0.1 * rng.normal(size=(n, t)) + np.arange(t), W


@pytest.mark.parametrize("intercept", [True, False])
def test_full_rank_and_no_penalty_is_least_squares(intercept):
    x, y, _ = data()
    ours = MultiTaskLinear(rank=4, alpha=1e-10, fit_intercept=intercept, tol=1e-16).fit(x, y)
    theirs = LinearRegression(fit_intercept=intercept).fit(x, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-5)
    np.testing.assert_allclose(ours.predict(x), theirs.predict(x), atol=1e-5)


def test_one_orthonormal_design_shrinks_singular_values():
    """Without interaction the penalty takes half of alpha off each singular value."""
    rng = np.random.default_rng(1)
    x = np.linalg.qr(rng.normal(size=(9, 4)))[0]
    y = rng.normal(size=(9, 3))
    model = MultiTaskLinear(rank=3, alpha=0.4, fit_intercept=False, tol=1e-15, max_iter=20000)
    U, s, V = np.linalg.svd(y.T @ x, full_matrices=False)
    wanted = U @ np.diag((s - 0.2).clip(min=0)) @ V
    np.testing.assert_allclose(model.fit(x, y).coef_, wanted, atol=1e-5)


def objective(W, x, y, alpha, means=True):
    x, y = (v - v.mean(0) * means for v in (x, y))
    return ((y - x @ W.T) ** 2).sum() + alpha * np.linalg.norm(W, "nuc")


@pytest.mark.parametrize("rank", [1, 2, 7])
def test_objective_is_its_formula_and_never_grows(rank):
    x, y, _ = data()
    model = MultiTaskLinear(rank=rank, alpha=0.5, tol=1e-14, max_iter=5000).fit(x, y)
    assert (model.objective_.diff() <= 1e-9).all()
    assert model.converged_
    assert model.objective_[-1] == pytest.approx(objective(model.coef_, x, y, 0.5), rel=1e-6)
    r = min(rank, 4)
    np.testing.assert_allclose(model.representation_ @ model.representation_.T, np.eye(r),
                               atol=1e-12)  # fmt: skip
    np.testing.assert_allclose(model.loadings_ @ model.representation_, model.coef_, atol=1e-10)
    assert np.linalg.matrix_rank(model.coef_, tol=1e-8) <= r
    assert (model.representation_.max(1) == np.abs(model.representation_).max(1)).all()
    again = MultiTaskLinear(rank=rank, alpha=0.5, tol=1e-14, max_iter=5000).fit(x, y)
    np.testing.assert_array_equal(again.coef_, model.coef_)  # nothing is drawn


def test_a_task_of_one_example_is_its_mean():
    x, y, _ = data(n=9)
    model = MultiTaskLinear().fit(x, y[:, 0], tasks=["a"] * 8 + ["b"])
    np.testing.assert_allclose(model.predict(x[8:], tasks=["b"]), y[8:, 0])


def test_no_other_start_finds_less():
    x, y, _ = data(r=1)
    model = MultiTaskLinear(rank=1, alpha=0.5, tol=1e-14, max_iter=5000).fit(x, y)
    rng = np.random.default_rng(2)
    starts = [rng.normal(size=9) for _ in range(5)]
    found = [minimize(lambda v: objective(np.outer(v[:4], v[4:]), x, y, 0.5), s).fun
             for s in starts]  # fmt: skip
    assert float(model.objective_[-1]) <= min(found) * (1 + 1e-6)


def test_tasks_with_examples_of_their_own():
    rng = np.random.default_rng(3)
    x, names = rng.normal(size=(60, 5)), np.array(["b", "a", "c"] * 20)
    w = {"a": 1.0, "b": -2.0, "c": 0.5}
    direction = rng.normal(size=5)
    y = np.array([w[t] for t in names]) * (x @ direction) + np.array([len(t) for t in names])
    model = MultiTaskLinear(alpha=1e-9, tol=1e-14).fit(x, y, tasks=names)
    assert model.tasks_ == ["a", "b", "c"]
    assert model.coef_.shape == (3, 5)
    for k, task in enumerate("abc"):
        np.testing.assert_allclose(model.coef_[k], w[task] * direction, atol=1e-5)
        own = Ridge(1e-9).fit(x[names == task], y[names == task])
        np.testing.assert_allclose(model.intercept_[k], own.intercept_, atol=1e-5)
    np.testing.assert_allclose(model.predict(x, tasks=names), y, atol=1e-5)
    assert model.predict(x).shape == (60, 3)
    with pytest.raises(ValueError, match="tasks must be among those of fit, got 'z'"):
        model.predict(x[:1], tasks=["z"])
    same = MultiTaskLinear(alpha=1e-9, tol=1e-14).fit(
        torch.from_numpy(x), torch.from_numpy(y), tasks=torch.tensor([1, 0, 2]).repeat(20)
    )
    np.testing.assert_allclose(same.coef_, model.coef_, atol=1e-9)
    assert isinstance(same.predict(torch.from_numpy(x), tasks=torch.zeros(60).int()), torch.Tensor)


def test_one_task_is_one_column():
    x, y, _ = data()
    model = MultiTaskLinear(alpha=1e-9, tol=1e-15).fit(x, y[:, 0])
    assert model.coef_.shape == (5,)
    assert model.predict(x).shape == (30,)
    np.testing.assert_allclose(model.coef_, LinearRegression().fit(x, y[:, 0]).coef_, atol=1e-4)
    with pytest.raises(ValueError, match="tasks must be None"):
        model.predict(x, tasks=np.zeros(30))


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"rank": 0}, "rank must be >= 1, got 0"),
        ({"alpha": 0.0}, "alpha must be > 0, got 0.0"),
        ({"tol": 0.0}, "tol must be > 0, got 0.0"),
        ({"max_iter": 0}, "max_iter must be >= 1, got 0"),
    ],
)
def test_bad_parameters(knobs, message):
    x, y, _ = data()
    with pytest.raises(ValueError, match=message):
        MultiTaskLinear(**knobs).fit(x, y)


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (torch.tensor([0.0, torch.nan]).repeat(15), "tasks must be names or numbers, got NaN"),
        ([float("nan")] * 30, "tasks must be names or numbers, got NaN"),
        (torch.zeros(30, 2), "1d array"),
        (torch.zeros(29), "inconsistent numbers of samples"),
    ],
)
def test_bad_tasks(tasks, message):
    x, y, _ = data()
    with pytest.raises(ValueError, match=message):
        MultiTaskLinear().fit(x, y[:, 0], tasks=tasks)


def test_a_fit_that_is_cut_short_warns():
    x, y, _ = data()
    with pytest.warns(ConvergenceWarning, match="max_iter=1 reached"):
        MultiTaskLinear(rank=2, max_iter=1).fit(x, y)
