"""Weighted examples: whole weights are repetitions, zero is absence, else as in scikit-learn."""

import math

import numpy as np
import pytest
import sklearn.linear_model as peers
import torch

from vademecum.linear import (
    Lasso,
    LinearRegression,
    LogisticRegression,
    RidgeRegression,
    SoftmaxRegression,
)

ALPHAS = [0.1, 1.0, 10.0]
REGRESSORS = [
    LinearRegression(),
    LinearRegression(fit_intercept=False),
    RidgeRegression(),
    RidgeRegression(fit_intercept=False),
    RidgeRegression(alphas=ALPHAS),
    RidgeRegression(alphas=ALPHAS, selection="loo"),
    RidgeRegression(alphas=ALPHAS, selection="loo", fit_intercept=False),
    Lasso(alpha=0.1, tol=1e-12),
    Lasso(alpha=0.1, tol=1e-12, fit_intercept=False),
]
CLASSIFIERS = [
    LogisticRegression(tol=1e-12),
    LogisticRegression(tol=1e-12, class_weight="balanced"),
    LogisticRegression(tol=1e-12, class_weight={1: 3.0}),
    SoftmaxRegression(tol=1e-12, class_weight="balanced"),
]


def data(n, d, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * np.logspace(-1, 1, d) + 5
    x[:, -1] = 0.1  # a constant
    return x, x @ rng.normal(size=d) + rng.normal(size=n), np.arange(n) % 4


def fitted(model, *args):
    model.fit(*args)
    names = ("coef_", "intercept_", "coef_path_", "intercept_path_", "scores_", "rank_")
    return {name: getattr(model, name) for name in names if hasattr(model, name)}


@pytest.mark.parametrize("model", [*REGRESSORS, *CLASSIFIERS], ids=repr)
@pytest.mark.parametrize(("n", "d"), [(50, 4), (12, 30)])
@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_whole_weights_are_repetitions(model, n, d, kind):
    x, y, s = data(n, d)
    y = (y > np.median(y)).astype(int) if model in CLASSIFIERS else y
    weighted = fitted(model, kind(x), kind(y), kind(s))
    repeated = fitted(model, kind(x.repeat(s, 0)), kind(y.repeat(s)))
    assert weighted.keys() == repeated.keys()
    for name, value in weighted.items():
        assert type(value) is type(repeated[name])
        size = np.abs(np.asarray(repeated[name])).max()
        np.testing.assert_allclose(value, repeated[name], rtol=1e-6, atol=1e-6 * size)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("n", "d"), [(50, 4), (12, 30)])
def test_fractions_are_those_of_scikit_learn(n, d, intercept):
    x, y, _ = data(n, d)
    s = np.random.default_rng(1).uniform(0, 2, n)
    options = {"fit_intercept": intercept}
    pairs = [
        (LinearRegression(**options), peers.LinearRegression(**options)),
        (RidgeRegression(alphas=0.3, **options), peers.Ridge(alpha=0.3, **options)),
        (Lasso(alpha=0.1, tol=1e-12, **options), peers.Lasso(alpha=0.1, tol=1e-12, **options)),
    ]
    for ours, peer in pairs:
        ours.fit(x, y, s)
        peer.set_params(**({"max_iter": 10**6} if "max_iter" in peer.get_params() else {}))
        peer.fit(x, y, s)
        np.testing.assert_allclose(ours.predict(x), peer.predict(x), atol=2e-5)
        if n > d:
            np.testing.assert_allclose(ours.coef_, peer.coef_, atol=1e-5)
            assert ours.intercept_ == pytest.approx(peer.intercept_, abs=1e-4)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("n", "d"), [(30, 4), (8, 12)])
