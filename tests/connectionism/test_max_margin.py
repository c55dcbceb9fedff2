"""The largest margin against a support vector machine, optimality conditions and by hand."""

import math

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from vademecum.connectionism.max_margin import MaxMarginClassifier

INSEPARABLE = dict.fromkeys(
    (
        "check_classifier_data_not_an_array",
        "check_classifiers_train",
        "check_dtype_object",
        "check_estimators_dtypes",
        "check_estimators_nan_inf",
        "check_fit_check_is_fitted",
        "check_fit_idempotent",
        "check_fit_score_takes_y",
        "check_n_features_in",
        "check_n_features_in_after_fitting",
        "check_supervised_y_2d",
    ),
    "the check draws labels at random, which no hyperplane separates: refused by design",
)


@parametrize_with_checks([MaxMarginClassifier()], expected_failed_checks=lambda _: INSEPARABLE)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def planted(n, d, gap=0.05, shift=3.0, draw=0):
    rng = np.random.default_rng(draw)
    x, w = rng.normal(size=(n, d)), rng.normal(size=d)
    side = x @ w / np.linalg.norm(w)
    return x + gap * np.outer(np.sign(side), w / np.linalg.norm(w)) + shift, side > 0


SIZES = [(4, 1), (20, 2), (100, 2), (200, 5), (600, 15), (60, 40), (30, 60)]


@pytest.mark.parametrize(("n", "d"), SIZES)
def test_equals_a_hard_support_vector_machine(n, d):
    x, y = planted(n, d)
    ours = MaxMarginClassifier().fit(x, y)
    machine = SVC(kernel="linear", C=1e10, tol=1e-8).fit(x, y)
    np.testing.assert_allclose(
        ours.coef_, machine.coef_, rtol=1e-2, atol=1e-2 * np.abs(ours.coef_).max()
    )
    assert ours.margin_ == pytest.approx(1 / np.linalg.norm(machine.coef_), rel=1e-3)
    np.testing.assert_array_equal(ours.support_, np.sort(machine.support_))
    np.testing.assert_array_equal(ours.predict(x), y)


@pytest.mark.parametrize(("n", "d"), SIZES)
def test_satisfies_the_optimality_conditions(n, d):
    x, y = planted(n, d, draw=1)
    ours = MaxMarginClassifier().fit(x, y)
    sign = np.where(y, 1, -1)
    functional = sign * ours.decision_function(x)
    assert functional.min() == pytest.approx(1.0, abs=1e-9)
    np.testing.assert_allclose(functional[ours.support_], 1.0, atol=1e-6)  # complementary slackness
    assert (sign[ours.support_] * ours.dual_coef_[0] > 0).all()
    assert ours.dual_coef_.sum() == pytest.approx(0.0, abs=1e-9 * np.abs(ours.dual_coef_).max())
    np.testing.assert_allclose(ours.dual_coef_ @ x[ours.support_], ours.coef_, rtol=1e-6, atol=1e-8)
    assert ours.margin_ == pytest.approx(1 / np.linalg.norm(ours.coef_))
    assert ours.gap_ <= 1e-9
    assert len(ours.support_) <= 2 * (d + 1)


def test_without_bias():
    rng = np.random.default_rng(2)
    y = np.where(np.arange(30) % 2 == 0, 1, -1)
    x = y[:, None] * (rng.normal(size=(30, 2)) + np.array([4, 1]))
    turn = np.linspace(0, 2 * np.pi, 200_001)
    best = (y[:, None] * x @ np.stack([np.cos(turn), np.sin(turn)])).min(0).max()
    ours = MaxMarginClassifier(fit_intercept=False).fit(x, y)
    assert ours.margin_ == pytest.approx(best, rel=1e-4)
    assert ours.intercept_ == [0.0]
    np.testing.assert_allclose(ours.dual_coef_ @ x[ours.support_], ours.coef_)


def test_moves_with_the_data():
    x, y = planted(50, 3)
    base = MaxMarginClassifier().fit(x, y)
    moved = MaxMarginClassifier().fit(1e3 * x + 1e6, y)
    assert moved.margin_ == pytest.approx(1e3 * base.margin_, rel=1e-6)
    np.testing.assert_array_equal(moved.support_, base.support_)
    twice = MaxMarginClassifier().fit(np.r_[x, x], np.r_[y, y])
    assert twice.margin_ == pytest.approx(base.margin_)
    swapped = MaxMarginClassifier().fit(x, ~y)
    np.testing.assert_allclose(swapped.coef_, -base.coef_)


