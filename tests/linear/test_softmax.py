"""Softmax regression against scikit-learn's, autograd, and by hand."""

import math

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression as Reference
from sklearn.utils.estimator_checks import parametrize_with_checks

from vademecum.linear.logistic import LogisticRegression
from vademecum.linear.softmax import SoftmaxRegression


@parametrize_with_checks([SoftmaxRegression(tol=1e-12)])  # some compare digits of the optimum
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def noisy(n=300, d=4, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * np.logspace(-1, 1, d)
    z = x @ rng.normal(size=(d, classes)) + rng.gumbel(size=(n, classes))
    return x, z.argmax(1)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("classes", [3, 7])
def test_equals_scikit_learn(bias, weighted, classes):
    x, y = noisy(classes=classes)
    s = np.random.default_rng(1).uniform(0, 3, len(x)) if weighted else np.ones(len(x))
    ours = SoftmaxRegression(weight_decay=1 / s.sum(), tol=1e-11, fit_intercept=bias).fit(x, y, s)
    options = {"solver": "newton-cholesky", "tol": 1e-12, "fit_intercept": bias}
    theirs = Reference(**options).fit(x, y, s)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-6, atol=1e-7)
    expected = theirs.intercept_ - theirs.intercept_.mean()
    np.testing.assert_allclose(ours.intercept_, expected, rtol=1e-6, atol=1e-7)
    for name in ("predict_proba", "predict_log_proba", "predict"):
        mine, reference = (getattr(model, name)(x) for model in (ours, theirs))
        np.testing.assert_allclose(mine, reference, rtol=1e-5, atol=1e-8)


