"""The perceptron on examples that come in parts: the rule goes on where it was."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from tests.connectionism.test_perceptron import integer_data, quietly
from vademecum.connectionism.perceptron import Perceptron


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
@pytest.mark.parametrize("classes", [2, 4])
def test_examples_may_come_in_parts(classes, kind):
    x, y = integer_data(classes=classes)
    whole = quietly(Perceptron(max_iter=2, tol=None, shuffle=False), kind(x), kind(y))
    parts, ends = Perceptron(), [0, 1, 40, 300]
    for epoch in range(2):
        for start, stop in pairwise(ends):
            labels = kind(np.arange(classes)[::-1].copy()) if epoch == start == 0 else None
            parts.partial_fit(kind(x[start:stop]), kind(y[start:stop]), labels)
    np.testing.assert_array_equal(parts.coef_, whole.coef_)
    np.testing.assert_array_equal(parts.intercept_, whole.intercept_)
    np.testing.assert_array_equal(parts.mistakes_, whole.mistakes_)
    np.testing.assert_array_equal(parts.predict(kind(x)), whole.predict(kind(x)))
    assert type(parts.coef_) is type(whole.coef_)
    assert parts.n_iter_ == 6
    kept = whole.coef_ + 0
    continued = whole.partial_fit(kind(x), kind(y))
    assert not hasattr(continued, "margin_")
    np.testing.assert_array_equal(kept, parts.coef_)  # nothing was changed in place
    third = quietly(Perceptron(max_iter=3, tol=None, shuffle=False), kind(x), kind(y))
    np.testing.assert_array_equal(continued.coef_, third.coef_)


def test_errors_of_parts():
    x, y = np.eye(3), np.array(["a", "b", "b"])
    with pytest.raises(ValueError, match="classes must be given in the first call"):
        Perceptron().partial_fit(x, y)
    unit = Perceptron().partial_fit(x, y, classes=["b", "a"])
    assert unit.partial_fit(x[:1], y[:1]).predict(x[:1]) == ["a"]
    with pytest.raises(ValueError, match=r"classes must stay \['a', 'b'\], got \['a', 'c'\]"):
        unit.partial_fit(x, y, classes=["a", "c"])
    with pytest.raises(ValueError, match="y must be labels among classes, got 'z'"):
        unit.partial_fit(x[:1], ["z"])
    with pytest.raises(ValueError, match="2 features"):
        unit.partial_fit(x[:, :2], y)
    with pytest.raises(ValueError, match="classes must be two or more, got \\['a'\\]"):
        Perceptron().partial_fit(x, ["a"] * len(x), classes=["a"])
