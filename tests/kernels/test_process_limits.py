"""Gaussian processes where memory or precision is short."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from tests.kernels.test_gaussian_process import data
from vademecum.kernels import GaussianProcess, KernelRidge, LinearKernel, RBFKernel


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


def test_a_warning_where_double_precision_exceeds_the_memory():
    x, y, _ = (torch.from_numpy(v).float() for v in data(n=200))
    options = {"noise": 1e-2, "learn": False}
    kernel = 1e4 * RBFKernel(lengthscale=3.0)
    with pytest.warns(RuntimeWarning, match="condition number of .* take more noise, or double"):
        ours = GaussianProcess(kernel, memory=5 * 200**2 * 4, **options).fit(x, y)
    assert ours.dtype_ == torch.float32
    wide = GaussianProcess(kernel, memory=5 * 200**2 * 8, **options).fit(x, y)
    assert wide.dtype_ == torch.float64


def test_conjugate_gradients_in_double_precision_where_rounding_reaches_the_noise():
    """In single precision such forms are negative by rounding."""
    x = torch.rand(1000, 2, generator=torch.Generator().manual_seed(0))
    y = torch.sin(4 * x[:, 0])
    known = {"noise": 1e-2, "learn": False, "random_state": 0}
    ours = GaussianProcess(RBFKernel(), memory=2**20, **known).fit(x, y)
    exact = GaussianProcess(RBFKernel(), **known).fit(x.double(), y.double())
    assert ours.dtype_ == torch.float64
    assert ours.alpha_.dtype == torch.float32
    new = x[:20] + 0.01
    gap = ours.predict(new).double() - exact.predict(new.double())
    assert gap.abs().max() < 1e-3


def test_no_targets_but_zeros():
    x = torch.rand(30, 2, generator=torch.Generator().manual_seed(0))
    ours = GaussianProcess(noise=0.1, learn=False, memory=4000).fit(x, torch.zeros(30))
    assert ours.residual_ == 0
    assert not ours.predict(x).any()


@pytest.mark.parametrize("case", range(3))
def test_learning_without_noise_finds_the_function(case):
    """The first derivatives are in the thousands, and must not lead to an end of the range."""
    rng = np.random.default_rng(case)
    x, new = rng.uniform(size=(30, 2)), rng.uniform(size=(20, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # rounding may end the search
        ours = GaussianProcess(noise=0.0).fit(x, np.sin(4 * x[:, 0]))
        learnt = GaussianProcess().fit(x, np.sin(4 * x[:, 0]))
    for model in (ours, learnt):
        assert model.log_marginal_likelihood_ > 90
        np.testing.assert_allclose(model.predict(new), np.sin(4 * new[:, 0]), atol=0.02)


def test_a_kernel_that_is_zero_is_positive_semidefinite():
    ours = GaussianProcess(LinearKernel(), noise=0.0, learn=False).fit([[0.0]], [0.0])
    mean, std = ours.predict([[2.0]], return_std=True)
    assert (mean[0], std[0]) == (0.0, 2.0)


FUNCTIONS = {
    "asymmetric": (
        lambda a, b: torch.exp(-torch.cdist(a, b)) + 0.3 * a[:, :1],
        r"^kernel must be symmetric, got ",
    ),
    "indefinite": (
        lambda a, b: -(a @ b.T),
        r"^kernel must be positive semidefinite, and 0.25 on the diagonal more than rounding in"
        r" torch.float64, got a matrix of 40 inputs, of which 40 have the smallest eigenvalue -\d",
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_that_are_no_kernels_are_refused_above_memory(name):
    kernel, message = FUNCTIONS[name]
    x, y, _ = data()
    for model in (
        GaussianProcess(kernel, noise=0.5, memory=4000),
        KernelRidge(kernel, alpha=0.25, memory=4000),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(x, y)


def test_deviations_keep_to_the_memory():
    """Conjugate gradients hold a dozen blocks: their right-hand sides come in portions."""
    x, y, _ = data(n=300)
    rows = []

    def kernel(a, b):
        rows.append(len(a) * len(b))
        return torch.exp(-torch.cdist(a, b))

    memory = 300 * 300 * 8
    ours = GaussianProcess(kernel, noise=0.3, memory=memory).fit(x, y)
    rows.clear()
    std = ours.predict(x, return_std=True)[1]
    assert 0 < max(r for r in rows if r != 300 * 300) * 8 <= memory / 6
    assert (std > 0).all()