def gradient(model, x, y, decay):
    """The largest entry of the gradient at the model's weights, in double precision."""
    w = torch.as_tensor(model.coef_).double().requires_grad_()
    b = torch.as_tensor(model.intercept_).double().requires_grad_()
    z = torch.as_tensor(x).double() @ w.T + b
    loss = torch.nn.functional.cross_entropy(z, torch.as_tensor(y))
    parts = torch.autograd.grad(loss + decay / 2 * w.square().sum(), (w, b))
    return max(float(part.abs().max()) for part in parts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("decay", [0.0, 1e-4, 1.0])
def test_the_gradient_is_as_small_as_it_says(dtype, decay):
    x, y = (torch.from_numpy(v) for v in noisy(3000))
    x = x.to(dtype)
    model = SoftmaxRegression(weight_decay=decay, tol=1e-5).fit(x, y)
    assert model.coef_.dtype == model.predict_proba(x).dtype == dtype
    rounding = 1e-12 if dtype == torch.float64 else 1e-5  # of logits of size 10, data of size 10
    assert gradient(model, x, y, decay) <= 1e-5 + rounding
    torch.testing.assert_close(model.coef_.sum(0), torch.zeros(4, dtype=dtype), atol=1e-5, rtol=0)


def test_labels_of_any_kind():
    x, y = noisy()
    names = np.array(["one", "two", "three"])
    named, plain = SoftmaxRegression().fit(x, names[y]), SoftmaxRegression().fit(x, y)
    assert named.classes_.tolist() == ["one", "three", "two"]
    assert (named.predict(x) == names[plain.predict(x)]).all()
    np.testing.assert_allclose(named.predict_proba(x), plain.predict_proba(x)[:, [0, 2, 1]])


def test_two_classes_are_logistic_regression():
    x, y = noisy(classes=2)
    two = SoftmaxRegression(weight_decay=1e-3, tol=1e-10).fit(x, y)
    one = LogisticRegression(weight_decay=5e-4, tol=1e-10).fit(x, y)  # |w|^2 = 2 |w/2|^2 + ...
    np.testing.assert_allclose(two.coef_[1] - two.coef_[0], one.coef_[0], rtol=1e-6)
    np.testing.assert_allclose(two.decision_function(x), one.decision_function(x), rtol=1e-5)
    np.testing.assert_allclose(two.predict_proba(x), one.predict_proba(x), rtol=1e-5, atol=1e-9)


def test_soft_targets_are_weighted_labels():
    x, _ = noisy(80)
    soft = np.random.default_rng(0).dirichlet(np.ones(3), 80)
    ours = SoftmaxRegression(tol=1e-11).fit(x, soft)
    repeated = x.repeat(3, 0), np.tile([0, 1, 2], 80), soft.ravel()
    hard = SoftmaxRegression(tol=1e-11).fit(*repeated)
    np.testing.assert_allclose(ours.coef_, hard.coef_, rtol=1e-6, atol=1e-9)
    assert ours.classes_.tolist() == [0, 1, 2]
    tensors = SoftmaxRegression(tol=1e-11).fit(torch.from_numpy(x), torch.from_numpy(soft))
    np.testing.assert_allclose(tensors.coef_.numpy(), ours.coef_, rtol=1e-9)
    assert torch.equal(tensors.classes_, torch.arange(3))
    learnt = SoftmaxRegression().fit(torch.from_numpy(x), torch.from_numpy(soft).requires_grad_())
    assert not learnt.coef_.requires_grad


def test_separable_classes_without_decay():
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    with pytest.warns(ConvergenceWarning, match="the classes are linearly separable"):
        model = SoftmaxRegression(weight_decay=0.0).fit(x, torch.arange(3))
    assert model.predict(x).tolist() == [0, 1, 2]
    soft = torch.tensor([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
    found = SoftmaxRegression(weight_decay=0.0).fit(x, soft)  # finite, so there is no warning
    torch.testing.assert_close(found.predict_proba(x), soft, atol=1e-5, rtol=0)
    x, y = noisy(seed=3)
    SoftmaxRegression(weight_decay=0.0).fit(x, y)  # these overlap: no warning


def test_warm_start_and_early_stopping():
    x, y = noisy()
    model = SoftmaxRegression(max_iter=2, warm_start=True)
    with pytest.warns(ConvergenceWarning, match=r"max_iter=2 reached: the gradient is \d.*tol=1e-"):
        first = model.fit(x, y).gradient_
    assert gradient(model, x, y, 1e-4) == pytest.approx(first)
    model.set_params(max_iter=100)
    assert model.fit(x, y).gradient_ < 1e-6 < first
    with pytest.raises(ValueError, match="warm_start must continue with the same classes"):
        model.fit(x, y + 1)


X, Y = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([0, 1, 2])
HALF = torch.full((3, 2), 0.5)
ERRORS = [
    ({"weight_decay": -1.0}, X, Y, None, "weight_decay must be >= 0, got -1.0"),
    ({"tol": -1.0}, X, Y, None, "tol must be > 0, got -1.0"),
    ({}, X * math.inf, Y, None, "X must be finite, got"),
    ({}, X, torch.zeros(3), None, "y must have at least two classes, got one class: 0"),
    ({}, X, torch.tensor([0.5, 1.0, 2.0]), None, "y must be class labels, got the fraction 0.5"),
    ({}, X, Y, torch.tensor([1.0, 0.0, 1.0]), "a class has no weight: y or sample_weight is zero"),
    ({}, X, HALF * 1.1, None, "y must sum to one along axis -1, got a sum of 1.1"),
    ({}, X, HALF - torch.tensor([1.0, -1.0]), None, "entries of y must be >= 0, got -0.5"),
    ({}, X, HALF * math.nan, None, "y must be finite, got nan"),
    ({}, X, torch.eye(2)[[0, 0, 0]], None, "a class has no weight: y or sample_weight is zero"),
    ({}, X, HALF[:2], None, "inconsistent numbers of samples"),
    ({}, X, torch.ones(3, 2).long(), None, "y must be floating point, got torch.int64"),
]


@pytest.mark.parametrize(("options", "x", "y", "weight", "message"), ERRORS)
def test_errors(options, x, y, weight, message):
    with pytest.raises(ValueError, match=message):
        SoftmaxRegression(**options).fit(x, y, weight)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    x, y = (torch.from_numpy(v) for v in noisy(5000, classes=5))
    cpu = SoftmaxRegression(tol=1e-10).fit(x, y)
    gpu = SoftmaxRegression(tol=1e-10).fit(x.cuda(), y.cuda())
    assert gpu.coef_.is_cuda
    torch.testing.assert_close(gpu.coef_.cpu(), cpu.coef_)
    torch.testing.assert_close(gpu.predict_proba(x.cuda()).cpu(), cpu.predict_proba(x))
    single = SoftmaxRegression().fit(x.float().cuda(), y.cuda())
    torch.testing.assert_close(single.coef_.cpu().double(), cpu.coef_, rtol=1e-3, atol=1e-3)
