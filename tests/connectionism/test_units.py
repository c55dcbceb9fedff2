"""Perceptrons and margins of data in any unit: against the rule in rational arithmetic."""

import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from vademecum.connectionism import KernelPerceptron, MaxMarginClassifier, Perceptron

COLUMNS = 2.0 ** np.array([27, -27, 0, 13])  # from 1e-8 to 1e8
UNITS = [(np.float32, 2.0**-80), (np.float32, 2.0**80), (np.float64, 2.0**-80),
         (np.float64, 2.0**252), (np.float64, COLUMNS)]  # fmt: skip


def separable(n=30, d=4, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)).astype(np.float32).astype(float)  # no score is a tie
    y = x @ np.array([2.0, 0, 0, -1]) > 0.5
    return x, y.astype(int)


def by_the_rule(x, y, epochs, bias=True):
    """Weights, bias and mistakes of each example, exactly."""
    rows = [[Fraction(v) for v in row] for row in x.tolist()]
    w, b, alpha = [Fraction(0)] * x.shape[1], Fraction(0), [0] * len(x)
    for _ in range(epochs):
        for i, (row, label) in enumerate(zip(rows, (2 * y - 1).tolist(), strict=True)):
            if label * (sum(p * q for p, q in zip(row, w, strict=True)) + b) <= 0:
                w = [p + label * q for p, q in zip(w, row, strict=True)]
                b += label * bias
                alpha[i] += 1
    return np.array([float(v) for v in w]), float(b), np.array(alpha)


@pytest.mark.parametrize(("dtype", "unit"), UNITS)
def test_the_rule_in_any_unit(dtype, unit):
    x, y = separable()
    x = (x * unit).astype(dtype)
    options = {"shuffle": False, "tol": None, "max_iter": 6}
    for bias in (True, False):
        w, b, alpha = by_the_rule(x, y, 6, bias)
        units: list[Any] = [Perceptron(fit_intercept=bias, **options)]
        if not bias:  # beside which kernel values of 1e-48 are lost
            units += [KernelPerceptron(kernel="linear", fit_intercept=False, **options)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            primal, *dual = (made.fit(x, y) for made in units)
        np.testing.assert_allclose(primal.coef_[0], w, rtol=1e-13)
        assert (primal.intercept_[0], primal.mistakes_) == (b, alpha.sum())
        for made in dual:
            np.testing.assert_array_equal(made.alpha_, alpha)
        for made in (primal, *dual):
            answers = (x.astype(float) @ w + b > 0).astype(int)
            np.testing.assert_array_equal(made.predict(x), answers)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("classes", [2, 3])
def test_half_precision(dtype, classes):
    x, y = (torch.from_numpy(v) for v in separable(60))
    y = y if classes == 2 else y + (x[:, 3] > 1).long()
    x = x.to(dtype)
    options = {"shuffle": False, "tol": None, "max_iter": 20}
    for kind in (Perceptron, KernelPerceptron):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            half, single = (kind(**options).fit(v, y) for v in (x, x.float()))
        assert torch.equal(torch.as_tensor(half.mistakes_), torch.as_tensor(single.mistakes_))
        assert torch.equal(half.predict(x), single.predict(x.float()))
        assert torch.equal(half.intercept_, single.intercept_)


@pytest.mark.parametrize(("dtype", "unit"), UNITS)
def test_margins_in_any_unit(dtype, unit):
    """The margin is that of the weights; the gap is what rounding leaves (the factor observed)."""
    x, y = separable()
    x = (x * unit).astype(dtype)
    best = MaxMarginClassifier().fit(x, y)
    w, sign = best.coef_[0].astype(float), 2 * y - 1
    largest = np.abs(w).max()
    scores = sign * (x.astype(float) @ w + best.intercept_.astype(float))
    assert scores.min() == pytest.approx(1.0, rel=1e-5)
    length = largest * np.linalg.norm(w / largest)
    assert best.margin_ * length == pytest.approx(1.0, rel=1e-5)
    assert 0 <= best.gap_ <= 1e-9 * best.margin_ + 1e3 * np.finfo(float).eps * np.abs(x).max()
    if np.ndim(unit) == 0:
        base = MaxMarginClassifier().fit(separable()[0], y)
        assert best.margin_ / unit == pytest.approx(base.margin_, rel=1e-9)
