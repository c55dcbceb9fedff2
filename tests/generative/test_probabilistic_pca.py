"""Probabilistic PCA against eigenvalues, scikit-learn's model of noise, SciPy and plain BFGS."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.decomposition import PCA as Peer
from sklearn.utils.estimator_checks import parametrize_with_checks

from tests.generative.drawn_factors import with_factors, with_gaps
from vademecum.generative import ProbabilisticPCA


def beyond_the_contract(estimator):
    """Checks that a closed form fails on purpose."""
    why = "NaN is refused by `fit` alone: a fitted model integrates missing entries out"
    return {"check_estimators_nan_inf": why} if estimator.method == "closed" else {}


@parametrize_with_checks(
    [ProbabilisticPCA(), ProbabilisticPCA(method="em", random_state=0)],
    expected_failed_checks=beyond_the_contract,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def eigen(x):
    """Eigenpairs of the covariance with the divisor n, in descending order."""
    values, vectors = np.linalg.eigh(np.cov(x.T, ddof=0).reshape(x.shape[1], -1))
    return values[::-1], vectors[:, ::-1]


@pytest.mark.parametrize("method", ["closed", "em"])
@pytest.mark.parametrize("k", [0, 1, 2, 5, 6])
def test_is_the_model_of_the_eigenvalues(k, method):
    x = with_factors()
    d = x.shape[1]
    values, vectors = eigen(x)
    noise = values[k:].mean() if k < d else values[-1]
    wanted = (vectors[:, :k] * (values[:k] - noise)) @ vectors[:, :k].T + noise * np.eye(d)
    model = ProbabilisticPCA(k, method=method, random_state=0).fit(x)
    tol = 1e-12 if method == "closed" else 1e-5
    np.testing.assert_allclose(model.get_covariance(), wanted, rtol=tol, atol=10 * tol)
    if k < d:
        assert model.noise_variance_ == pytest.approx(noise, rel=tol)
    density = multivariate_normal(x.mean(0), wanted).logpdf(x)
    np.testing.assert_allclose(model.score_samples(x), density, rtol=10 * tol)
    assert model.score(x) == pytest.approx(density.mean(), rel=1e-9)
    assert model.loglike_[-1] == pytest.approx(density.mean(), rel=1e-9)
    assert model.components_.shape == (k, d)
    closed = ProbabilisticPCA(k).fit(x)
    np.testing.assert_allclose(model.components_[:5], closed.components_[:5], atol=1e-4)
    largest = np.abs(closed.components_[:5]).argmax(1)
    assert (closed.components_[:5][np.arange(min(k, 5)), largest] > 0).all()
    gram = model.components_ @ model.components_.T
    np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-10)
    assert not k or np.all(gram.diagonal()[1:] <= gram.diagonal()[:-1] + 1e-12)


@pytest.mark.parametrize("k", [1, 3])
def test_likelihood_of_scikit_learn(k):
    """Theirs has the divisor n - 1: on the same examples it is a little less likely."""
    x = with_factors(n=300)
    peer = Peer(k, svd_solver="full").fit(x)
    ours = ProbabilisticPCA(k).fit(x)
    scaled = ours.get_covariance() * len(x) / (len(x) - 1)
    np.testing.assert_allclose(scaled, peer.get_covariance(), rtol=1e-10)
    assert 0 < ours.score(x) - peer.score(x) < 1e-4


def test_wide_data_count_directions_without_variance():
    """The noise is the mean over d - k directions, where scikit-learn's is over n - 1 - k."""
    x = with_factors(n=7, d=20)
    values, _ = eigen(x)
    ours = ProbabilisticPCA(3).fit(x)
    assert ours.noise_variance_ == pytest.approx(values[3:].sum() / 17)
    assert Peer(3).fit(x).noise_variance_ > 2 * ours.noise_variance_
    em = ProbabilisticPCA(3, method="em", random_state=1).fit(x)
    assert em.score(x) == pytest.approx(ours.score(x), rel=1e-8)
    many = ProbabilisticPCA(9, noise_variance=0.5).fit(x)  # more factors than rows
    assert many.components_.shape == (9, 20)
    assert many.loglike_[-1] == pytest.approx(many.score(x), rel=1e-9)


