"""Arrays and tensors in and out of an estimator, and the one warning."""

import inspect
import json
import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from vademecum.connectionism import Perceptron, perceptron_path
from vademecum.estimators import (
    as_labels,
    as_rows,
    as_targets,
    best_labels,
    convergence,
    fitted_map,
    like_input,
    one_versus_rest,
    precision,
)
from vademecum.linear import LMS, Lasso, LinearRegression, RidgeRegression

XOR = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]


def test_rows_learn_their_width_and_keep_their_kind():
    unit = Perceptron()
    rows = as_rows(unit, [[1, 2], [3, 4]], reset=True)
    assert (unit.n_features_in_, rows.dtype, rows.tolist()) == (2, torch.float64, [[1, 2], [3, 4]])
    single = torch.ones(3, 2)
    assert as_rows(unit, single) is single
    with pytest.raises(ValueError, match="X must be 2 wide"):
        as_rows(unit, torch.ones(3, 4))
    with pytest.raises(ValueError, match="2 features"):
        as_rows(unit, np.ones((3, 4)))
    assert like_input(single, single) is single
    assert isinstance(like_input(single, [[1.0]]), np.ndarray)


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_labels_are_indices_of_sorted_classes_and_back(kind):
    classes, index = as_labels(kind([7, 3, 3, 5]), torch.zeros(4, 1))
    assert (classes.tolist(), index.tolist()) == ([3, 5, 7], [2, 0, 0, 1])
    assert type(classes) is type(kind([1]))
    assert best_labels(classes, torch.eye(3)).tolist() == [3, 5, 7]
    two, _ = as_labels(kind([1, 0]), torch.zeros(2, 1))
    assert best_labels(two, torch.tensor([-1.0, 0.0, 2.0])).tolist() == [0, 0, 1]
    assert one_versus_rest(torch.tensor([0, 1]), 2, torch.float32).tolist() == [[-1], [1]]


def test_words_are_labels_and_fractions_are_not():
    classes, index = as_labels(["b", "a"], torch.zeros(2, 1))
    assert (classes.tolist(), index.tolist()) == (["a", "b"], [1, 0])
    with pytest.raises(ValueError, match=r"y must be class labels, got the fraction 0\.5"):
        as_labels(torch.tensor([0.5, 1.0]), torch.zeros(2, 1))


def test_precision_is_what_products_need():
    half, small = torch.ones(2, 2).half(), torch.full((2, 2), 1e-24)
    assert precision(half) == precision(half.float(), half) == torch.float32
    assert precision(half.double()) == precision(half, small) == torch.float64


def test_targets_have_the_dtype_of_the_rows():
    x = torch.zeros(2, 3)
    assert as_targets([1, 2], x).dtype == as_targets(torch.tensor([1, 2]), x).dtype == torch.float32
    assert as_targets(np.ones((2, 4)), x).shape == (2, 4)
    with pytest.raises(ValueError, match=r"y must have shape \(2,\), got shape \(2, 4\)"):
        as_targets(torch.ones(2, 4), x, several=False)


def test_a_map_passes_through_the_means():
    w, mean_x, mean_y = torch.eye(2)[:1].double(), torch.tensor([3.0, 5.0]).double(), torch.ones(1)
    coef, intercept = fitted_map(w, mean_x, mean_y.double(), torch.zeros(4), [[0.0]])
    assert (coef.tolist(), json.dumps(intercept), coef.dtype) == ([1, 0], "-2.0", np.float32)
    coef, intercept = fitted_map(w, mean_x, mean_y.double(), torch.zeros(4, 1), torch.zeros(1))
    assert (coef.tolist(), intercept.tolist()) == ([[1, 0]], [-2.0])


def test_weights_that_are_too_large_are_no_infinities():
    w, zero = torch.full((1, 2), 1e40, dtype=torch.float64), torch.zeros(2).double()
    with pytest.raises(ValueError, match=r"the weights overflow torch.float32"):
        fitted_map(w, zero, zero[:1], torch.zeros(4), [[0.0]])


@pytest.mark.parametrize(
    "kind", [Lasso(), LMS(), LinearRegression(), RidgeRegression(), RidgeRegression(alphas=[1, 2])]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_intercept_of_one_target_is_a_number(kind, dtype):
    x, y = np.array([[0.0], [1.0], [3.0]], dtype), np.array([1.0, 2.0, 2.0], dtype)
    fitted = kind.fit(x, y)
    assert json.loads(json.dumps(fitted.intercept_)) == fitted.intercept_
    tensor = kind.fit(torch.from_numpy(x), torch.from_numpy(y))
    assert (tensor.intercept_.ndim, tensor.intercept_.item()) == (0, fitted.intercept_)


def test_the_warning_points_at_the_line_that_asked(monkeypatch):
    wrapped = (*convergence._OURS, "tests.type_checks")  # which stands around our functions here
    monkeypatch.setattr(convergence, "_OURS", wrapped)
    x, y = torch.tensor(XOR), torch.tensor([0, 1, 1, 0])
    for work in (
        lambda: Perceptron(max_iter=2).fit(x, y),  # marked line
        lambda: perceptron_path(x, 2 * y - 1, max_iter=3),  # marked line
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            work()
        (warning,) = caught
        assert warning.category is ConvergenceWarning
        lines, first = inspect.getsourcelines(test_the_warning_points_at_the_line_that_asked)
        assert warning.filename == __file__
        assert "marked line" in lines[warning.lineno - first]