def test_a_part_is_left_out_of_what_is_weighted(n, d, intercept):
    x, y, _ = data(n, d)
    s = np.random.default_rng(1).uniform(0.1, 3, n)
    wanted = []
    for alpha in ALPHAS:
        errors = []
        for i in range(n):
            less = s - np.minimum(s, 1) * (np.arange(n) == i)
            peer = peers.Ridge(alpha=alpha, fit_intercept=intercept).fit(x, y, less)
            errors.append(y[i] - peer.predict(x[i : i + 1])[0])
        wanted.append(s @ np.square(errors) / s.sum())
    model = RidgeRegression(alphas=ALPHAS, selection="loo", fit_intercept=intercept)
    np.testing.assert_allclose(model.fit(x, y, s).scores_, wanted, rtol=1e-6)


@pytest.mark.parametrize("selection", ["gcv", "loo"])
@pytest.mark.parametrize(("n", "d"), [(30, 4), (8, 12)])
def test_a_factor_of_small_weights_changes_nothing(n, d, selection):
    x, y, _ = data(n, d)
    s, alphas = np.random.default_rng(1).uniform(0.1, 1, n), np.logspace(-2, 3, 9)
    first, second = (
        RidgeRegression(alphas=c * alphas, selection=selection).fit(x, y, c * s) for c in (1, 1e-3)
    )
    np.testing.assert_allclose(first.scores_, second.scores_, rtol=1e-6)
    np.testing.assert_allclose(first.coef_, second.coef_, rtol=1e-6, atol=1e-9)


def test_equal_weights_leave_the_rank_as_it_is():
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(200, 3)) + 1000).astype(np.float32)
    x[:, 2] = x[:, 0] * np.float32(0.1)  # up to rounding
    y = rng.normal(size=200).astype(np.float32)
    for s in (np.ones(200), np.full(200, 0.01)):
        found = LinearRegression().fit(x, y, s)
        wanted = LinearRegression().fit(x, y)
        assert found.rank_ == wanted.rank_ == 2
        np.testing.assert_allclose(found.coef_, wanted.coef_, rtol=1e-3)
        found = RidgeRegression(alphas=1e-12).fit(x, y, s)
        np.testing.assert_allclose(found.coef_, wanted.coef_, rtol=1e-3)
    x[:, 2] = rng.normal(size=200)
    for factor in (1e-8, 1e8):
        assert LinearRegression().fit(x, y, np.full(200, factor)).rank_ == 3


@pytest.mark.parametrize("factor", [1e-320, 1e-50, 1e40, 1e300])
def test_weights_of_any_size(factor):
    x, y, s = data(80, 4)
    x, y = x.astype(np.float32), (y > np.median(y)).astype(int)
    for kind in (LogisticRegression, SoftmaxRegression):
        found, wanted = kind(tol=1e-9).fit(x, y, s * factor), kind(tol=1e-9).fit(x, y, s)
        np.testing.assert_allclose(found.coef_, wanted.coef_, rtol=1e-3, atol=1e-5)


def test_weights_are_not_rounded_to_half_precision(monkeypatch):
    seen = []
    monkeypatch.setattr(
        LogisticRegression, "_warn", lambda self, found, f: seen.append((f.s, found.theta))
    )
    x = torch.tensor([[0.0], [0.0], [1.0], [1.0]], dtype=torch.bfloat16)
    s = torch.tensor([1.0, 257.0, 257.0, 1.0])
    LogisticRegression(weight_decay=0.0, tol=1e-9).fit(x, torch.tensor([0, 1, 0, 1]), s)
    ((weights, theta),) = seen
    torch.testing.assert_close(weights, s / 257)
    assert float(theta[1]) == pytest.approx(math.log(257), rel=1e-6)


