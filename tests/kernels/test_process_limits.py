"""Gaussian processes where memory or precision is short."""

import numpy as np
import pytest
import torch

from tests.kernels.test_gaussian_process import data
from vademecum.kernels import GaussianProcess, RBFKernel


@pytest.mark.parametrize("t", [None, 2])
def test_conjugate_gradients_agree_with_the_decomposition(t):
    x, y, new = data(n=120, t=t)
    options = {"noise": 0.3, "learn": False, "tol": 1e-10, "random_state": 0}
    kernel = 2.0 * RBFKernel(lengthscale=0.7)
    exact = GaussianProcess(kernel, **options).fit(x, y)
    for memory in (2**16, 2**18):  # rows again and again; the matrix is kept
        ours = GaussianProcess(kernel, memory=memory, **options).fit(x, y)
        assert ours.residual_ <= 1e-10
        assert np.isnan(ours.rounding_)
        np.testing.assert_allclose(ours.alpha_, exact.alpha_, atol=1e-7)
        for a, b in zip(
            ours.predict(new, return_std=True), exact.predict(new, return_std=True), strict=True
        ):
            np.testing.assert_allclose(a, b, atol=1e-8)
        a, b = (model.predict(new, return_cov=True)[1] for model in (ours, exact))
        np.testing.assert_allclose(a, b, atol=1e-8)
        gap = ours.log_marginal_likelihood_ - exact.log_marginal_likelihood_
        error = ours.log_marginal_likelihood_error_
        assert 0 < error < 3 * (t or 1)
        assert abs(gap) < 5 * error
        _, gradient = ours.log_marginal_likelihood(gradient=True)
        _, expected = exact.log_marginal_likelihood(gradient=True)
        for name, value in expected.items():  # some 16 probes of traces up to n t = 240
            assert float(gradient[name]) == pytest.approx(float(value), abs=12 * (t or 1))


def test_learning_within_a_memory_limit():
    x, y, new = data(n=300)
    exact = GaussianProcess(1.0 * RBFKernel()).fit(x, y)
    ours = GaussianProcess(1.0 * RBFKernel(), memory=2**20, random_state=0).fit(x, y)
    lost = exact.log_marginal_likelihood_ - exact.log_marginal_likelihood(
        {**ours.kernel_.hyperparameters(), "noise": ours.noise_}
    )
    assert 0 <= lost < 3  # of 300 targets
    assert ours.residual_ <= 1e-4
    np.testing.assert_allclose(ours.predict(new), exact.predict(new), atol=0.05)


def test_variances_are_never_negative():
    """Where the answer is known, rounding decides the sign."""
    x = torch.linspace(0, 1, 50)[:, None]
    ours = GaussianProcess(RBFKernel(), noise=1e-3, learn=False).fit(x, x[:, 0])
    double = GaussianProcess(RBFKernel(), noise=0.0, learn=False).fit(
        x[::5].double(), x[::5, 0].double()
    )
    for model, dtype in ((ours, torch.float32), (double, torch.float64)):
        _, std = model.predict(x.to(dtype), return_std=True)
        _, covariance = model.predict(x.to(dtype), return_cov=True)
        assert (std >= 0).all()
        assert (covariance.diagonal() >= 0).all()
        assert torch.equal(covariance, covariance.T)
        assert model.sample_y(x.to(dtype), 3).isfinite().all()


def test_jitter_is_what_it_took():
    x = torch.linspace(0, 1, 50).double()[:, None]
    ours = GaussianProcess(RBFKernel(lengthscale=3.0), noise=0.0, learn=False).fit(x, x[:, 0].sin())
    eps = torch.finfo(torch.float64).eps
    assert eps <= ours.jitter_ <= 10 * len(x) * eps
    torch.testing.assert_close(ours.predict(x), x[:, 0].sin(), atol=1e-5, rtol=0)
    twice = x[[0, 0, 30]]  # equal inputs with equal targets are no conflict
    ours = GaussianProcess(RBFKernel(), noise=0.0, learn=False).fit(twice, twice[:, 0])
    torch.testing.assert_close(ours.predict(twice), twice[:, 0], atol=1e-9, rtol=0)


def test_single_precision_gives_way_to_double_where_rounding_reaches_the_noise():
    x, y, new = (torch.from_numpy(v).float() for v in data(n=200))
    for noise, dtype in ((0.3, torch.float32), (1e-2, torch.float64)):
        ours = GaussianProcess(5.0 * RBFKernel(), noise=noise, learn=False).fit(x, y)
        exact = GaussianProcess(5.0 * RBFKernel(), noise=noise, learn=False)
        exact.fit(x.double(), y.double())
        assert ours.dtype_ == dtype
        mean, std = ours.predict(new, return_std=True)
        assert mean.dtype == std.dtype == ours.alpha_.dtype == torch.float32
        torch.testing.assert_close(mean.double(), exact.predict(new.double()), atol=2e-3, rtol=0)
        assert ours.log_marginal_likelihood_ == pytest.approx(exact.log_marginal_likelihood_, 1e-3)


def test_a_warning_says_where_rounding_is_the_answer():
    """A function is not asked in double precision, so that it meets the limit."""
    x, y, new = (torch.from_numpy(v).float() for v in data(n=200))
    rbf = 1e4 * RBFKernel(lengthscale=3.0)
    with pytest.warns(
        RuntimeWarning, match=r"torch.float32 .* condition number of \d.*e\+"
    ) as seen:
        ours = GaussianProcess(lambda a, b: rbf(a, b), noise=0.1).fit(x, y)
    exact = GaussianProcess(rbf, noise=0.1, learn=False).fit(x.double(), y.double())
    right = exact.predict(new.double())
    off = float((ours.predict(new) - right).norm() / right.norm())
    assert 0.3 * off < ours.rounding_ < 3 * off
    K = rbf(x.double()) + (0.01 + ours.jitter_) * torch.eye(200)
    said = float(str(seen[0].message).split("number of ")[1].split(";")[0])
    assert said == pytest.approx(float(torch.linalg.cond(K)), rel=0.5)
    assert exact.rounding_ < 1e-6
    ours = GaussianProcess(lambda a, b: rbf(a, b), noise=30.0).fit(x, y)
    assert ours.rounding_ < 0.01
