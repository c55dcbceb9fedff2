"""The perceptron against the plain loop and against scikit-learn's."""

import math
import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Perceptron as Reference
from sklearn.utils.estimator_checks import parametrize_with_checks

from vademecum.connectionism import _perceptron_units as module
from vademecum.connectionism import _single_unit
from vademecum.connectionism.margins import augment
from vademecum.connectionism.mistake_path import perceptron_path
from vademecum.connectionism.perceptron import Perceptron


@parametrize_with_checks([Perceptron()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def integer_data(n=300, d=7, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.integers(-4, 5, (n, d)).astype(np.float64)
    return x, (x @ rng.normal(size=(d, classes)) + rng.normal(size=(n, classes))).argmax(1)


def quietly(estimator, x, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(x, y)


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("epochs", [1, 2, 7])
def test_equals_scikit_learn_after_each_epoch(classes, bias, epochs):
    x, y = integer_data(classes=classes)
    options = {"max_iter": epochs, "tol": None, "shuffle": False, "fit_intercept": bias}
    ours = quietly(Perceptron(**options), x, y)
    theirs = Reference(**options).fit(x, y)
    np.testing.assert_array_equal(ours.coef_, theirs.coef_)
    expected = theirs.intercept_ if bias else np.zeros_like(ours.intercept_)
    np.testing.assert_array_equal(ours.intercept_, expected)
    np.testing.assert_array_equal(ours.predict(x), theirs.predict(x))
    np.testing.assert_array_equal(ours.decision_function(x), theirs.decision_function(x))


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize(("tol", "patience"), [(1e-3, 5), (0.05, 2)])
def test_stops_where_scikit_learn_stops(classes, tol, patience):
    x, y = integer_data(classes=classes, seed=1)
    options = {"shuffle": False, "tol": tol, "n_iter_no_change": patience}
    ours, theirs = Perceptron(**options).fit(x, y), Reference(**options).fit(x, y)
    assert ours.n_iter_ == theirs.n_iter_ < 1000
    np.testing.assert_array_equal(ours.coef_, theirs.coef_)


def test_defaults_are_those_of_scikit_learn():
    ours, theirs = Perceptron().get_params(), Reference().get_params()
    for name in ("max_iter", "tol", "n_iter_no_change", "shuffle", "fit_intercept"):
        assert ours[name] == theirs[name]


@pytest.mark.parametrize("n", [1 + 31, 32, 33, 64, 2500])
def test_equals_the_plain_loop(n):
    x, y = integer_data(n, 5, 2)
    y[:2] = 0, 1
    sign = torch.from_numpy(2 * y - 1)
    wide = augment(torch.from_numpy(x))
    # one epoch of the loop: mistakes in the order of the examples, up to the first step back
    ours = quietly(Perceptron(max_iter=1, shuffle=False), x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        path = perceptron_path(wide, sign, max_iter=int(ours.mistakes_) + 1)
    back = (path.examples.diff() <= 0).nonzero()
    first = int(back[0]) + 1 if len(back) else len(path.examples)
    assert ours.mistakes_ == first
    np.testing.assert_array_equal(np.r_[ours.coef_[0], ours.intercept_], path.weights[first])


@pytest.mark.parametrize("shuffle", [True, False])
def test_block_sizes_do_not_matter(shuffle, monkeypatch):
    x, y = integer_data(500)
    options = {"max_iter": 3, "tol": None, "random_state": 0, "shuffle": shuffle}
    expected = quietly(Perceptron(**options), x, y)
    for block, strip in ((1, 1), (7, 3), (500, 64), (4096, 2)):
        monkeypatch.setitem(module.BLOCK, "cpu", block)
        monkeypatch.setattr(module, "STRIP", strip)
        again = quietly(Perceptron(**options), x, y)
        np.testing.assert_array_equal(again.coef_, expected.coef_)
        np.testing.assert_array_equal(again.mistakes_, expected.mistakes_)


@pytest.mark.parametrize("order", [None, np.random.default_rng(5).permutation(400)])
@pytest.mark.parametrize(("look", "strip"), [(1, 1), (1, 1000), (5, 64), (32, 256), (400, 400)])
def test_a_single_unit_follows_the_rule(order, look, strip, monkeypatch):
    monkeypatch.setattr(_single_unit, "LOOK", look)
    monkeypatch.setattr(_single_unit, "STRIP", strip)
    x, y = integer_data(400, 4, 2, seed=3)
    sign, w, b, mistakes, loss = 2.0 * y - 1, np.array([3.0, 0, -2, 1]), -1.0, 0, 0.0
    found, start = w.copy(), b
    for i in range(400) if order is None else order:
        margin = sign[i] * (x[i] @ w + b)
        if margin <= 0:
            w, b, mistakes, loss = w + sign[i] * x[i], b + sign[i], mistakes + 1, loss - margin
    assert _single_unit.show(x, sign, found, start, bias=1.0, order=order) == (b, mistakes, loss)
    np.testing.assert_array_equal(found, w)
    assert _single_unit.show(x, sign, found, 7.0, bias=0.0, order=order)[0] == 7.0


def test_the_last_unit_to_learn_learns_alone():
    x, y = integer_data(300, 6, 3, seed=2)
    options = {"max_iter": 40, "tol": 0.05, "n_iter_no_change": 2, "shuffle": False}
    ours, theirs = quietly(Perceptron(**options), x, y), Reference(**options).fit(x, y)
    np.testing.assert_array_equal(ours.coef_, theirs.coef_)
    for k in range(3):
        alone = quietly(Perceptron(**options), x, y == k)
        np.testing.assert_array_equal(alone.coef_[0], ours.coef_[k])
        assert alone.mistakes_ == ours.mistakes_[k]


def test_shuffling_is_a_new_order_each_epoch():
    x, y = integer_data(50, 3, 2)
    ours = quietly(Perceptron(max_iter=2, tol=None, random_state=3), x, y)
    rng = np.random.RandomState(3)
    w, made = np.zeros(4), 0
    for _ in range(2):
        for i in rng.permutation(50):
            z = np.r_[x[i], 1.0] * (2 * y[i] - 1)
            if z @ w <= 0:
                w, made = w + z, made + 1
    np.testing.assert_array_equal(np.r_[ours.coef_[0], ours.intercept_], w)
    assert ours.mistakes_ == made


def test_margin_and_bound_of_what_was_found():
    x = np.array([[3.0, 0.0], [0.0, 2.0], [-2.0, -1.0], [-1.0, -3.0]])
    y = np.array(["up", "up", "down", "down"])
    unit = Perceptron(shuffle=False, tol=None).fit(x, y)
    sign = np.where(y == "up", 1, -1)
    functional = sign * (x @ unit.coef_[0] + unit.intercept_)
    wide = np.r_[unit.coef_[0], unit.intercept_]
    assert unit.margin_ == pytest.approx(functional.min() / np.linalg.norm(unit.coef_))
    gamma = functional.min() / np.linalg.norm(wide)
    assert unit.novikov_bound_ == pytest.approx((1 + (x**2).sum(1).max()) / gamma**2)
    assert 0 < unit.mistakes_ <= unit.novikov_bound_
    score = np.array([9.0, 9.0]) @ unit.coef_[0] + unit.intercept_[0]
    assert unit.predict([[9.0, 9.0]]) == ["up" if score > 0 else "down"]
    np.testing.assert_array_equal(unit.predict(x), y)


@pytest.mark.parametrize("scale", [2.0**-520, 2.0**-50, 2.0**50, 2.0**500])
@pytest.mark.parametrize("classes", [2, 3])
def test_margin_and_bound_scale_with_the_data(scale, classes):
    x, y = integer_data(30, 8, classes)
    options = {"shuffle": False, "fit_intercept": False, "max_iter": 50, "tol": None}
    base, unit = (quietly(Perceptron(**options), s * x, y) for s in (1.0, scale))
    np.testing.assert_array_equal(unit.coef_, scale * base.coef_)
    np.testing.assert_array_equal(unit.margin_, scale * np.asarray(base.margin_))
    np.testing.assert_allclose(unit.novikov_bound_, base.novikov_bound_, rtol=1e-12)
    assert np.isfinite(unit.novikov_bound_).any()


def test_without_separation():
    x, y = np.array([[1.0], [1.0], [2.0]]), np.array([0, 1, 1])
    # By hand: from the third epoch on, two mistakes at x = 1 lead from w = 1, b = 0 back to it.
    with pytest.warns(ConvergenceWarning, match="max_iter=9 reached with 2 mistakes"):
        unit = Perceptron(max_iter=9, tol=None, shuffle=False).fit(x, y)
    assert (unit.coef_, unit.intercept_) == (1, 0)
    assert unit.n_iter_ == 9
    assert unit.margin_ <= 0
    assert unit.novikov_bound_ == math.inf
    stopped = Perceptron(shuffle=False).fit(x, y)  # by its tolerance, without a warning
    assert stopped.n_iter_ < 1000


def test_no_weights_no_margin():
    unit = Perceptron(tol=None, max_iter=4, shuffle=False)
    unit = quietly(unit, np.zeros((2, 1)), np.array([0, 1]))
    assert unit.margin_ == -math.inf


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_in_tensors_out(dtype):
    x, y = integer_data(200, 4, 3)
    ours = quietly(Perceptron(random_state=0, max_iter=5), x, y)
    tensor = quietly(
        Perceptron(random_state=0, max_iter=5), torch.tensor(x, dtype=dtype), torch.tensor(y)
    )
    assert (
        tensor.coef_.dtype == tensor.decision_function(torch.tensor(x, dtype=dtype)).dtype == dtype
    )
    np.testing.assert_array_equal(tensor.coef_, ours.coef_)
    answer = tensor.predict(torch.tensor(x, dtype=dtype))
    assert answer.dtype == torch.int64
    np.testing.assert_array_equal(answer, ours.predict(x))
    np.testing.assert_array_equal(ours.predict(torch.tensor(x)), ours.predict(x))
    np.testing.assert_array_equal(tensor.predict(x), answer)


def test_gradients_pass_through_the_scores_only():
    x = torch.tensor([[1.0], [-1.0]], requires_grad=True)
    unit = Perceptron().fit(x, torch.tensor([1, 0]))
    (gradient,) = torch.autograd.grad(unit.decision_function(x).sum(), x)
    assert torch.equal(gradient, unit.coef_.expand(2, 1))


def test_labels_of_any_kind():
    x = torch.tensor([[1.0], [-1.0]])
    assert Perceptron().fit(x, ["yes", "no"]).predict(x).tolist() == ["yes", "no"]
    assert Perceptron().fit(x, torch.tensor([True, False])).predict(x).tolist() == [True, False]
    assert Perceptron().fit(x, torch.tensor([2.0, -7.0])).predict(x).tolist() == [2.0, -7.0]


X, Y, F64 = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([0, 1]), torch.float64
ERRORS = [
    ({}, X, torch.tensor([1, 1]), "y must have at least two classes, got one class: 1"),
    ({}, X, torch.tensor([0, 1, 1]), r"y must have shape \(2,\), got shape \(3,\)"),
    ({}, X, torch.tensor([0.5, 1.0]), "y must be class labels, got the fraction 0.5"),
    ({}, X, torch.tensor([math.nan, 1.0]), "y must be finite, got nan"),
    ({}, X * math.nan, Y, r"X must be finite, got nan at \(0, 0\)"),
    ({}, X[0], Y, r"X must have 2 axes, got shape \(2,\)"),
    ({}, X[:0], Y[:0], r"X must not be empty, got shape \(0, 2\)"),
    ({}, X.long(), Y, "X must be floating point, got torch.int64"),
    ({}, X.numpy() * np.inf, Y.numpy(), "infinity"),
    ({}, X.numpy(), [0.5, 1.5], "Unknown label type"),
    ({"max_iter": 0}, X, Y, "max_iter must be >= 1, got 0"),
    ({"max_iter": 1.5}, X, Y, "max_iter must be an integer, got 1.5"),
    ({"n_iter_no_change": 0}, X, Y, "n_iter_no_change must be >= 1, got 0"),
    ({"tol": "small"}, X, Y, "tol must be a number, got 'small'"),
    ({"tol": math.nan}, X, Y, "tol must be .*, got nan"),
    ({}, torch.tensor([[1e308], [1.1e308]], dtype=F64), Y, "X must be smaller: scores overflow"),
    (
        {},
        torch.tensor([[1e200], [1e200], [1.0]], dtype=F64),
        torch.tensor([0, 1, 2]),
        "X must be sm",
    ),
    (
        {},
        torch.cat([X, X[:1].repeat(1024, 1), X[1:] * 5e37]),
        torch.arange(1027) % 2,
        "X must be smaller: .* torch.float32",
    ),
]


@pytest.mark.parametrize(("options", "x", "y", "message"), ERRORS)
def test_errors(options, x, y, message):
    with pytest.raises(ValueError, match=message), np.errstate(all="ignore"):
        quietly(Perceptron(**options), x, y)


def test_width_is_remembered():
    with pytest.raises(ValueError, match=r"X must be 2 wide, got shape \(1, 3\)"):
        quietly(Perceptron(), X, Y).predict(torch.zeros(1, 3))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("shuffle", [True, False])
def test_cuda(shuffle):
    x, y = (torch.from_numpy(v) for v in integer_data(700))
    options = {"max_iter": 5, "shuffle": shuffle, "random_state": 0}
    cpu = quietly(Perceptron(**options), x, y)
    gpu = quietly(Perceptron(**options), x.cuda(), y.cuda())
    assert gpu.coef_.is_cuda
    assert torch.equal(gpu.coef_.cpu(), cpu.coef_)
    assert torch.equal(gpu.predict(x.cuda()).cpu(), cpu.predict(x))