@pytest.mark.parametrize("weights", ["balanced", {0: 5.0}, {0: 0.5, 1: 2.0}])
def test_class_weights_are_those_of_scikit_learn(weights):
    x, y, _ = data(80, 4)
    y = (y > np.quantile(y, 0.8)).astype(int)
    s = np.random.default_rng(1).uniform(0, 2, 80)
    if weights == "balanced":
        c = s.sum() / (2 * np.bincount(y, weights=s))
    else:
        c = np.array([weights.get(k, 1.0) for k in (0, 1)])
    decay = 1 / (c[y] * s).sum()
    ours = LogisticRegression(class_weight=weights, weight_decay=decay, tol=1e-12).fit(x, y, s)
    peer = peers.LogisticRegression(class_weight=weights, solver="newton-cholesky", tol=1e-12)
    np.testing.assert_allclose(ours.coef_, peer.fit(x, y, s).coef_, rtol=1e-5, atol=1e-7)
    words = np.array(["no", "yes"])[y]
    named = (
        weights if isinstance(weights, str) else {("no", "yes")[k]: v for k, v in weights.items()}
    )
    again = LogisticRegression(class_weight=named, weight_decay=decay, tol=1e-12).fit(x, words, s)
    np.testing.assert_allclose(again.coef_, ours.coef_, rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision_is_kept(dtype):
    x, y, s = (torch.from_numpy(v) for v in data(200, 4))
    x, y = x.to(dtype), y.to(dtype)
    for model in (LinearRegression(), RidgeRegression(), Lasso(alpha=0.1)):
        found = model.fit(x, y, s).coef_
        exact = model.fit(x.double(), y.double(), s).coef_
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), exact, rtol=1e-2, atol=1e-2)


X, Y = np.arange(8.0).reshape(4, 2) ** 2, np.array([0, 1, 0, 1])
BAD = [
    ([1.0, -1.0, 1.0, 1.0], "sample_weight must be >= 0, got -1.0"),
    ([0.0, 0.0, 0.0, 0.0], "sample_weight must not be zero for all examples"),
    ([1.0, math.nan, 1.0, 1.0], "sample_weight"),
    ([1.0, math.inf, 1.0, 1.0], "sample_weight"),
    ([1.0, 1.0], "sample_weight must be 4 wide"),
    ([[1.0], [1.0], [1.0], [1.0]], "sample_weight must have 1 axes"),
]


@pytest.mark.parametrize(("s", "message"), BAD)
@pytest.mark.parametrize("model", [LinearRegression(), RidgeRegression(), Lasso(), CLASSIFIERS[0]])
def test_bad_weights(model, s, message):
    for kind in (np.asarray, torch.as_tensor):
        with pytest.raises(ValueError, match=message):
            model.fit(kind(X), kind(Y), kind(s))


CLASSES = [
    ("even", "class_weight must be None, 'balanced' or a dict, got 'even'"),
    ([1.0, 2.0], "class_weight must be None, 'balanced' or a dict"),
    ({7: 1.0}, "class_weight must be of labels in y, got 7"),
    ({1: -1.0}, "class_weight of 1 must be >= 0, got -1.0"),
    ({1: math.nan}, "class_weight of 1 must be"),
    ({1: 0.0}, "a class has no weight"),
]


@pytest.mark.parametrize(("weights", "message"), CLASSES)
@pytest.mark.parametrize("kind", [LogisticRegression, SoftmaxRegression])
def test_bad_class_weights(kind, weights, message):
    with pytest.raises(ValueError, match=message):
        kind(class_weight=weights).fit(X, Y)


def test_probabilities_have_no_class_weights():
    with pytest.raises(ValueError, match="class_weight must be None where y are probabilities"):
        SoftmaxRegression(class_weight="balanced").fit(X, np.full((4, 2), 0.5))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("model", [*REGRESSORS, *CLASSIFIERS], ids=repr)
@pytest.mark.parametrize(("n", "d"), [(50, 4), (12, 30)])
def test_cuda(model, n, d):
    x, y, s = map(torch.as_tensor, data(n, d))
    y = (y > y.median()).long() if model in CLASSIFIERS else y
    here = fitted(model, x, y, s)
    there = fitted(model, x.cuda(), y.cuda(), s.cuda())
    assert there["coef_"].is_cuda
    for name, value in there.items():
        value, wanted = torch.as_tensor(value).cpu(), torch.as_tensor(here[name])
        size = float(wanted.abs().max())
        torch.testing.assert_close(value, wanted, rtol=1e-6, atol=1e-6 * size)
