"""The lasso against scikit-learn, its optimality conditions, and a certificate by hand."""

import inspect
import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso as Reference
from sklearn.linear_model import lasso_path as reference_path
from sklearn.utils.estimator_checks import parametrize_with_checks

from vademecum.linear._working_set import START, WorkingSet
from vademecum.linear.coordinate_descent import descend, soft_threshold
from vademecum.linear.lasso import Lasso, lasso_path


@parametrize_with_checks([Lasso(alpha=0.1)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def data(n, d, informative=5, rho=0.0, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    for j in range(1, d):
        x[:, j] = rho * x[:, j - 1] + math.sqrt(1 - rho**2) * x[:, j]
    w = np.zeros(d)
    w[rng.choice(d, min(informative, d), replace=False)] = rng.normal(size=min(informative, d))
    return x + 2, x @ w + 0.5 * rng.normal(size=n) + 3


def top(x, y):
    return np.abs((x - x.mean(0)).T @ (y - y.mean())).max() / len(y)


def test_defaults():
    assert Lasso().get_params() == {
        "alpha": 1.0, "fit_intercept": True, "tol": 1e-6, "max_iter": 10_000,
    }  # fmt: skip
    x, y = np.array([[-1.0], [1.0]]), np.array([2.0, 6.0])
    found = Lasso().fit(x, y)
    assert (found.coef_[0], found.intercept_) == pytest.approx((2 - 1.0, 4.0))
    x, y = data(60, 200, rho=0.9)
    power = ((y - y.mean()) ** 2).mean()
    for share in (0.1, 0.03):
        alpha = share * top(x, y)
        ours = Lasso(alpha=alpha).fit(x, y)
        assert ours.dual_gap_ <= 1e-6 * power
        with pytest.warns(ConvergenceWarning, match=f"wanted {1e-6 * power:.3g}; max_iter=1, tol"):
            assert not Lasso(alpha=alpha, max_iter=1).fit(x, y).converged_
        assert ours.converged_


def test_defaults_of_the_path():
    x, y = data(60, 20)
    path = lasso_path(torch.tensor(x), torch.tensor(y))
    alphas = top(x, y) * np.geomspace(1, 1e-3, 100)
    np.testing.assert_allclose(path.alphas, alphas)
    _, coefs, _ = reference_path(x - x.mean(0), y - y.mean(), alphas=alphas, tol=1e-8)
    power = ((y - y.mean()) ** 2).mean()
    assert path.gaps.max() <= 1e-6 * power
    assert path.converged.all()
    np.testing.assert_allclose(path.coefs.T, coefs, atol=0.02)
    residuals = torch.tensor(y)[:, None] - torch.tensor(x) @ path.coefs.T - path.intercepts
    np.testing.assert_allclose(residuals.mean(0), 0, atol=1e-9)
    with pytest.warns(ConvergenceWarning, match=f"wanted {1e-6 * power:.3g}; max_iter=1, tol"):
        cut = lasso_path(torch.tensor(x), torch.tensor(y), alphas=torch.tensor([0.01]), max_iter=1)
    assert cut.converged.tolist() == [False]


CASES = [(100, 10, 0.0), (100, 10, 0.95), (60, 200, 0.0), (60, 200, 0.9), (5, 3, 0.0), (40, 1, 0.0),
         (30, 30, 0.5), (500, 300, 0.5)]  # fmt: skip


@pytest.mark.parametrize("share", [0.9, 0.3, 0.03])
@pytest.mark.parametrize(("n", "d", "rho"), CASES)
def test_equals_scikit_learn(n, d, rho, share):
    x, y = data(n, d, rho=rho)
    alpha = share * top(x, y)
    ours = Lasso(alpha=alpha, tol=1e-12).fit(x, y)
    theirs = Reference(alpha=alpha, tol=1e-12, max_iter=100_000).fit(x, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-5)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-4)
    np.testing.assert_allclose(ours.predict(x), theirs.predict(x), atol=1e-5)
    assert np.count_nonzero(ours.coef_) == np.count_nonzero(theirs.coef_)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("share", [0.5, 0.05, 0.001])
@pytest.mark.parametrize(("n", "d", "rho"), CASES)
def test_the_gap_is_certified(n, d, rho, share, intercept):
    """The primal value less that of a dual point, both written out, with nothing of ours."""
    x, y = data(n, d, rho=rho, seed=1)
    z, t = (x - x.mean(0), y - y.mean()) if intercept else (x, y)
    alpha = share * np.abs(z.T @ t).max() / n
    ours = Lasso(alpha=alpha, fit_intercept=intercept, tol=1e-9).fit(x, y)
    r = y - ours.predict(x)
    primal = r @ r / (2 * n) + alpha * np.abs(ours.coef_).sum()
    theta = r * min(1.0, alpha * n / np.abs(z.T @ r).max())
    dual = (t @ t - (t - theta) @ (t - theta)) / (2 * n)
    assert primal - dual <= 2e-9 * (t @ t) / n
    assert ours.dual_gap_ <= 1e-9 * (t @ t) / n


@pytest.mark.parametrize("copies", [1, 3])
def test_columns_that_depend_on_each_other(copies):
    x, y = data(50, 4)
    many = np.concatenate([x] * (1 + copies) + [np.full((50, 1), 0.1)], 1)
    alpha = 0.1 * top(x, y)
    ours, single = (Lasso(alpha=alpha, tol=1e-11).fit(v, y) for v in (many, x))
    assert np.abs(ours.coef_).sum() == pytest.approx(np.abs(single.coef_).sum(), rel=1e-4)
    np.testing.assert_allclose(ours.predict(many), single.predict(x), atol=1e-3)
    assert ours.coef_[-1] == 0


def test_trivial_targets():
    x, _ = data(20, 3)
    constant = Lasso(alpha=0.1).fit(x, np.full(20, 4.0))
    assert constant.coef_.tolist() == [0.0, 0.0, 0.0]
    assert (constant.intercept_, constant.n_iter_) == (4.0, 0)
    x, y = data(30, 4)
    assert not Lasso(alpha=1.0001 * top(x, y), tol=1e-12).fit(x, y).coef_.any()
    assert Lasso(alpha=0.9999 * top(x, y), tol=1e-12).fit(x, y).coef_.any()


def test_the_working_set_is_small():
    x, y = (torch.from_numpy(v) for v in data(400, 1500))
    problem = WorkingSet(x, y, centre=True, tol=1e-8, max_iter=1000)
    problem.solve([0.2 * problem.last.alpha])
    k = len(problem.features)
    assert k <= 2 * START
    z = x - x.mean(0)
    torch.testing.assert_close(problem.rows[:k].T, z[:, problem.features])
    np.testing.assert_allclose(
        problem.gram, problem.rows[:k] @ problem.rows[:k].T / 400, atol=1e-12
    )


def test_lasso_path_equals_scikit_learn():
    x, y = data(80, 40, rho=0.5)
    z = x - x.mean(0)
    options: Any = {"alphas": 30, "eps": 1e-2}  # scikit-learn declares text
    alphas, coefs, _ = reference_path(z, y - y.mean(), tol=1e-12, max_iter=10**5, **options)
    tensors = torch.from_numpy(x), torch.from_numpy(y)
    path = lasso_path(*tensors, alphas=30, ratio=1e-2, tol=1e-12)
    np.testing.assert_allclose(path.alphas, alphas)
    np.testing.assert_allclose(path.coefs.T, coefs, atol=1e-5)
    assert not path.coefs[0].any()
    torch.testing.assert_close(path.intercepts, tensors[1].mean() - path.coefs @ tensors[0].mean(0))
    assert float(path.gaps.max()) <= 1e-12 * float(np.var(y))
    upwards = lasso_path(*tensors, alphas=path.alphas.flip(0), tol=1e-12)
    torch.testing.assert_close(upwards.coefs.flip(0), path.coefs, atol=1e-6, rtol=1e-6)


def test_sweeps_are_limited():
    x, y = data(60, 200, rho=0.9)
    alpha = 0.001 * top(x, y)
    with pytest.warns(
        ConvergenceWarning, match=r"duality gap .* after 1 sweeps .* max_iter=1, tol"
    ):
        cut = Lasso(alpha=alpha, max_iter=1).fit(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        best = Lasso(alpha=alpha, tol=1e-10).fit(x, y)
    value = [
        ((y - m.predict(x)) ** 2).mean() / 2 + alpha * np.abs(m.coef_).sum() for m in (cut, best)
    ]
    assert value[1] < value[0] <= value[1] + cut.dual_gap_


def test_single_precision():
    x, y = (torch.from_numpy(v).float() for v in data(200, 50))
    alpha = 0.1 * top(x.numpy(), y.numpy())
    single = Lasso(alpha=float(alpha)).fit(x, y)
    double = Lasso(alpha=float(alpha)).fit(x.double(), y.double())
    assert single.coef_.dtype == single.predict(x).dtype == torch.float32
    torch.testing.assert_close(single.coef_.double(), double.coef_, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    x, y = (torch.from_numpy(v).to(dtype) for v in data(200, 50))
    half, single = (Lasso(alpha=0.1).fit(*v) for v in ((x, y), (x.float(), y.float())))
    assert half.coef_.dtype == dtype
    assert torch.equal(half.coef_, single.coef_.to(dtype))


def test_what_single_precision_cannot_certify_is_said():
    x, y = (torch.from_numpy(v).float() for v in data(200, 50))
    with pytest.warns(ConvergenceWarning, match="duality gap"):
        Lasso(alpha=0.01, tol=1e-15).fit(x, y)


def test_descend_solves_two_coordinates_by_hand():
    gram, c, w = np.array([[1.0, 0.5], [0.5, 1.0]]), np.array([2.0, 2.0]), np.zeros(2)
    options = {"alpha": 0.5, "power": 5.0, "enough": 1e-14, "max_iter": 50}
    descend(gram, c, w, **options)
    np.testing.assert_allclose(w, 1.0)  # 1.5 w = 2 - 0.5


def test_soft_threshold_is_the_proximal_map():
    z, grid = torch.randn(50).double(), torch.linspace(-4, 4, 80_001).double()
    for tau in (0.0, 0.3, 1.0):
        best = grid[((grid[:, None] - z) ** 2 / 2 + tau * grid.abs()[:, None]).argmin(0)]
        torch.testing.assert_close(soft_threshold(z, tau), best, atol=1e-4, rtol=0)
    each = torch.tensor([0.5, 2.0])
    assert soft_threshold(torch.tensor([1.0, -3.0]), each).tolist() == [0.5, -1.0]


X, Y = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]]), torch.tensor([0.0, 1.0, 0.0])
ERRORS = [
    ({"alpha": 0.0}, X, Y, "alpha must be > 0, got 0"),
    ({"alpha": math.inf}, X, Y, "alpha must be finite, got inf"),
    ({"tol": 0.0}, X, Y, "tol must be > 0, got 0"),
    ({"max_iter": 0}, X, Y, "max_iter must be >= 1, got 0"),
    ({}, X, Y[:, None], r"y must have shape \(3,\), got shape \(3, 1\)"),
    ({}, X, Y * math.inf, "y must be finite"),
    ({}, X * math.nan, Y, "X must be finite"),
    ({}, X.double() * 1e200, Y.double(), "X must be smaller: the squares of its entries overflow"),
    ({"alpha": 1e-210}, X.double() * 1e-200, Y.double(), "X must be larger: the squares of a col"),
    ({}, X, Y.double() * 1e60, "y must be smaller: it overflows the torch.float32 of X"),
]


@pytest.mark.parametrize(("options", "x", "y", "message"), ERRORS)
def test_errors(options, x, y, message):
    with pytest.raises(ValueError, match=message):
        Lasso(**options).fit(x, y)


PATH_ERRORS = [
    ({"alphas": 0}, X, "alphas must be >= 1, got 0"),
    ({"alphas": torch.tensor([1.0, -1.0])}, X, "alphas must be > 0, got -1"),
    ({"ratio": 1.0}, X, "ratio must be < 1, got 1"),
    ({"tol": -1.0}, X, "tol must be > 0, got -1"),
    ({}, X[0], "x must have 2 axes"),
    ({}, X * math.nan, "x must be finite"),
]


@pytest.mark.parametrize(("options", "x", "message"), PATH_ERRORS)
def test_errors_of_the_path(options, x, message, unchecked):
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(lasso_path)(x, Y, **options)


@pytest.mark.parametrize(
    ("z", "threshold", "message"),
    [
        (X, -1.0, "threshold must be >= 0, got -1"),
        (X, torch.tensor([1.0, -2.0]), "threshold must be >= 0, got -2"),
        (X * math.nan, 1.0, "z must be finite"),
        (X.long(), 1.0, "z must be floating point"),
    ],
)
def test_errors_of_the_threshold(z, threshold, message, unchecked):
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(soft_threshold)(z, threshold)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize(("n", "d", "rho"), CASES)
def test_cuda(n, d, rho):
    x, y = (torch.from_numpy(v) for v in data(n, d, rho=rho))
    gpu, cpu = (lasso_path(*v, alphas=10, tol=1e-12) for v in ((x.cuda(), y.cuda()), (x, y)))
    assert gpu.coefs.is_cuda
    torch.testing.assert_close(gpu.coefs.cpu(), cpu.coefs, atol=1e-5, rtol=1e-5)