@pytest.mark.parametrize("method", ["closed", "em"])
@pytest.mark.parametrize("noise", [1e-3, 0.7, 4.0, 100.0])
def test_given_noise(noise, method):
    x = with_factors(d=5)
    values, vectors = eigen(x)
    excess = np.maximum(values[:3] - noise, 0)
    model = ProbabilisticPCA(3, method=method, noise_variance=noise, random_state=0).fit(x)
    assert model.noise_variance_ == pytest.approx(noise, rel=1e-12)
    wanted = (vectors[:, :3] * excess) @ vectors[:, :3].T
    found = model.components_.T @ model.components_
    np.testing.assert_allclose(found, wanted, atol=1e-10 if method == "closed" else 1e-4)
    assert model.loglike_[-1] == pytest.approx(model.score(x), rel=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns_of_very_different_scales(dtype):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(60, 4)) * [1e6, 1.0, 2.0, 1.0]).astype(dtype)
    wide = x.astype(np.float64)
    model = ProbabilisticPCA(1).fit(x)
    values = np.linalg.svd(wide - wide.mean(0), compute_uv=False) ** 2 / 60
    assert model.noise_variance_ == pytest.approx(
        values[1:].mean(), rel=1e-4 if dtype == np.float32 else 1e-9
    )
    _, _, V = np.linalg.svd(wide - wide.mean(0))
    variances = np.r_[values[0], np.full(3, values[1:].mean())]
    squares = ((wide - wide.mean(0)) @ V.T) ** 2 / variances
    density = -(squares + np.log(2 * np.pi * variances)).sum(1) / 2
    np.testing.assert_allclose(model.score_samples(x), density, rtol=1e-5)
    assert model.components_.dtype == model.transform(x).dtype == dtype


def test_far_from_zero():
    x = with_factors(n=300, shift=0.0)
    near, far = (ProbabilisticPCA(2).fit(x + shift) for shift in (0.0, 1e6))
    np.testing.assert_allclose(far.get_covariance(), near.get_covariance(), rtol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("method", ["closed", "em"])
def test_tensors_in_tensors_out(dtype, method):
    x = torch.from_numpy(with_factors()).to(dtype)
    model = ProbabilisticPCA(2, method=method, random_state=0).fit(x)
    wanted = ProbabilisticPCA(2).fit(x.double().numpy())
    found = [model.components_, model.mean_, model.transform(x), model.score_samples(x),
             model.sample(3), model.get_covariance(), model.posterior(x).covariance]  # fmt: skip
    assert {part.dtype for part in found} == {dtype}
    tol = 1e-5 if dtype == torch.float32 else 1e-6
    np.testing.assert_allclose(model.get_covariance(), wanted.get_covariance(), rtol=tol, atol=tol)
    back = model.inverse_transform(model.transform(x))
    np.testing.assert_allclose(
        back, wanted.inverse_transform(wanted.transform(x.double().numpy())), atol=1e-4
    )


def test_draws_have_the_moments_of_the_model():
    model = ProbabilisticPCA(2).fit(with_factors())
    n = 40_000
    x = model.sample(n, generator=torch.Generator().manual_seed(0))
    A = model.get_covariance()
    error = np.sqrt(np.diag(A) / n)
    assert (np.abs(x.mean(0) - model.mean_) < 5 * error).all()
    spread = np.sqrt((np.outer(np.diag(A), np.diag(A)) + A**2) / n)
    assert (np.abs(np.cov(x.T) - A) < 5 * spread).all()
    again = model.sample(n, generator=torch.Generator().manual_seed(0))
    np.testing.assert_array_equal(x, again)


def test_random_state_decides_the_start_and_not_the_end():
    x = with_factors()
    fits = [ProbabilisticPCA(2, method="em", random_state=s).fit(x) for s in (0, 0, 1)]
    assert fits[0].loglike_ == fits[1].loglike_
    assert fits[0].loglike_[0] != fits[2].loglike_[0]
    np.testing.assert_allclose(fits[0].components_, fits[2].components_, atol=1e-4)


def test_em_never_falls_and_says_when_it_is_cut_short():
    x = with_factors()
    with pytest.warns(UserWarning, match="is left after 5 iterations") as caught:
        model = ProbabilisticPCA(2, method="em", max_iter=5, random_state=0).fit(x)
    assert len(caught) == 1
    assert not model.converged_
    assert model.n_iter_ == len(model.loglike_) == 5
    assert (np.diff(model.loglike_) > -1e-12).all()


X = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]])
ERRORS = [
    ({"n_components": 3}, X, "n_components must be <= 2, got 3"),
    ({"n_components": -1}, X, "n_components must be >= 0, got -1"),
    ({"n_components": 0.5}, X, "n_components must be an integer, got 0.5"),
    ({"method": "svd"}, X, "method must be one of 'closed', 'em', got 'svd'"),
    ({"noise_variance": 0.0}, X, "noise_variance must be > 0, got 0"),
    ({"max_iter": 0}, X, "max_iter must be >= 1, got 0"),
    ({"tol": 0.0}, X, "tol must be > 0, got 0"),
    ({}, X[:1], "X must have at least 2 rows, got 1"),
    ({}, X[0], "X must have 2 axes"),
    ({}, X[:0], "X must not be empty"),
    ({}, X * math.inf, "X must be finite, got inf"),
    ({}, X.long(), "X must be floating point, got torch.int64"),
    ({}, X * 1j, "X must be real, got torch.complex64"),
    ({}, X.where(X != 3, math.nan), "method must be 'em' where X has NaN"),
    ({"n_components": 0}, X.where(X != 3, math.nan), "method must be 'em' where X has NaN"),
    ({"method": "em"}, X.where(X > 7, math.nan), "got none in features 0, 1"),
    (
        {"method": "em"},
        torch.tensor([[1.0, math.inf], [2.0, math.nan]]),
        "X must be finite, got inf",
    ),
    ({}, X[[0, 0, 0]], "X must vary, got 3 equal rows"),
    ({"n_components": 0}, X[[0, 0, 0]] / 3, "X must vary, got 3 equal rows"),
    ({"method": "em"}, X[[0, 0, 0]] / 3, "X must vary, got 3 equal rows"),
]


