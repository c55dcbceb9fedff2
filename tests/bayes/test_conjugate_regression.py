"""Bayesian linear regression against dense Gaussians, quadrature, scikit-learn and its checks."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import BayesianRidge
from sklearn.utils.estimator_checks import parametrize_with_checks

from vademecum.bayes import BayesianLinearRegression

RNG = np.random.default_rng(0)
X = RNG.standard_normal((30, 4)) + np.array([3.0, 0.0, -1.0, 0.0])
Y = X @ [1.0, 2.0, 0.0, -1.0] + 0.5 * RNG.standard_normal(30) + 2
NEW = RNG.standard_normal((7, 4))


@parametrize_with_checks([BayesianLinearRegression(), BayesianLinearRegression(noise=1.0)])
def test_scikit_learn(estimator, check):
    check(estimator)


def dense(X, y, new, noise, prior):
    """Condition the joint normal law of new and old answers; the flat prior as a very wide one."""
    wide = 1e6
    K = prior**2 * X @ X.T + wide + noise**2 * np.eye(len(X))
    k = prior**2 * new @ X.T + wide
    mean = k @ np.linalg.solve(K, y)
    variance = prior**2 * (new**2).sum(1) + wide - (k * np.linalg.solve(K, k.T).T).sum(1)
    return mean, np.sqrt(variance + noise**2)


def test_predictions_are_those_of_the_joint_law():
    model = BayesianLinearRegression(noise=0.7, prior=1.3).fit(X, Y)
    mean, std = model.predict(NEW, return_std=True)
    wanted = dense(X, Y, NEW, 0.7, 1.3)
    np.testing.assert_allclose(mean, wanted[0], atol=1e-5)
    np.testing.assert_allclose(std, wanted[1], atol=1e-5)
    assert model.n_iter_ == 0


@pytest.mark.parametrize(("n", "d"), [(30, 4), (3, 4)])
def test_the_evidence_is_the_density_of_the_targets(n, d):
    x, y = X[:n, :d], Y[:n]
    model = BayesianLinearRegression(noise=0.7, prior=1.3, fit_intercept=False).fit(x, y)
    K: Any = 1.3**2 * x @ x.T + 0.49 * np.eye(n)
    law = stats.multivariate_normal(np.zeros(n), K)
    assert model.log_evidence_ == pytest.approx(law.logpdf(y), rel=1e-11)
    # with a flat intercept: the integral of the density over all of them
    model.set_params(fit_intercept=True).fit(x, y)
    grid = np.linspace(-60, 60, 4001)
    total = np.exp(law.logpdf(y - grid[:, None])).sum() * (grid[1] - grid[0])
    assert model.log_evidence_ == pytest.approx(np.log(total), rel=1e-9)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_bayesian_ridge_at_its_hyperparameters(fit_intercept):
    flat: dict[str, Any] = {"alpha_1": 0, "alpha_2": 0, "lambda_1": 0, "lambda_2": 0}
    peer = BayesianRidge(**flat, fit_intercept=fit_intercept, compute_score=True, tol=1e-12)
    peer.set_params(max_iter=3000).fit(X, Y)
    knobs: dict[str, Any] = {"noise": peer.alpha_**-0.5, "prior": peer.lambda_**-0.5}
    ours = BayesianLinearRegression(**knobs, fit_intercept=fit_intercept).fit(X, Y)
    np.testing.assert_allclose(ours.coef_, peer.coef_, rtol=1e-10)
    np.testing.assert_allclose(ours.covariance_, peer.sigma_, rtol=1e-9, atol=1e-12)
    std, theirs = (m.predict(NEW, return_std=True)[1] for m in (ours, peer))
    shared = knobs["noise"] ** 2 / len(X) if fit_intercept else 0  # which theirs leaves out
    np.testing.assert_allclose(std**2 - shared, theirs**2, rtol=1e-10)
    if not fit_intercept:
        assert ours.log_evidence_ == pytest.approx(peer.scores_[-1], rel=1e-12)
        best = BayesianLinearRegression(fit_intercept=False, tol=1e-13, max_iter=3000).fit(X, Y)
        assert best.noise_ == pytest.approx(knobs["noise"], rel=1e-9)
        assert best.prior_ == pytest.approx(knobs["prior"], rel=1e-9)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_what_is_chosen_maximises_the_evidence(fit_intercept):
    options = {"fit_intercept": fit_intercept}
    best = BayesianLinearRegression(**options, tol=1e-10).fit(X, Y)
    top = best.log_evidence_
    for noise, prior in ((1.01, 1.0), (0.99, 1.0), (1.0, 1.01), (1.0, 0.99)):
        knobs = {"noise": noise * best.noise_, "prior": prior * best.prior_}
        assert BayesianLinearRegression(**knobs, **options).fit(X, Y).log_evidence_ < top
    half = BayesianLinearRegression(noise=0.5, **options).fit(X, Y)
    assert half.noise_ == 0.5
    assert half.prior_ != 1


def test_draws_have_the_posterior_s_moments():
    model = BayesianLinearRegression(noise=0.7, prior=1.3).fit(X, Y)
    w, b = model.sample(20_000, random_state=0)
    error = np.sqrt(np.diag(model.covariance_) / 20_000)
    assert (abs(w.mean(0) - model.coef_) < 5 * error).all()
    np.testing.assert_allclose(np.cov(w.T), model.covariance_, atol=5e-4)
    drawn = w @ NEW.T + b[:, None]  # the noise is missing
    mean, std = model.predict(NEW, return_std=True)
    np.testing.assert_allclose(drawn.var(0), std**2 - 0.49, rtol=0.06)
    np.testing.assert_allclose(drawn.mean(0), mean, atol=0.05)


def test_weights_are_repetitions():
    s = np.arange(30) % 3
    one = BayesianLinearRegression(tol=1e-10).fit(X, Y, sample_weight=s)
    other = BayesianLinearRegression(tol=1e-10).fit(X.repeat(s, 0), Y.repeat(s))
    for name in ("coef_", "intercept_", "covariance_", "log_evidence_", "noise_", "prior_"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-8, atol=1e-11)
    pairs = zip(one.predict(NEW, return_std=True), other.predict(NEW, return_std=True), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=1e-8)


def test_tensors_answer_with_tensors():
    x, y = torch.from_numpy(X).float(), torch.from_numpy(Y).float()
    model = BayesianLinearRegression().fit(x, y)
    mean, std = model.predict(x, return_std=True)
    w, b = model.sample(3)
    for t in (model.coef_, model.covariance_, mean, std, w, b):
        assert isinstance(t, torch.Tensor)
        assert t.dtype == torch.float32
    arrays = BayesianLinearRegression().fit(X, Y)
    np.testing.assert_allclose(model.coef_, arrays.coef_, atol=1e-4)


def test_iterations_that_end_early_warn():
    with pytest.warns(ConvergenceWarning, match="max_iter=1 reached with a change of"):
        BayesianLinearRegression(max_iter=1).fit(X, Y)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"noise": 0.0}, "noise must be > 0, got 0.0"),
        ({"prior": -1.0}, "prior must be > 0, got -1.0"),
        ({"max_iter": 0}, "max_iter must be >= 1, got 0"),
        ({"tol": -1.0}, "tol must be >= 0, got -1.0"),
    ],
)
def test_refusals(knobs, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        BayesianLinearRegression(**knobs).fit(X, Y)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.gpu
def test_on_the_gpu():
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    model, other = (BayesianLinearRegression().fit(*t) for t in ((x.cuda(), y.cuda()), (x, y)))
    assert model.coef_.is_cuda
    torch.testing.assert_close(model.covariance_.cpu(), other.covariance_)
    for a, b in zip(model.predict(x.cuda(), return_std=True), other.predict(x, return_std=True),
                    strict=True):  # fmt: skip
        torch.testing.assert_close(a.cpu(), b)
    assert model.sample(3)[0].is_cuda
