"""Kernel ridge regression against scikit-learn's and the primal equations."""

import re

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge as Theirs
from sklearn.utils.estimator_checks import parametrize_with_checks

from vademecum.kernels import KernelRidge, LinearKernel, RBFKernel


@parametrize_with_checks([KernelRidge(), KernelRidge(LinearKernel(bias=1.0), alpha=0.1)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def data(n=40, d=3, t=None, seed=0):
    rng = np.random.default_rng(seed)
    shape = n if t is None else (n, t)
    return rng.normal(size=(n, d)), rng.normal(size=shape), rng.normal(size=(7, d))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("t", "alpha"), [(None, 0.3), (3, 0.3), (3, [0.3, 2.0, 0.3])])
def test_equals_scikit_learn(t, alpha, weighted):
    """With a kernel, a function, a precomputed matrix, and within a memory limit."""
    x, y, new = data(t=t)
    s = np.random.default_rng(1).uniform(0.2, 3, len(x)) if weighted else None
    kernel = RBFKernel(lengthscale=0.8)
    gamma = 1 / (2 * 0.8**2)
    theirs = Theirs(alpha=alpha, kernel="rbf", gamma=gamma).fit(x, y, s)
    K, k = (np.exp(-gamma * ((a[:, None] - x) ** 2).sum(-1)) for a in (x, new))
    cases = {
        "kernel": (KernelRidge(kernel, alpha=alpha), x, new),
        "function": (KernelRidge(lambda a, b: kernel(a, b), alpha=alpha), x, new),
        "precomputed": (KernelRidge("precomputed", alpha=alpha), K, k),
        "memory": (KernelRidge(kernel, alpha=alpha, memory=2**13, tol=1e-11), x, new),
    }
    for name, (ours, train, test) in cases.items():
        ours.fit(train, y, s)
        np.testing.assert_allclose(ours.dual_coef_, theirs.dual_coef_, atol=1e-8, err_msg=name)
        np.testing.assert_allclose(ours.predict(test), theirs.predict(new), atol=1e-8)
        assert ours.jitter_ == 0
        assert ours.residual_ < 1e-11
        assert np.isnan(ours.rounding_) == (name == "memory")
        assert (ours.n_iter_ > 1) == (name == "memory")


def test_weights_are_repetitions_and_zero_is_absence():
    x, y, new = data()
    s = np.arange(len(x)) % 3
    ours = KernelRidge(RBFKernel(), alpha=0.5).fit(x, y, s)
    repeated = KernelRidge(RBFKernel(), alpha=0.5).fit(np.repeat(x, s, 0), np.repeat(y, s))
    np.testing.assert_allclose(ours.predict(new), repeated.predict(new), atol=1e-10)
    assert (ours.dual_coef_[s == 0] == 0).all()


def test_tensors_and_interpolation():
    x, y, new = (torch.from_numpy(v) for v in data())
    ours = KernelRidge(RBFKernel(lengthscale=0.8), alpha=0.0).fit(x, y)
    torch.testing.assert_close(ours.predict(x), y, atol=1e-7, rtol=0)
    single = KernelRidge(RBFKernel(lengthscale=0.8), alpha=0.3).fit(x.float(), y.float())
    assert single.predict(new.float()).dtype == single.dual_coef_.dtype == torch.float32
    exact = KernelRidge(RBFKernel(lengthscale=0.8), alpha=0.3).fit(x, y).predict(new)
    torch.testing.assert_close(single.predict(new.float()).double(), exact, atol=1e-5, rtol=0)


def test_the_default_kernel_is_gaussian():
    x, y, new = data()
    theirs = Theirs(kernel="rbf", gamma=0.5).fit(x, y)
    np.testing.assert_allclose(
        KernelRidge().fit(x, y).predict(new), theirs.predict(new), atol=1e-10
    )


def test_inputs_may_change_after_the_fit():
    x, y, new = (torch.from_numpy(v) for v in data())
    ours = KernelRidge().fit(x, y)
    before = ours.predict(new)
    x.mul_(3)
    assert torch.equal(ours.predict(new), before)


def test_iterations_that_did_not_suffice_are_said():
    x, y, _ = data(n=400, d=2)
    options = {"alpha": 1e-8, "memory": 2**15, "max_iter": 2, "tol": 1e-9}
    with pytest.warns(ConvergenceWarning, match="2 iterations reached a relative residual of"):
        ours = KernelRidge(RBFKernel(lengthscale=0.2), **options).fit(x, y)
    assert ours.residual_ > 1e-9


def test_a_warning_says_where_rounding_is_the_answer():
    x, y, _ = (torch.from_numpy(v).float() for v in data(n=200, d=2))
    with pytest.warns(RuntimeWarning, match="condition number of .* take more alpha, or double"):
        KernelRidge(RBFKernel(lengthscale=3.0), alpha=1e-7).fit(x, y)


X, Y = np.arange(6.0).reshape(3, 2), np.array([1.0, 2.0, 4.0])
ERRORS = {
    "alpha": ({"alpha": -1.0}, X, "alpha must be >= 0, got -1.0"),
    "alphas": ({"alpha": [1.0, 2.0]}, X, "alpha must have one entry for each target, 1, got 2"),
    "words": ({"alpha": "1"}, X, "alpha must be a number or one for each target, got '1'"),
    "tol": ({"tol": 0.0}, X, "tol must be > 0, got 0.0"),
    "memory": ({"memory": 0}, X, "memory must be >= 1, got 0"),
    "max_iter": ({"max_iter": 0}, X, "max_iter must be >= 1, got 0"),
    "kernel": (
        {"kernel": "rbf"},
        X,
        "kernel must be a Kernel or a function of x1 and x2, got 'rbf'",
    ),
    "duplicates": (
        {"alpha": 0},
        X[[0, 1, 1]],
        "alpha must be > 0 where equal inputs have different targets, got alpha = 0 and such"
        " inputs 1 and 2",
    ),
    "square": ({"kernel": "precomputed"}, X, "X must be square, got shape (3, 2)"),
    "asymmetric": (
        {"kernel": "precomputed"},
        np.triu(np.ones((3, 3))),
        "kernel must be symmetric, got 1 at (0, 1) and 0 at (1, 0)",
    ),
    "indefinite": (
        {"kernel": "precomputed"},
        -2 * np.eye(3),
        "kernel must be positive semidefinite, got a matrix of 3 inputs with the smallest"
        " eigenvalue -2, and 1 was added to its diagonal",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_name_what_is_wrong(name):
    options, x, message = ERRORS[name]
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        KernelRidge(**options).fit(x, Y)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_on_a_gpu():
    x, y, new = (torch.from_numpy(v) for v in data(n=100, t=2))
    for options in ({}, {"memory": 2**17, "tol": 1e-10}):
        there = KernelRidge(alpha=[0.1, 0.4], **options).fit(x.cuda(), y.cuda())
        here = KernelRidge(alpha=[0.1, 0.4], **options).fit(x, y)
        found = there.predict(new.cuda())
        assert found.is_cuda
        assert there.dual_coef_.is_cuda
        torch.testing.assert_close(found.cpu(), here.predict(new), atol=1e-8, rtol=0)
