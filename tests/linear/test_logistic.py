"""Logistic regression against scikit-learn's, Newton's method, and by hand."""

import math
import warnings

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression as Reference
from sklearn.utils.estimator_checks import parametrize_with_checks

from vademecum.estimators import SparseRows
from vademecum.linear._penalised_likelihood import PenalisedLikelihood
from vademecum.linear.logistic import LogisticRegression


@parametrize_with_checks([LogisticRegression(tol=1e-12)])  # some compare digits of the optimum
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def noisy(n=200, d=5, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * np.logspace(-1, 1, d)
    return x, (x[:, 0] - x[:, 1] + rng.logistic(size=n) > 0.3).astype(int)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("c", [0.01, 1.0, 100.0])
def test_equals_scikit_learn(bias, weighted, c):
    x, y = noisy()
    s = np.random.default_rng(1).uniform(0, 3, len(x)) if weighted else np.ones(len(x))
    ours = LogisticRegression(weight_decay=1 / (c * s.sum()), tol=1e-11, fit_intercept=bias)
    ours.fit(x, y, s)
    theirs = Reference(C=c, solver="newton-cholesky", tol=1e-12, fit_intercept=bias).fit(x, y, s)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-6, atol=1e-8)
    for name in ("predict_proba", "predict_log_proba", "decision_function", "predict"):
        mine, reference = (getattr(model, name)(x) for model in (ours, theirs))
        np.testing.assert_allclose(mine, reference, rtol=1e-6, atol=1e-8)


def gradient(model, x, y, decay):
    """The largest entry of the gradient at the model's weights, in double precision."""
    w = torch.as_tensor(model.coef_)[0].double().requires_grad_()
    b = torch.as_tensor(model.intercept_)[0].double().requires_grad_()
    z = torch.as_tensor(x).double() @ w + b
    loss = torch.nn.functional.binary_cross_entropy_with_logits(z, torch.as_tensor(y).double())
    parts = torch.autograd.grad(loss + decay / 2 * w @ w, (w, b))
    return max(float(part.abs().max()) for part in parts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-6])
def test_the_gradient_is_as_small_as_it_says(dtype, tol):
    x, y = (torch.from_numpy(v) for v in noisy(3000))
    x = x.to(dtype)
    model = LogisticRegression(tol=tol).fit(x, y)
    assert model.coef_.dtype == model.predict_proba(x).dtype == dtype
    assert model.gradient_ <= tol
    rounding = 1e-12 if dtype == torch.float64 else 3e-6  # of weights of size 1, data of size 10
    assert gradient(model, x, y, 1e-4) == pytest.approx(model.gradient_, rel=1e-3, abs=rounding)


def test_single_precision_is_refined():
    x, y = noisy(3000)
    exact = LogisticRegression(tol=1e-12).fit(x.astype(np.float32).astype(np.float64), y)
    model = LogisticRegression(tol=1e-12).fit(x.astype(np.float32), y)
    assert model.gradient_ <= 1e-12
    np.testing.assert_allclose(model.coef_, exact.coef_, rtol=1e-6)


def test_rows_may_come_in_chunks(monkeypatch):
    from vademecum.linear import _penalised_likelihood as module

    x, y = noisy(700)
    whole = LogisticRegression(tol=1e-11).fit(x, y)
    monkeypatch.setitem(module.CHUNK, "cpu", 64)
    monkeypatch.setattr(module, "LONG", 64)
    np.testing.assert_allclose(LogisticRegression(tol=1e-11).fit(x, y).coef_, whole.coef_)
    monkeypatch.setattr(module, "LARGEST", 4)  # so that only diagonals are left
    np.testing.assert_allclose(LogisticRegression(tol=1e-11).fit(x, y).coef_, whole.coef_)


def test_zero_weight_is_absence_and_two_is_repetition():
    x, y = noisy(60)
    s = np.arange(60) % 3
    weighted = LogisticRegression(tol=1e-12).fit(x, y, s)
    repeated = LogisticRegression(tol=1e-12).fit(x.repeat(s, 0), y.repeat(s))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-7)


def test_weights_may_have_gradients_and_a_class_few_examples():
    x, y = torch.randn(3000, 2), torch.arange(3000) == 7
    model = LogisticRegression().fit(x, y, torch.ones(3000, requires_grad=True))
    assert not model.coef_.requires_grad
    half = LogisticRegression(weight_decay=1.0, tol=1e-3).fit(x.bfloat16(), ~y)  # 2999 rounds
    assert half.predict_proba(x.bfloat16())[:, 1].float().mean() > 0.99


