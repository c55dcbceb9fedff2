"""Factor analysis against scikit-learn's, SciPy's densities and optimisers, and by hand."""

import math
import warnings

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.decomposition import FactorAnalysis as Peer
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from tests.generative.drawn_factors import (
    best_likelihood,
    observed_log_density,
    with_factors,
    with_gaps,
)
from vademecum.data import load
from vademecum.generative import FactorAnalysis


@parametrize_with_checks([FactorAnalysis(min_noise=1e-3)])
@pytest.mark.filterwarnings("ignore:.*Heywood")
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("draw", range(3))
def test_likelihood_of_scikit_learn(draw):
    x = with_factors(d=7, draw=draw)
    ours = FactorAnalysis(2).fit(x)
    peer = Peer(2, tol=1e-12, max_iter=20_000, svd_method="lapack").fit(x)
    assert ours.converged_
    assert ours.score(x) == pytest.approx(peer.score(x), abs=1e-6)
    np.testing.assert_allclose(ours.get_covariance(), peer.get_covariance(), rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(ours.noise_variance_, peer.noise_variance_, rtol=5e-3)
    largest = np.abs(ours.components_ / x.std(0)).argmax(1)
    assert (ours.components_[[0, 1], largest] > 0).all()
    spread = ours.posterior(x).covariance
    np.testing.assert_allclose(spread, np.diag(np.diag(spread)), atol=1e-10)
    assert np.diff(np.diag(spread)).min() > -1e-12


def test_digits_are_at_least_as_likely_as_with_scikit_learn():
    x = load("digits").x.flatten(1).double().numpy()
    x = x[:, x.std(0) > 0.05]
    ours = FactorAnalysis(8).fit(x)
    peer = Peer(8, tol=1e-10, max_iter=3000, svd_method="lapack").fit(x)
    assert ours.score(x) == pytest.approx(peer.score(x), abs=1e-6)


@pytest.mark.parametrize("quasi_newton", [False, True])
@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_law_is_that_of_scipy(k, quasi_newton):
    x = with_factors(d=6, n=300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = FactorAnalysis(k, quasi_newton=quasi_newton, max_iter=60).fit(x)
    A = model.components_.T @ model.components_ + np.diag(model.noise_variance_)
    np.testing.assert_allclose(model.get_covariance(), A, rtol=1e-12)
    density = multivariate_normal(model.mean_, A).logpdf(x)
    np.testing.assert_allclose(model.score_samples(x), density, rtol=1e-10)
    assert model.score(x) == pytest.approx(model.loglike_[-1], rel=1e-10)
    assert len(model.loglike_) == model.n_iter_
    np.testing.assert_allclose(model.mean_, x.mean(0), rtol=1e-12)


@pytest.mark.filterwarnings("ignore:.*Heywood")
def test_as_many_factors_as_features_fit_any_covariance():
    x = with_factors(d=4, n=300)
    S = np.cov(x.T, ddof=0)
    model = FactorAnalysis(4, min_noise=1e-3).fit(x)
    best = observed_log_density(x, x.mean(0), S).mean()
    assert model.score(x) == pytest.approx(best, abs=1e-6)


def test_em_never_falls():
    x = with_factors()
    with pytest.warns(UserWarning, match="is left after 200 iterations"):
        model = FactorAnalysis(2, quasi_newton=False, max_iter=200, tol=1e-12).fit(x)
    assert (np.diff(model.loglike_) > -1e-12).all()
    better = FactorAnalysis(2).fit(x)
    assert better.n_iter_ < 100
    assert better.score(x) > model.score(x) - 1e-9


def test_a_step_of_em_by_regression_on_the_posterior():
    """Loadings by least squares of features on factors, noise by what is left, row by row."""
    x = with_factors(n=50, d=4, shift=0.0)
    with pytest.warns(UserWarning, match="gradient"):
        one, two = (FactorAnalysis(2, quasi_newton=False, max_iter=m).fit(x) for m in (1, 2))
    z, spread = one.posterior(x)
    centred = x - x.mean(0)
    second = z.T @ z + len(x) * spread
    W = np.linalg.solve(second, z.T @ centred).T
    noise = ((centred - z @ W.T) ** 2).mean(0) + np.einsum("jk,kl,jl->j", W, spread, W)
    np.testing.assert_allclose(two.noise_variance_, noise, rtol=1e-10)
    np.testing.assert_allclose(two.get_covariance(), W @ W.T + np.diag(noise), rtol=1e-9)


@pytest.mark.parametrize("k", [0, 1, 2])
def test_missing_entries_are_integrated_out(k):
    x = with_gaps(with_factors(n=120, d=5, k=2, shift=1.0), 0.2)
    model = FactorAnalysis(k, min_noise=1e-8).fit(x)
    assert model.converged_
    assert model.loglike_[-1] == pytest.approx(best_likelihood(x, k, common=False), abs=1e-7)
    density = observed_log_density(x, model.mean_, model.get_covariance())
    np.testing.assert_allclose(model.score_samples(x), density, rtol=1e-9, atol=1e-12)


def heywood():
    """One pair of features and three alone: a second factor takes one of these to itself."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(100, 5))
    x[:, 1] = x[:, 0] + 0.5 * x[:, 1]
    return x


@pytest.mark.parametrize("floor", [1e-6, 1e-3])
def test_heywood_cases_are_reported(floor):
    x = heywood()
    with pytest.warns(UserWarning, match="noise of features 0, 3 falls to min_noise") as caught:
        model = FactorAnalysis(2, min_noise=floor).fit(x)
    assert model.converged_
    assert len(model.heywood_) > 0
    shares = model.noise_variance_ / x.var(0)
    np.testing.assert_allclose(shares[model.heywood_], floor, rtol=0.01)
    assert (np.delete(shares, model.heywood_) > 100 * floor).all()
    assert sum("Heywood" in str(w.message) for w in caught) == 1
    peer = Peer(2, tol=1e-10, max_iter=2000, svd_method="lapack")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert model.score(x) > peer.fit(x).score(x) - 1e-5


def test_a_case_on_its_way_is_reported():
    """EM that is cut short leaves the noise above its least value, and still falling."""
    x = heywood()
    with (
        pytest.warns(ConvergenceWarning, match="is left after 20 iterations"),
        pytest.warns(UserWarning, match="the noise of feature 0 falls to min_noise=0.001"),
    ):
        model = FactorAnalysis(2, min_noise=1e-3, quasi_newton=False, max_iter=20).fit(x)
    assert model.heywood_.tolist() == [0]
    assert 2e-3 < model.noise_variance_[0] / x[:, 0].var() < 0.1


def test_no_case_is_reported_where_there_is_none():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = FactorAnalysis(2).fit(with_factors(n=1000))
    assert model.heywood_.shape == (0,)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 1)) + np.sqrt(3e-5) * rng.normal(
        size=(500, 4)
    )  # little, but a maximum
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = FactorAnalysis(1).fit(x)
    assert (model.noise_variance_ / x.var(0) < 1e-4).all()
    assert model.heywood_.shape == (0,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_units_of_features_do_not_matter(dtype):
    x = torch.from_numpy(with_factors(shift=0.0)).to(dtype)
    scale = 2.0 ** torch.tensor([20, -20, 0, 1, -1, 10]).to(dtype)
    one, other = FactorAnalysis(2).fit(x), FactorAnalysis(2).fit(x * scale + 3 * scale)
    tol = 1e-3 if dtype == torch.float32 else 1e-6
    torch.testing.assert_close(other.components_ / scale, one.components_, rtol=tol, atol=tol)
    torch.testing.assert_close(
        other.noise_variance_ / scale**2, one.noise_variance_, rtol=tol, atol=0
    )
    assert other.components_.dtype == other.noise_variance_.dtype == dtype


def test_more_features_than_rows():
    """Products with rows in the place of a covariance; both are the same model."""
    x = with_factors(n=40, d=30, k=1, low=0.5, high=1.0)
    narrow = FactorAnalysis(1).fit(x)
    peer = Peer(1, tol=1e-12, max_iter=5000, svd_method="lapack").fit(x)
    assert narrow.score(x) == pytest.approx(peer.score(x), abs=1e-6)
    y = np.c_[x, with_factors(n=40, d=60, k=1, draw=5)]
    wide = FactorAnalysis(1).fit(y)
    peer = Peer(1, tol=1e-12, max_iter=5000, svd_method="lapack").fit(y)
    assert wide.score(y) == pytest.approx(peer.score(y), abs=1e-6)
    assert wide.loglike_[-1] == pytest.approx(wide.score(y))


@pytest.mark.filterwarnings("ignore:.*Heywood")
def test_more_factors_than_directions():
    x = with_factors(n=4, d=12)
    model = FactorAnalysis(6, min_noise=1e-2, tol=1e-4).fit(x)
    assert model.components_.shape == (6, 12)
    assert np.isfinite(model.score(x))
    assert len(model.heywood_) > 0


def test_rank_deficient_data():
    x = with_factors(d=5)
    x = np.c_[x, x[:, 0] + x[:, 1]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = FactorAnalysis(2).fit(x)
    A = model.get_covariance()
    assert np.linalg.eigvalsh(A)[0] > 0
    np.testing.assert_allclose(np.diag(A), x.var(0), rtol=1e-3)


def test_draws_have_the_moments_of_the_model():
    model = FactorAnalysis(2).fit(torch.from_numpy(with_factors()))
    n = 40_000
    x = model.sample(n, generator=torch.Generator().manual_seed(0)).numpy()
    A = model.get_covariance().numpy()
    assert (np.abs(x.mean(0) - model.mean_.numpy()) < 5 * np.sqrt(np.diag(A) / n)).all()
    spread = np.sqrt((np.outer(np.diag(A), np.diag(A)) + A**2) / n)
    assert (np.abs(np.cov(x.T) - A) < 5 * spread).all()


def test_names_of_factors():
    model = FactorAnalysis(2).fit(with_factors())
    assert list(model.get_feature_names_out()) == ["factoranalysis0", "factoranalysis1"]


X = torch.tensor([[1.0, 2.0, 3.0], [3.0, 4.0, 3.0], [5.0, 7.0, 3.0], [2.0, 2.0, 3.0]])
GAP = X.clone()
GAP[0, 2] = math.nan
ERRORS = [
    ({}, X, "X must vary in every feature, got a constant in feature 2"),
    ({}, GAP, "X must vary in every feature, got a constant in feature 2"),
    ({}, X.where(X != 3, math.nan), "X must have an entry in every feature, got none in feature 2"),
    ({"n_components": 3}, X[:, :2], "n_components must be <= 2, got 3"),
    ({"n_components": None}, X, "n_components must be an integer, got None"),
    ({"min_noise": 0.0}, X, "min_noise must be > 0, got 0"),
    ({"min_noise": 1.0}, X, "min_noise must be < 1, got 1"),
    ({"max_iter": 0}, X, "max_iter must be >= 1, got 0"),
    ({"tol": -1.0}, X, "tol must be > 0, got -1"),
    ({}, X[:1], "X must have at least 2 rows, got 1"),
    ({}, X / 0, "X must be finite, got inf"),
    ({}, 1e-25 * X[:, :2], "X must be rescaled: noise variances of .* leave the range of torch.fl"),
    ({}, X.long(), "X must be floating point, got torch.int64"),
]


@pytest.mark.parametrize(("options", "x", "message"), ERRORS)
def test_errors(options, x, message):
    with pytest.raises(ValueError, match=message):
        FactorAnalysis(**options).fit(x)


@pytest.mark.parametrize("value", [0.1, 1e8 + 0.1, -7.3])
def test_constants_that_rounding_moves(value):
    x = np.c_[with_factors(n=1000, d=3), np.full(1000, value)]
    with pytest.raises(ValueError, match="a constant in feature 3"):
        FactorAnalysis(1).fit(x)
    x[5, 3] = np.nextafter(value, np.inf)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        FactorAnalysis(1).fit(x)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    for x in (with_factors(), with_gaps(with_factors()), with_factors(n=40, d=90, k=1)):
        x = torch.from_numpy(x)
        gpu, cpu = FactorAnalysis(1).fit(x.cuda()), FactorAnalysis(1).fit(x)
        assert gpu.components_.is_cuda
        assert gpu.score(x.cuda()) == pytest.approx(cpu.score(x), rel=1e-6)
        z = gpu.posterior(x.cuda())
        assert z.mean.is_cuda
        assert z.covariance.is_cuda
        torch.testing.assert_close(z.mean.cpu(), cpu.transform(x), rtol=1e-3, atol=1e-3)
