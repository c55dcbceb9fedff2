"""Ridge regression against scikit-learn, dense formulas, and examples left out one by one."""

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from vademecum.linear import _ridge_system as module
from vademecum.linear._moments import BLOCK
from vademecum.linear.ridge import RidgeRegression

ALPHAS = [10.0, 0.1, 1.0, 300.0]


@parametrize_with_checks(
    [
        RidgeRegression(),
        RidgeRegression(alphas=ALPHAS),
        RidgeRegression(alphas=ALPHAS, selection="loo"),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def data(n, d, t=None, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 3
    return x, rng.normal(size=n if t is None else (n, t)) + 1


CASES = [(50, 5, None), (50, 5, 3), (10, 30, None), (10, 30, 2), (20, 20, None), (6, 1, None),
         (2, 1, None), (BLOCK + 9, 3, 2)]  # fmt: skip


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("n", "d", "t"), CASES)
def test_equals_scikit_learn_at_every_penalty(n, d, t, intercept):
    x, y = data(n, d, t)
    path = RidgeRegression(alphas=ALPHAS, fit_intercept=intercept).fit(x, y)
    for k, alpha in enumerate(ALPHAS):
        theirs = Ridge(alpha=alpha, fit_intercept=intercept).fit(x, y)
        one = RidgeRegression(alphas=alpha, fit_intercept=intercept).fit(x, y)
        for coef, b in ((path.coef_path_[k], path.intercept_path_[k]), (one.coef_, one.intercept_)):
            np.testing.assert_allclose(coef, theirs.coef_, rtol=1e-7, atol=1e-9)
            np.testing.assert_allclose(b, theirs.intercept_, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(one.predict(x), theirs.predict(x), rtol=1e-7, atol=1e-8)
        assert one.alpha_ == alpha


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("n", "d", "t"), CASES[:6])
def test_gcv_is_its_dense_formula(n, d, t, intercept):
    x, y = data(n, d, t)
    path = RidgeRegression(alphas=ALPHAS, fit_intercept=intercept).fit(x, y)
    z = x - intercept * x.mean(0)
    for score, alpha in zip(path.scores_, ALPHAS, strict=True):
        hat = z @ np.linalg.solve(z.T @ z + alpha * np.eye(d), z.T) + intercept / n
        r = y - hat @ y
        expected = (r**2).sum() / n / (1 - np.trace(hat) / n) ** 2
        assert score == pytest.approx(expected, rel=1e-6)
    assert path.alpha_ == ALPHAS[path.scores_.argmin()]
    np.testing.assert_array_equal(path.coef_, path.coef_path_[path.scores_.argmin()])


@pytest.mark.parametrize("noise", [1e-3, 1e-5])
def test_gcv_of_a_good_fit_in_single_precision(noise):
    """Where the residuals are a millionth of the targets, their square is lost in that of these.

    The score is that of the weights found, which are returned rounded: by 2^-24 of each weight, so
    that the squares of the residuals, of slope 2 alpha w in the weights, are off by 2^-23 alpha
    |w|^2. For the least squares here, 2 n noise^2 or, for alpha = 0.1, alpha^2 |w|^2 / n more, that
    is below one per cent; the rounding of the residuals themselves adds its square, a fifth.
    """
    x = torch.randn(2 * BLOCK, 4) + 1
    y = x @ torch.ones(4, 2) + noise * torch.randn(2 * BLOCK, 2)
    alphas = torch.tensor([100.0, 0.1, 0.01])
    found = RidgeRegression(alphas=alphas).fit(x, y)
    z, targets = (v.double() - v.double().mean(0) for v in (x, y))
    residuals = targets - z @ found.coef_path_.double().mT
    spectrum = torch.linalg.eigvalsh(z.T @ z)
    freedom = len(x) - 1 - (spectrum / (spectrum + alphas[:, None])).sum(1)
    expected = len(x) * residuals.square().sum((1, 2)) / freedom**2
    torch.testing.assert_close(found.scores_.double(), expected, rtol=1e-2, atol=0)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("n", "d", "t"), [(12, 3, None), (12, 3, 2), (6, 9, None), (7, 7, 2)])
def test_leaving_one_out_is_just_that(n, d, t, intercept):
    x, y = data(n, d, t)
    path = RidgeRegression(alphas=ALPHAS, fit_intercept=intercept, selection="loo").fit(x, y)
    for score, alpha in zip(path.scores_, ALPHAS, strict=True):
        errors = []
        for i in range(n):
            rest = np.arange(n) != i
            fit = Ridge(alpha=alpha, fit_intercept=intercept).fit(x[rest], y[rest])
            errors.append(((y[i] - fit.predict(x[i : i + 1])[0]) ** 2).sum())
        assert score == pytest.approx(np.mean(errors), rel=1e-6)
    theirs = RidgeCV(alphas=ALPHAS, fit_intercept=intercept).fit(x, y)
    assert path.alpha_ == theirs.alpha_
    np.testing.assert_allclose(path.predict(x), theirs.predict(x), rtol=1e-7)


@pytest.mark.parametrize(("n", "d"), [(300, 6), (8, 20)])
def test_single_precision_gives_way_to_double_where_a_penalty_is_small(n, d, monkeypatch):
    dtypes = []
    for name in ("_primal", "_dual"):
        inner = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda x, y, c, dtype, f=inner: dtypes.append(dtype) or f(x, y, c, dtype)
        )
    x, y = (torch.from_numpy(v).float() for v in data(n, d))
    x = torch.cat([x, x[:, :1]], 1)  # singular, so that rounding matters
    RidgeRegression(alphas=1.0).fit(x, y)
    assert dtypes == [torch.float32]
    small = RidgeRegression(alphas=1e-5).fit(x, y)
    assert dtypes == [torch.float32, torch.float32, torch.float64]
    exact = Ridge(alpha=1e-5, solver="svd").fit(x.double().numpy(), y.double().numpy())
    np.testing.assert_allclose(small.coef_, exact.coef_, rtol=1e-3, atol=1e-4)
    assert small.coef_.dtype == torch.float32


