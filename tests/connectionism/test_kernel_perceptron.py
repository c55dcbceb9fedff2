"""The kernel perceptron against a plain dual loop, and against the primal one."""

import math
import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel
from sklearn.utils.estimator_checks import parametrize_with_checks

from vademecum.connectionism import kernel_perceptron as module
from vademecum.connectionism.kernel_perceptron import KernelPerceptron
from vademecum.connectionism.perceptron import Perceptron


@parametrize_with_checks([KernelPerceptron()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def data(n=120, d=4, classes=3, draw=0):
    rng = np.random.default_rng(draw)
    x = rng.integers(-4, 5, (n, d)).astype(np.float64)
    return x, (x**2 @ rng.normal(size=(d, classes))).argmax(1)


def quietly(estimator, x, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(x, y)


def loop(gram, y, epochs, bias):
    """Mistakes on each example and the bias, for signs y."""
    alpha, b = np.zeros(len(y), int), 0.0
    for _ in range(epochs):
        for i in range(len(y)):
            if y[i] * ((alpha * y) @ gram[i] + b) <= 0:
                alpha[i] += 1
                b += bias * y[i]
    return alpha, b


KERNELS = [
    ({"kernel": "linear"}, lambda x, z: x @ z.T),
    (
        {"kernel": "poly", "degree": 2, "gamma": 0.5, "coef0": 2.0},
        lambda x, z: polynomial_kernel(x, z, degree=2, gamma=0.5, coef0=2),
    ),
    ({"kernel": "rbf", "gamma": 0.1}, lambda x, z: rbf_kernel(x, z, gamma=0.1)),
    ({"kernel": "rbf"}, rbf_kernel),
    ({"kernel": lambda x, z: (x @ z.T) ** 2}, lambda x, z: (x @ z.T) ** 2),
]


@pytest.mark.parametrize(("options", "kernel"), KERNELS)
@pytest.mark.parametrize(("bias", "entries"), [(True, 500), (False, 500), (True, 10**6)])
def test_equals_the_dual_loop(options, kernel, bias, entries, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 7)
    monkeypatch.setattr(module, "STRIP", 17)
    monkeypatch.setattr(module, "ENTRIES", entries)
    x, y = data()
    ours = KernelPerceptron(**options, shuffle=False, max_iter=3, tol=None, fit_intercept=bias)
    quietly(ours, x, y)
    new = x[:50] + 0.5
    scores = ours.decision_function(new)
    for c in range(3):
        sign = np.where(y == c, 1, -1)
        alpha, b = loop(kernel(x, x), sign, 3, bias)
        np.testing.assert_array_equal(ours.alpha_[:, c], alpha)
        assert ours.intercept_[c] == b
        assert ours.mistakes_[c] == alpha.sum()
        np.testing.assert_allclose(
            scores[:, c], kernel(new, x) @ (alpha * sign) + b, rtol=1e-9, atol=1e-9
        )
    np.testing.assert_array_equal(ours.predict(new), scores.argmax(1))
    np.testing.assert_array_equal(ours.support_, np.flatnonzero(ours.alpha_.any(1)))
    np.testing.assert_array_equal(ours.support_vectors_, x[ours.support_])


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("epochs", [1, 2, 5])
def test_makes_the_mistakes_of_the_primal(classes, shuffle, epochs):
    x, y = data(600, classes=classes)
    options = {"max_iter": epochs, "tol": None, "shuffle": shuffle, "random_state": 0}
    dual = quietly(KernelPerceptron(kernel="linear", **options), x, y)
    primal = quietly(Perceptron(**options), x, y)
    np.testing.assert_array_equal(dual.mistakes_, primal.mistakes_)
    np.testing.assert_array_equal(dual.dual_coef_ @ dual.support_vectors_, primal.coef_)
    np.testing.assert_array_equal(dual.intercept_, primal.intercept_)
    np.testing.assert_array_equal(dual.predict(x), primal.predict(x))


@pytest.mark.parametrize(("shift", "dtype"), [(2.0**24, torch.float64), (2.0**9, torch.float32)])
def test_the_place_of_the_data_does_not_matter_to_rbf(shift, dtype):
    x, y = (torch.tensor(v) for v in data())
    options = {"gamma": 0.25, "max_iter": 3, "tol": None, "shuffle": False}
    near, far = (quietly(KernelPerceptron(**options), x.to(dtype) + s, y) for s in (0.0, shift))
    assert torch.equal(far.alpha_, near.alpha_)
    new = x.to(dtype) + 0.5
    scores = far.decision_function(new + shift)
    torch.testing.assert_close(scores, near.decision_function(new), rtol=0, atol=1e-3)


def test_separates_what_no_hyperplane_does():
    turn = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    circle = np.c_[np.cos(turn), np.sin(turn)]
    x, y = np.r_[circle, 2 * circle], np.repeat(["inner", "outer"], 40)
    unit = KernelPerceptron(kernel="rbf", gamma=1.0, tol=None, random_state=0).fit(x, y)
    np.testing.assert_array_equal(unit.predict(x), y)
    assert unit.alpha_.shape == (80,)
    assert unit.mistakes_ == unit.alpha_.sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_in_tensors_out(dtype):
    x, y = data()
    tensors = torch.tensor(x, dtype=dtype), torch.tensor(y)
    options = {"kernel": "poly", "degree": 2, "gamma": 1.0, "max_iter": 4, "random_state": 0}
    unit = quietly(KernelPerceptron(**options), *tensors)
    array = quietly(KernelPerceptron(**options), x, y)
    assert unit.decision_function(tensors[0]).dtype == unit.dual_coef_.dtype == dtype
    np.testing.assert_array_equal(unit.alpha_, array.alpha_)
    np.testing.assert_array_equal(unit.predict(tensors[0]), array.predict(x))


def test_less_memory_gives_the_same(monkeypatch):
    x, y = data()
    asked = []

    def kernel(x, z):
        asked.append(len(x) * len(z))
        return (1 + x @ z.T) ** 2

    options = {"kernel": kernel, "max_iter": 3, "tol": None, "random_state": 0}
    whole = quietly(KernelPerceptron(**options), x, y)
    scores = whole.decision_function(x)
    assert max(asked) == len(x) ** 2
    asked.clear()
    memory = 4 * 8 * 20 * len(x)  # four copies of twenty rows in double precision
    ours = quietly(KernelPerceptron(**options, memory=memory), x, y)
    np.testing.assert_array_equal(ours.alpha_, whole.alpha_)
    np.testing.assert_allclose(ours.decision_function(x), scores)
    assert 10 * len(x) < max(asked) <= 20 * len(x)


X, Y = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([0, 1])
ERRORS = [
    ({}, X, torch.tensor([1, 1]), "y must have at least two classes, got one class: 1"),
    ({}, X * math.inf, Y, "X must be finite, got inf"),
    ({"kernel": "cubic"}, X, Y, "kernel must be one of 'rbf', 'poly', 'linear', got 'cubic'"),
    ({"memory": 0}, X, Y, "memory must be >= 1, got 0"),
    ({"gamma": 0.0}, X, Y, "gamma must be > 0, got 0"),
    ({"gamma": "scale"}, X, Y, "gamma must be a number, got 'scale'"),
    ({"kernel": "poly", "degree": 0}, X, Y, "degree must be >= 1, got 0"),
    ({"kernel": "poly", "degree": 1.5}, X, Y, "degree must be an integer, got 1.5"),
    ({"kernel": "poly", "coef0": -1}, X, Y, "coef0 must be >= 0, got -1"),
    ({"kernel": "poly", "degree": 200}, 1e5 * X, Y, "kernel must give finite values"),
    (
        {"kernel": lambda x, z: x[:, :1]},
        X,
        Y,
        r"kernel must give a tensor of shape \(2, 2\), got \(2, 1\)",
    ),
    ({"kernel": lambda x, z: 1.0}, X, Y, r"kernel must give a tensor of shape .*, got float"),
    ({"max_iter": 0}, X, Y, "max_iter must be >= 1, got 0"),
]


@pytest.mark.parametrize(("options", "x", "y", "message"), ERRORS)
def test_errors(options, x, y, message):
    with pytest.raises(ValueError, match=message):
        KernelPerceptron(**options).fit(x, y)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    x, y = (torch.from_numpy(v) for v in data(700))
    options = {"kernel": "poly", "degree": 2, "gamma": 1.0, "max_iter": 4, "random_state": 0}
    cpu = quietly(KernelPerceptron(**options), x, y)
    gpu = quietly(KernelPerceptron(**options), x.cuda(), y.cuda())
    assert torch.equal(gpu.alpha_.cpu(), cpu.alpha_)
    assert torch.equal(gpu.predict(x.cuda()).cpu(), cpu.predict(x))
