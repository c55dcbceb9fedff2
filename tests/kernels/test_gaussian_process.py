"""Gaussian processes against scikit-learn's, dense formulas and the memory they may take."""

import pickle
import re
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as theirs
from sklearn.utils.estimator_checks import parametrize_with_checks

from vademecum.kernels import GaussianProcess, LinearKernel, MaternKernel, RBFKernel


@parametrize_with_checks([GaussianProcess(), GaussianProcess(normalize_y=True, restarts=1)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def data(n=40, d=3, t=None, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n, d))
    y = np.sin(5 * x[:, 0]) + x[:, 1] + 0.1 * rng.normal(size=n)
    if t is not None:
        y = np.stack([y * (j + 1) + np.cos(3 * (j + 1) * x[:, 2]) for j in range(t)], 1)
    return x, y, rng.uniform(size=(7, d))


LENGTHS: Any = [0.4, 0.9, 1.3]  # which the hints of the peer do not know
PAIRS: dict[str, Any] = {
    "RBF": (
        2.0 * RBFKernel(lengthscale=0.7),
        theirs.ConstantKernel(2.0) * theirs.RBF(0.7),
        {"scale": 0, "lengthscale": 1},
    ),
    "RBF with lengthscales": (
        1.5 * RBFKernel(lengthscale=torch.tensor([0.4, 0.9, 1.3], dtype=torch.float64)),
        theirs.ConstantKernel(1.5) * theirs.RBF(LENGTHS),
        {"scale": 0, "lengthscale": slice(1, 4)},
    ),
    "Matern 3/2": (
        0.6 * MaternKernel(nu=1.5, lengthscale=1.2),
        theirs.ConstantKernel(0.6) * theirs.Matern(1.2, nu=1.5),
        {"scale": 0, "lengthscale": 1},
    ),
    "a sum": (
        MaternKernel(nu=2.5, lengthscale=0.8) + 0.3 * RBFKernel(lengthscale=2.0),
        theirs.Matern(0.8, nu=2.5) + theirs.ConstantKernel(0.3) * theirs.RBF(2.0),
        {"0.lengthscale": 0, "1.scale": 1, "1.lengthscale": 2},
    ),
}


def same(kernel, noise, **options) -> Any:
    fixed: Any = None
    return GaussianProcessRegressor(
        kernel + theirs.WhiteKernel(noise**2), alpha=0.0, optimizer=fixed, **options
    )


@pytest.mark.parametrize("t", [None, 2])
@pytest.mark.parametrize("name", PAIRS)
def test_equals_scikit_learn(name, t):
    """Likelihood, gradient, mean, deviation and covariance; theirs are of noisy answers."""
    kernel, peer, places = PAIRS[name]
    x, y, new = data(t=t)
    peer = same(peer, 0.3).fit(x, y)
    ours = GaussianProcess(kernel, noise=0.3, learn=False).fit(x, y)
    value, gradient = ours.log_marginal_likelihood(gradient=True)
    expected, slopes = peer.log_marginal_likelihood(peer.kernel_.theta, eval_gradient=True)
    assert value == ours.log_marginal_likelihood_ == pytest.approx(expected, abs=1e-8)
    for key, place in places.items():
        np.testing.assert_allclose(gradient[key], slopes[place], atol=1e-8, rtol=1e-8)
    assert gradient["noise"] == pytest.approx(2 * slopes[-1], rel=1e-8)  # theirs of its square
    mean, std = ours.predict(new, return_std=True, noisy=True)
    for ours_, theirs_ in zip((mean, std), peer.predict(new, return_std=True), strict=True):
        np.testing.assert_allclose(ours_, theirs_, atol=1e-8)
    _, covariance = ours.predict(new, return_cov=True, noisy=True)
    np.testing.assert_allclose(covariance, peer.predict(new, return_cov=True)[1], atol=1e-8)
    latent = ours.predict(new, return_std=True)[1]
    np.testing.assert_allclose(latent**2 + 0.3**2, std**2, atol=1e-12)
    assert (ours.jitter_, ours.n_iter_, ours.log_marginal_likelihood_error_) == (0.0, 0, 0.0)
    assert ours.residual_ < 1e-13
    assert ours.dtype_ == torch.float64


@pytest.mark.parametrize("t", [None, 2])
def test_normalised_targets_are_those_of_scikit_learn(t):
    x, y, new = data(t=t)
    y = 100 + 7 * y
    peer = same(theirs.RBF(0.7), 0.3, normalize_y=True).fit(x, y)
    ours = GaussianProcess(RBFKernel(lengthscale=0.7), noise=0.3, learn=False, normalize_y=True)
    found = ours.fit(x, y).predict(new, return_std=True, noisy=True)
    for ours_, theirs_ in zip(found, peer.predict(new, return_std=True), strict=True):
        np.testing.assert_allclose(ours_, theirs_, rtol=1e-8)
    covariance = ours.predict(new, return_cov=True, noisy=True)[1]
    np.testing.assert_allclose(covariance, peer.predict(new, return_cov=True)[1], atol=1e-7)


def test_learning_ends_where_scikit_learn_does():
    x, y, _ = data()
    kernel = theirs.ConstantKernel(1.0) * theirs.RBF(1.0) + theirs.WhiteKernel(0.1)
    peer: Any = GaussianProcessRegressor(kernel, alpha=0.0).fit(x, y)
    ours = GaussianProcess(1.0 * RBFKernel(), tol=1e-8).fit(x, y)
    assert ours.log_marginal_likelihood_ == pytest.approx(peer.log_marginal_likelihood_value_)
    found = [*ours.kernel_.hyperparameters().values(), ours.noise_**2]
    np.testing.assert_allclose(np.log(found), peer.kernel_.theta, atol=1e-3)
    _, gradient = ours.log_marginal_likelihood(gradient=True)
    assert max(abs(float(g)) for g in gradient.values()) < 1e-8 * len(y) * 10
    at = {"scale": np.exp(0.2), "lengthscale": np.exp(-0.3), "noise": np.exp(-1.0)}
    squared = np.array([0.2, -0.3, -2.0])
    expected = peer.log_marginal_likelihood(squared)
    assert ours.log_marginal_likelihood(at) == pytest.approx(expected, abs=1e-8)


def test_restarts_leave_a_bad_start():
    """From a start where all is noise, a restart finds the signal; and the seed decides."""
    x = np.linspace(0, 1, 30)[:, None]
    y = np.sin(12 * x[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=30)
    stuck = GaussianProcess(1.0 * RBFKernel(lengthscale=1e4), max_iter=200).fit(x, y)
    free = [
        GaussianProcess(
            1.0 * RBFKernel(lengthscale=3.0), restarts=3, max_iter=200, random_state=0
        ).fit(x, y)
        for _ in range(2)
    ]
    assert free[0].log_marginal_likelihood_ > stuck.log_marginal_likelihood_ + 10
    assert free[0].noise_ == free[1].noise_


def test_noise_alone_is_learnt_where_the_kernel_is_a_function():
    x, y, _ = data()
    ours = GaussianProcess(lambda a, b: 2 * (a @ b.T), tol=1e-9).fit(x, y)
    weights = GaussianProcess(2.0 * LinearKernel(), learn=False, tol=1e-9).fit(x, y)
    assert ours.noise_ == pytest.approx(weights.noise_, rel=1e-6)
    grid = ours.noise_ * np.array([0.97, 1.03])
    assert max(ours.log_marginal_likelihood({"noise": v}) for v in grid) < (
        ours.log_marginal_likelihood_
    )


def test_prior_before_fitting():
    _, _, new = data()
    prior = GaussianProcess(2.0 * RBFKernel(lengthscale=0.5), noise=0.4)
    mean, std = prior.predict(new, return_std=True)
    np.testing.assert_array_equal(mean, np.zeros(7))
    np.testing.assert_allclose(std, np.full(7, 2**0.5))
    np.testing.assert_allclose(prior.predict(new, return_std=True, noisy=True)[1] ** 2, 2.16)
    gaps = ((new[:, None] - new) ** 2).sum(-1)
    K = 2 * np.exp(-gaps / 2 / 0.25)
    np.testing.assert_allclose(prior.predict(new, return_cov=True)[1], K)
    drawn = prior.sample_y(new, 4000, random_state=1)
    forms = (drawn * np.linalg.solve(K, drawn)).sum(0)
    assert stats.kstest(forms, stats.chi2(7).cdf).pvalue > 1e-6
    np.testing.assert_array_equal(drawn, prior.sample_y(new, 4000, random_state=1))


@pytest.mark.parametrize("t", [None, 2])
def test_draws_have_the_posterior_law(t):
    x, y, new = data(t=t)
    ours = GaussianProcess(RBFKernel(), noise=0.2, learn=False, normalize_y=True).fit(x, y)
    mean, covariance = ours.predict(new[:4], return_cov=True)
    drawn = ours.sample_y(new[:4], 4000, random_state=2)
    assert drawn.shape == ((4, 4000) if t is None else (4, t, 4000))
    for j in range(t or 1):
        m, C, z = (mean, covariance, drawn) if t is None else (
            mean[:, j], covariance[..., j], drawn[:, j]
        )  # fmt: skip
        forms = (z - m[:, None]) * np.linalg.solve(C, z - m[:, None])
        assert stats.kstest(forms.sum(0), stats.chi2(4).cdf).pvalue > 1e-6


def test_tensors_pickles_and_images():
    x, y, new = data()
    arrays = GaussianProcess(RBFKernel(), noise=0.3, learn=False).fit(x, y)
    tensors = GaussianProcess(RBFKernel(), noise=0.3, learn=False)
    tensors.fit(torch.from_numpy(x), torch.from_numpy(y))
    assert isinstance(arrays.alpha_, np.ndarray)
    np.testing.assert_array_equal(
        tensors.predict(torch.from_numpy(new)).numpy(), arrays.predict(new)
    )
    again = pickle.loads(pickle.dumps(arrays))
    np.testing.assert_array_equal(again.predict(new), arrays.predict(new))
    limited = GaussianProcess(RBFKernel(), noise=0.3, learn=False, memory=2**12).fit(x, y)
    np.testing.assert_allclose(
        pickle.loads(pickle.dumps(limited)).predict(new), arrays.predict(new), atol=1e-3
    )
    flat = RBFKernel()
    images = GaussianProcess(lambda a, b: flat(a.flatten(1), b.flatten(1)), noise=0.3)
    images.fit(torch.from_numpy(x)[:, :, None], torch.from_numpy(y))
    found = images.predict(torch.from_numpy(new)[:, :, None])
    np.testing.assert_allclose(found.numpy(), arrays.predict(new), rtol=1e-10)
    with pytest.raises(ValueError, match="X must hold inputs of 3 numbers, got 4"):
        images.predict(torch.zeros(2, 2, 2).double())


def test_learning_that_did_not_end_is_said():
    x, y, _ = data()
    with pytest.warns(ConvergenceWarning, match="max_iter=2 left a derivative of"):
        GaussianProcess(max_iter=2).fit(x, y)


X, Y = np.arange(6.0).reshape(3, 2), np.array([1.0, 2.0, 4.0])
TWICE = X[[0, 1, 0]]
ERRORS = {
    "noise": ({"noise": -1.0}, X, "noise must be >= 0, got -1.0"),
    "restarts": ({"restarts": -1}, X, "restarts must be >= 0, got -1"),
    "max_iter": ({"max_iter": 0}, X, "max_iter must be >= 1, got 0"),
    "tol": ({"tol": 0.0}, X, "tol must be > 0, got 0.0"),
    "memory": ({"memory": 0}, X, "memory must be >= 1, got 0"),
    "kernel": ({"kernel": 3}, X, "kernel must be a Kernel or a function of x1 and x2, got 3"),
    "duplicates": (
        {"noise": 0.0},
        TWICE,
        "noise must be > 0 where equal inputs have different targets, got noise = 0 and such inputs"
        " 0 and 2",
    ),
    "indefinite": (
        {"kernel": lambda a, b: -(a @ b.T), "noise": 1.0},
        X,
        "kernel must be positive semidefinite, got a matrix of 3 inputs with the smallest"
        " eigenvalue -54.6, and 1 was added to its diagonal",
    ),
    "asymmetric": (
        {"kernel": lambda a, b: a @ b.flip(1).T + a[:, :1]},
        X,
        "kernel must be symmetric, got 4 at (0, 2) and 8 at (2, 0)",
    ),
    "shape": (
        {"kernel": lambda a, b: a},
        X,
        "kernel must give a tensor of shape (3, 3), got shape (3, 2)",
    ),
    "kind": ({"kernel": lambda a, b: 1}, X, "kernel must give a tensor of shape (3, 3), got int"),
    "dtype": (
        {"kernel": lambda a, b: (a @ b.T).float()},
        X,
        "kernel must give torch.float64 on cpu for such inputs, got torch.float32 on cpu",
    ),
    "infinite": (
        {"kernel": lambda a, b: a @ b.T * torch.inf},
        X,
        "kernel must give finite numbers, got others",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_name_what_is_wrong(name):
    options, x, message = ERRORS[name]
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        GaussianProcess(**options).fit(x, Y)


def test_what_cannot_be_asked_is_refused():
    with pytest.raises(ValueError, match="return_std and return_cov must not both be true"):
        GaussianProcess().predict(X, return_std=True, return_cov=True)
    with pytest.raises(ValueError, match=r"^noise must be given for noisy answers of the prior"):
        GaussianProcess().predict(X, return_std=True, noisy=True)
    with pytest.raises(NotFittedError):
        GaussianProcess().log_marginal_likelihood()
    function = GaussianProcess(lambda a, b: a @ b.T, noise=1.0).fit(X, Y)
    with pytest.raises(ValueError, match=r"^hyperparameters must be .* Kernel, got 'scale'"):
        function.log_marginal_likelihood({"scale": 1.0})


def test_inputs_may_change_after_the_fit():
    x, y, new = (torch.from_numpy(v) for v in data())
    ours = GaussianProcess(RBFKernel(), noise=0.3, learn=False).fit(x, y)
    before = ours.predict(new)
    x.mul_(3)
    y.mul_(2)
    assert torch.equal(ours.predict(new), before)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_on_a_gpu():
    x, y, new = (torch.from_numpy(v).cuda() for v in data(n=100, t=2))
    for options in ({}, {"memory": 2**17, "tol": 1e-9}):
        known = {"noise": 0.3, "learn": False, "random_state": 0} | options
        there = GaussianProcess(2.0 * RBFKernel(), **known).fit(x, y)
        here = GaussianProcess(2.0 * RBFKernel(), **known).fit(x.cpu(), y.cpu())
        for a, b in zip(
            there.predict(new, return_std=True),
            here.predict(new.cpu(), return_std=True),
            strict=True,
        ):
            assert a.is_cuda
            torch.testing.assert_close(a.cpu(), b, atol=1e-7, rtol=0)
        assert there.sample_y(new, 2).is_cuda
        assert there.log_marginal_likelihood_ == pytest.approx(here.log_marginal_likelihood_, 1e-6)
    learnt = GaussianProcess().fit(x.float(), y.float())
    assert learnt.alpha_.is_cuda
    expected = GaussianProcess().fit(x.cpu(), y.cpu()).log_marginal_likelihood_
    assert learnt.log_marginal_likelihood_ == pytest.approx(expected, abs=0.1)