def test_warm_start():
    x, y = noisy()
    model = LogisticRegression(warm_start=True, tol=1e-8).fit(x, y)
    first = model.coef_
    assert model.fit(x, y).n_iter_ == 0
    np.testing.assert_allclose(model.coef_, first)
    model.set_params(weight_decay=1e-3)
    cold = LogisticRegression(weight_decay=1e-3, tol=1e-8).fit(x, y)
    np.testing.assert_allclose(model.fit(x, y).coef_, cold.coef_, rtol=1e-5)
    with pytest.raises(ValueError, match="warm_start must continue"):
        model.fit(x[:, :2], y)


SEPARABLE = {
    "completely": ([[-2.0], [-1.0], [1.0], [3.0]], [0, 0, 1, 1]),
    "with a tie": ([[-2.0], [0.0], [0.0], [3.0]], [0, 0, 1, 1]),
    "in one of two directions": (
        [[0.0, 1.0], [0.0, -1.0], [1.0, 1.0], [0.0, 1.0], [0.0, -1.0], [0.0, 2.0]],
        [0, 1, 1, 1, 0, 0],
    ),
}


@pytest.mark.parametrize("name", SEPARABLE)
def test_separable_classes_without_decay(name):
    x, y = (torch.tensor(v) for v in SEPARABLE[name])
    with pytest.warns(ConvergenceWarning, match="linearly separable, so that without weight_decay"):
        model = LogisticRegression(weight_decay=0.0).fit(x, y)
    assert (model.predict(x) == y).sum() >= len(y) / 2
    assert model.gradient_ <= 1e-6
    LogisticRegression().fit(x, y)  # and with decay there is nothing to warn of