def test_penalties_below_rounding_still_give_a_finite_answer():
    x = torch.ones(5, 3).double() * torch.arange(5.0).double()[:, None]
    fitted = RidgeRegression(alphas=1e-30).fit(x, x[:, 0])
    torch.testing.assert_close(fitted.coef_, torch.full((3,), 1 / 3).double())


def test_one_penalty_in_a_sequence_is_a_path():
    x, y = data(9, 2)
    path = RidgeRegression(alphas=np.array([2.0])).fit(x, y)
    assert path.coef_path_.shape == (1, 2)
    np.testing.assert_allclose(path.coef_, RidgeRegression(alphas=2).fit(x, y).coef_)


X, Y = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]]), torch.tensor([0.0, 1.0, 0.0])
ERRORS = [
    ({"alphas": 0.0}, X, Y, "alphas must be > 0, got 0"),
    ({"alphas": -1}, X, Y, "alphas must be > 0, got -1"),
    ({"alphas": math.nan}, X, Y, "alphas must be finite, got nan"),
    ({"alphas": math.inf}, X, Y, "alphas must be finite, got inf"),
    ({"alphas": [1.0, 0.0]}, X, Y, "alphas must be > 0, got 0"),
    ({"alphas": [1.0, math.nan]}, X, Y, "alphas must be finite, got nan"),
    ({"alphas": []}, X, Y, "alphas must not be empty"),
    ({"alphas": [[1.0]]}, X, Y, "alphas must have 1 axes"),
    ({"alphas": [1.0, "10"]}, X, Y, r"alphas must be a number or numbers, got \[1.0, '10'\]"),
    ({"alphas": None}, X, Y, "alphas must be a number or numbers, got None"),
    ({"alphas": True}, X, Y, "alphas must be a number or numbers, got True"),
    ({"selection": "aic"}, X, Y, "selection must be one of 'gcv', 'loo', got 'aic'"),
    ({"alphas": [1.0, 2.0]}, X[:1], Y[:1], "X must have two examples or more to choose by"),
    ({}, X, Y[:2], "y must have shape"),
    ({}, X * math.nan, Y, "X must be finite"),
]


@pytest.mark.parametrize(("options", "x", "y", "message"), ERRORS)
def test_errors(options, x, y, message):
    with pytest.raises(ValueError, match=message):
        RidgeRegression(**options).fit(x, y)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("selection", ["gcv", "loo"])
@pytest.mark.parametrize(("n", "d", "t"), CASES)
def test_cuda(n, d, t, selection):
    x, y = (torch.from_numpy(v) for v in data(n, d, t))
    options = {"alphas": ALPHAS, "selection": selection}
    gpu, cpu = (
        RidgeRegression(**options).fit(x.cuda(), y.cuda()),
        RidgeRegression(**options).fit(x, y),
    )
    assert gpu.coef_path_.is_cuda
    torch.testing.assert_close(gpu.coef_path_.cpu(), cpu.coef_path_, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(gpu.scores_.cpu(), cpu.scores_, rtol=1e-6, atol=1e-9)
    one = RidgeRegression(alphas=0.1).fit(x.cuda(), y.cuda())
    torch.testing.assert_close(one.coef_, gpu.coef_path_[1], rtol=1e-7, atol=1e-9)