def test_thin_margins():
    x = np.array([[0.0, 0.0], [1.0, 1e-9], [1.0, 0.0]])
    ours = MaxMarginClassifier().fit(x, [0, 1, 0])
    assert ours.margin_ == pytest.approx(5e-10, rel=1e-6)
    assert MaxMarginClassifier().fit([[1.0], [1.0 + 1e-12]], [0, 1]).margin_ == pytest.approx(
        5e-13, rel=1e-3
    )


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("scale", [1.0, 2.0**300])
def test_the_gap_is_what_the_vector_between_the_hulls_leaves(bias, scale):
    """No margin exceeds the vector's length, with a bias half of it; here from the dual weights."""
    x, y = planted(600, 15, shift=3.0 * bias)
    x = scale * x
    few = MaxMarginClassifier(fit_intercept=bias).fit(x, y).n_iter_ - 3
    with pytest.warns(ConvergenceWarning, match=f"max_iter={few} reached"):
        cut = MaxMarginClassifier(max_iter=few, fit_intercept=bias).fit(x, y)
    dual = cut.dual_coef_[0]
    vector = (dual / np.abs(dual).sum() * (1 + bias)) @ (x[cut.support_] / scale)
    most = scale * np.linalg.norm(vector) / (1 + bias)
    assert cut.margin_ + cut.gap_ == pytest.approx(most, rel=1e-9)
    assert cut.gap_ > 1e-5 * cut.margin_  # so that the sum tells


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_in_tensors_out(dtype):
    x, y = planted(40, 3, gap=0.3)
    tensors = torch.tensor(x, dtype=dtype), torch.tensor(y)
    ours = MaxMarginClassifier().fit(*tensors)
    assert ours.coef_.dtype == ours.decision_function(tensors[0]).dtype == dtype
    assert ours.margin_ == pytest.approx(MaxMarginClassifier().fit(x, y).margin_, rel=1e-5)
    assert torch.equal(ours.predict(tensors[0]), tensors[1])


def test_iterations_are_limited():
    x, y = planted(600, 15)
    best = MaxMarginClassifier().fit(x, y)
    few = best.n_iter_ - 3
    with pytest.warns(ConvergenceWarning, match=rf"max_iter={few} reached: .* lacks \d"):
        cut = MaxMarginClassifier(max_iter=few).fit(x, y)
    assert cut.n_iter_ == few
    assert (best.converged_, cut.converged_) == (True, False)
    assert cut.margin_ < best.margin_ <= cut.margin_ + cut.gap_
    with pytest.raises(ValueError, match="max_iter must be larger, got 2: no separation so far"):
        MaxMarginClassifier(max_iter=2).fit(x, y)  # and not that there is none
    enough = MaxMarginClassifier(max_iter=best.n_iter_).fit(x, y)
    assert enough.margin_ == best.margin_


@pytest.mark.parametrize("scale", [1e-160, 1e-25, 1e25, 1e160, 1e307])
@pytest.mark.parametrize("bias", [True, False])
def test_huge_and_tiny_data(scale, bias):
    x, y = planted(40, 2, gap=1.0, shift=0.0)
    base, ours = (MaxMarginClassifier(fit_intercept=bias).fit(s * x, y) for s in (1.0, scale))
    assert ours.margin_ == pytest.approx(scale * base.margin_, rel=1e-12)
    assert ours.gap_ == pytest.approx(scale * base.gap_, abs=1e-12 * scale)
    np.testing.assert_allclose(scale * ours.coef_, base.coef_, rtol=1e-9)
    np.testing.assert_allclose(ours.intercept_, base.intercept_, atol=1e-9)
    if 1e-150 < scale < 1e150:
        np.testing.assert_allclose(scale**2 * ours.dual_coef_, base.dual_coef_, rtol=1e-9)


X, Y = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.tensor([0, 1, 0])
ERRORS = [
    ({}, X, Y, "X must be linearly separable"),
    ({}, X[[0, 1, 0]], torch.tensor([0, 1, 1]), "X must be linearly separable"),
    ({"fit_intercept": False}, X[:2, :1], torch.tensor([0, 1]), "X must be linearly separable"),
    ({"fit_intercept": False}, 0 * X[:2], torch.tensor([0, 1]), "X must be linearly separable"),
    ({}, X, torch.tensor([0, 1, 2]), "y must have two classes, got 3"),
    ({}, X, torch.tensor([1, 1, 1]), "y must have at least two classes, got one class: 1"),
    ({}, X * math.nan, Y, "X must be finite, got nan"),
    ({"tol": -1.0}, X, Y, "tol must be >= 0, got -1"),
    ({"max_iter": 0}, X, Y, "max_iter must be >= 1, got 0"),
]


@pytest.mark.parametrize(("options", "x", "y", "message"), ERRORS)
def test_errors(options, x, y, message):
    with pytest.raises(ValueError, match=message):
        MaxMarginClassifier(**options).fit(x, y)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    x, y = (torch.from_numpy(v) for v in planted(200, 5))
    gpu = MaxMarginClassifier().fit(x.cuda(), y.cuda())
    assert gpu.coef_.is_cuda
    assert gpu.margin_ == pytest.approx(MaxMarginClassifier().fit(x, y).margin_, rel=1e-9)