def test_separability_is_told_as_by_linear_programming():
    rng = np.random.default_rng(0)
    seen = set()
    for case in range(60):
        x = rng.integers(-2, 3, (12, 2)).astype(float)
        y = (x[:, 0] > 0).astype(int) if case % 3 == 0 else rng.integers(0, 2, 12)
        y[:2] = 0, 1
        signed = np.c_[x, np.ones(12)] * (2 * y - 1)[:, None]
        found = linprog(
            np.zeros(3), -signed, np.zeros(12), signed.sum(0)[None], [1.0], (None, None)
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            LogisticRegression(weight_decay=0.0).fit(x, y)
        assert len(caught) == (found.status == 0)
        seen.add(len(caught))
    assert seen == {0, 1}


def test_overlapping_classes_without_decay():
    for seed in range(5):
        x, y = noisy(100, 3, seed)
        model = LogisticRegression(weight_decay=0.0, tol=1e-10).fit(x, y)  # no warning
        theirs = Reference(C=np.inf, solver="newton-cholesky", tol=1e-12).fit(x, y)
        np.testing.assert_allclose(model.coef_, theirs.coef_, rtol=1e-5)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_scale_of_the_data(scale):
    x, y = noisy()
    model = LogisticRegression(weight_decay=0.0, tol=1e-7 * scale).fit(scale * x, y)
    reference = LogisticRegression(weight_decay=0.0, tol=1e-10).fit(x, y)
    np.testing.assert_allclose(model.coef_ * scale, reference.coef_, rtol=1e-4, atol=1e-6)


def test_constant_and_repeated_features():
    x, y = noisy()
    wide = np.c_[x, x[:, 0], np.zeros(len(x)), np.ones(len(x))]
    model = LogisticRegression(weight_decay=0.0, tol=1e-9).fit(wide, y)
    reference = LogisticRegression(weight_decay=0.0, tol=1e-9).fit(x, y)
    np.testing.assert_allclose(model.predict_proba(wide), reference.predict_proba(x), atol=1e-6)
    assert model.coef_[0, -2] == 0


def test_fewer_examples_than_features():
    x, y = noisy(10, 30)
    model = LogisticRegression(weight_decay=0.1, tol=1e-11).fit(x, y)
    theirs = Reference(C=1.0, tol=1e-12, solver="newton-cholesky").fit(x, y)
    np.testing.assert_allclose(model.coef_, theirs.coef_, rtol=1e-6, atol=1e-9)


def test_warning_says_by_how_much_it_missed():
    x, y = noisy()
    with pytest.warns(ConvergenceWarning, match=r"max_iter=1 reached: the gradient is 0\.\d+, tol"):
        model = LogisticRegression(max_iter=1, tol=1e-9).fit(x, y)
    assert model.n_iter_ == 1
    assert gradient(model, x, y, 1e-4) == pytest.approx(model.gradient_)
    with pytest.warns(ConvergenceWarning, match=r"no further progress .*: the gradient is .*e-"):
        LogisticRegression(tol=1e-30).fit(x, y)


X, Y = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([0, 1, 0])
ERRORS = [
    ({"weight_decay": -1.0}, X, Y, None, "weight_decay must be >= 0, got -1.0"),
    ({"weight_decay": math.nan}, X, Y, None, "weight_decay must be >= 0, got nan"),
    ({"tol": 0.0}, X, Y, None, "tol must be > 0, got 0.0"),
    ({"max_iter": 0}, X, Y, None, "max_iter must be >= 1, got 0"),
    ({}, X * math.nan, Y, None, "X must be finite, got nan"),
    ({}, X.double() * 1e200, Y, None, "X must be smaller: the squares of its entries overflow"),
    ({}, X * 1j, Y, None, "X must be real, got torch.complex64"),
    ({}, X.long(), Y, None, "X must be floating point, got torch.int64"),
    ({}, X[:0], Y[:0], None, "X must not be empty"),
    ({}, X[:, 0], Y, None, "X must have 2 axes"),
    ({}, X, Y[:2], None, r"y must have shape \(3,\), got shape \(2,\)"),
    ({}, X, torch.zeros(3), None, "y must have at least two classes, got one class: 0"),
    ({}, X, torch.arange(3), None, "y must have two classes, got 3: SoftmaxRegression"),
    ({}, X, Y, torch.tensor([1.0, -1.0, 1.0]), "sample_weight must be >= 0, got -1.0"),
    ({}, X, Y, torch.tensor([1.0, 0.0, 1.0]), "a class has no weight: y or sample_weight is zero"),
    ({}, X, Y, torch.tensor([0.0, 1.0, 0.0]), "a class has no weight: y or sample_weight is zero"),
    ({}, X, Y, torch.ones(2), "sample_weight must be 3 wide"),
    ({}, X, Y, torch.tensor([1.0, math.inf, 1.0]), "sample_weight must be finite, got inf"),
]


@pytest.mark.parametrize(("options", "x", "y", "weight", "message"), ERRORS)
def test_errors(options, x, y, weight, message):
    with pytest.raises(ValueError, match=message):
        LogisticRegression(**options).fit(x, y, weight)


def test_width_is_remembered():
    with pytest.raises(ValueError, match=r"X must be 1 wide, got shape \(1, 3\)"):
        LogisticRegression().fit(X, Y).predict(torch.zeros(1, 3))


def test_probabilities_far_out():
    model = LogisticRegression().fit(X, torch.tensor([0, 0, 1]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logs = model.predict_log_proba(torch.tensor([[-1e4], [1e4]]))
    assert logs.isfinite().all()
    assert logs[0, 0] == logs[1, 1] == 0.0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    x, y = (torch.from_numpy(v) for v in noisy(3000))
    cpu = LogisticRegression(tol=1e-10).fit(x, y)
    gpu = LogisticRegression(tol=1e-10).fit(x.cuda(), y.cuda())
    assert gpu.coef_.is_cuda
    torch.testing.assert_close(gpu.coef_.cpu(), cpu.coef_)
    torch.testing.assert_close(gpu.predict_proba(x.cuda()).cpu(), cpu.predict_proba(x))
    single = LogisticRegression().fit(x.float().cuda(), y.cuda())
    torch.testing.assert_close(single.coef_.cpu().double(), cpu.coef_, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("sparse", [False, True])
def test_the_gradient_of_many_examples_in_single_precision(sparse):
    x = torch.rand(300_000, 4, generator=torch.Generator().manual_seed(0)) + 1
    y = torch.ones(1, len(x))  # so that all summands have one sign
    theta, s = torch.tensor([0.1, 0.2, -0.3, 0.1, 0.2]).double(), torch.ones(len(x))
    rows = SparseRows(csr_array(x.numpy())) if sparse else x
    single = PenalisedLikelihood(rows, y, s, weight_decay=0.0)(theta)[1]
    exact = PenalisedLikelihood(x.double(), y.double(), s.double(), weight_decay=0.0)(theta)[1]
    assert float((single - exact).abs().max()) < 3e-7  # of 0.5, in one sum 1e-5