@pytest.mark.parametrize(("options", "x", "message"), ERRORS)
def test_errors(options, x, message):
    with pytest.raises(ValueError, match=message):
        ProbabilisticPCA(**options).fit(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("method", ["closed", "em"])
def test_data_without_noise(method, dtype):
    """Of rank 2: one factor leaves noise, two leave none, and the likelihood has no maximum."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(50, 2)) @ rng.normal(size=(2, 4)) + 1).double()
    ProbabilisticPCA(1, method=method, random_state=0).fit(x.to(dtype))
    if method == "closed" or dtype == torch.float64:
        for k in (2, 3, 4):
            message = f"n_components must leave variance to the noise, got {k}"
            with pytest.raises(ValueError, match=message):
                ProbabilisticPCA(k, method=method, random_state=0).fit(x.to(dtype))
    given = ProbabilisticPCA(4, method=method, noise_variance=0.1, random_state=0).fit(x)
    np.testing.assert_allclose(np.linalg.eigvalsh(given.get_covariance())[:2], 0.1, rtol=1e-4)


def test_constant_features_are_noise_like_others():
    x = np.c_[with_factors(d=4), np.full(400, 7.0)]
    model = ProbabilisticPCA(2).fit(x)
    values, _ = eigen(x)
    assert model.noise_variance_ == pytest.approx(values[2:].mean())
    assert model.mean_[4] == 7.0


def test_errors_of_a_fitted_one():
    model = ProbabilisticPCA(1).fit(X)
    with pytest.raises(ValueError, match="X must be 2 wide"):
        model.transform(X[:, :1])
    with pytest.raises(ValueError, match="X must be 1 wide"):
        model.inverse_transform(X)
    with pytest.raises(ValueError, match="n must be >= 1, got 0"):
        model.sample(0)
    with pytest.raises(ValueError, match="X must be finite, got inf"):
        model.score_samples(torch.tensor([[math.nan, math.inf]]))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("method", ["closed", "em"])
def test_cuda(method):
    x = torch.from_numpy(with_factors())
    y = torch.from_numpy(with_gaps(with_factors()))
    options = {"method": method, "random_state": 0}
    gpu, cpu = (ProbabilisticPCA(2, **options).fit(v) for v in (x.cuda(), x))
    assert gpu.components_.is_cuda
    assert gpu.sample(2).is_cuda
    torch.testing.assert_close(
        gpu.get_covariance().cpu(), cpu.get_covariance(), rtol=1e-5, atol=1e-5
    )
    torch.testing.assert_close(
        gpu.score_samples(y.cuda()).cpu(), cpu.score_samples(y), rtol=1e-5, atol=1e-5
    )
    if method == "em":
        model = ProbabilisticPCA(2, **options).fit(y.cuda())
        assert model.score(y) == pytest.approx(
            ProbabilisticPCA(2, **options).fit(y).score(y), rel=1e-6
        )
