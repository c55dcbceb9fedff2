"""Double descent, against fits one by one, exact fractions and test data."""

import math
import re
from fractions import Fraction

import numpy as np
import pytest
import torch

from vademecum.generalization import double_descent, double_descent_risk, draw_double_descent

BETA = torch.tensor([1.0, -2.0, 0.5, 0.0, 3.0, 1.5, -0.5, 1.0]).double()
SIZES = [0, 1, 2, 3, 4, 5, 6, 7, 8]


def in_fractions(p: int, beta: list[Fraction], n: int, variance: Fraction) -> float:
    seen, s = sum(b * b for b in beta[:p]), sum(b * b for b in beta[p:]) + variance
    if p == 0:
        return float(s)
    if abs(p - n) <= 1:
        return math.inf
    if p < n:
        return float(s * (1 + Fraction(p, n - p - 1)))
    return float(seen * (1 - Fraction(n, p)) + s * (1 + Fraction(n, p - n - 1)))


@pytest.mark.parametrize("n", [1, 2, 4, 5, 20])
def test_double_descent_risk_in_fractions(n):
    beta = [Fraction(v) for v in BETA.tolist()]
    wanted = [in_fractions(p, beta, n, Fraction(9, 4)) for p in SIZES]
    found = double_descent_risk(SIZES, BETA, n=n, noise=1.5)
    torch.testing.assert_close(
        found, torch.tensor(wanted, dtype=torch.float64), rtol=1e-14, atol=0.0
    )


def test_without_noise_and_with_all_features_nothing_explodes():
    beta = torch.tensor([1.0, 2.0, 0.0, 0.0, 0.0]).double()
    found = double_descent_risk([0, 1, 2, 3, 4, 5], beta, n=3, noise=0.0)
    # one feature of 1 leaves 4 as noise and 1 + 1 / (3 - 1 - 1) = 2; from two on all is seen
    torch.testing.assert_close(found, torch.tensor([5, 8, 0, 0, 5 / 4, 2.0]).double())
    simulated = double_descent([2, 3, 4, 5], beta, n=3, noise=0.0, repeats=4000)
    assert (simulated.simulated[:2] < 1e-20).all()
    off = (simulated.simulated - simulated.theory)[2:] / simulated.standard_error[2:]
    assert (off.abs() < 5).all()


def drawn(repeats: int, n: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """The training sets that are drawn, one after the other."""
    source = torch.Generator().manual_seed(3)
    shape = (n, len(BETA) + 1)
    z = torch.stack(
        [torch.randn(shape, dtype=torch.float64, generator=source) for _ in range(repeats)]
    )
    X = z[..., :-1].numpy()
    return X, X @ BETA.numpy() + noise * z[..., -1].numpy()


@pytest.mark.parametrize("n", [2, 4, 8, 11])
def test_each_fit_is_the_shortest_least_squares_solution(n):
    found = double_descent(
        SIZES, BETA, n=n, noise=0.7, repeats=6, generator=torch.Generator().manual_seed(3)
    )
    X, y = drawn(6, n, 0.7)
    for r in range(6):
        for i, p in enumerate(SIZES):
            b = np.zeros(8)
            b[:p] = np.linalg.lstsq(X[r, :, :p], y[r], rcond=None)[0] if p else 0
            wanted = ((b - BETA.numpy()) ** 2).sum() + 0.49
            assert float(found.draws[r, i]) == pytest.approx(wanted, rel=1e-7)
    pinv = [np.linalg.pinv(X[..., :p]) @ y[..., None] for p in (2, 7)]
    rest = [(X[..., :p] @ b)[..., 0] - y for p, b in zip((2, 7), pinv, strict=True)]
    for p, residual in zip((2, 7), rest, strict=True):
        assert float(found.training[p]) == pytest.approx((residual**2).mean(), rel=1e-9, abs=1e-20)


def test_the_mean_is_the_theory_and_errors_are_honest():
    found = double_descent([2, 5, 6], BETA, n=10, noise=1.0, repeats=20_000)
    off = (found.simulated - found.theory) / found.standard_error
    assert (off.abs() < 5).all()
    torch.testing.assert_close(found.simulated, found.draws.mean(0))
    torch.testing.assert_close(found.standard_error, found.draws.std(0) / 20_000**0.5)
    # residuals of least squares have n - p of n degrees of freedom
    s = torch.stack([BETA[p:].square().sum() + 1 for p in (2, 5, 6)])
    torch.testing.assert_close(
        found.training, s * torch.tensor([0.8, 0.5, 0.4]).double(), rtol=0.05, atol=0.0
    )


def test_another_fit_is_measured_on_the_same_sets():
    def ridge(X, y):
        return torch.linalg.solve(X.T @ X + 2 * torch.eye(X.shape[1]).to(X), X.T @ y)

    dice = {"repeats": 5, "n": 4, "noise": 0.7}
    found = double_descent(
        [3, 8], BETA, fit=ridge, generator=torch.Generator().manual_seed(3), **dice
    )
    X, y = drawn(5, 4, 0.7)
    for i, p in enumerate((3, 8)):
        A = X[..., :p]
        b = np.zeros((5, 8))
        b[:, :p] = np.linalg.solve(
            A.swapaxes(1, 2) @ A + 2 * np.eye(p), A.swapaxes(1, 2) @ y[..., None]
        )[..., 0]
        wanted = ((b - BETA.numpy()) ** 2).sum(1) + 0.49
        np.testing.assert_allclose(found.draws[:, i].numpy(), wanted, rtol=1e-10)


def test_memory_splits_the_training_sets():
    knobs = {"n": 4, "noise": 0.5, "repeats": 10}
    least = 3 * 4 * 9 * 8
    small, large = (
        double_descent([3, 7], BETA, memory=m, generator=torch.Generator().manual_seed(0), **knobs)
        for m in (2 * least, None)
    )
    assert small.draws.equal(large.draws)
    assert small.draws.shape == (10, 2)
    assert small.draws.unique().numel() == 20  # no set is drawn twice
    message = f"memory must be >= {least}, got {least - 1}"
    with pytest.raises(ValueError, match=message):
        double_descent([3], BETA, memory=least - 1, **knobs)


def test_single_precision_is_computed_in_double():
    knobs = {"n": 5, "noise": 0.5, "repeats": 3}
    one, other = (
        double_descent([2, 4, 8], b, generator=torch.Generator().manual_seed(0), **knobs)
        for b in (BETA, BETA.float())
    )
    assert one.draws.equal(other.draws)
    assert other.theory.dtype == torch.float64


def test_draw_double_descent():
    found = double_descent(torch.tensor([8, 2, 4]), BETA, n=4, noise=0.5, repeats=9)
    (axes,) = draw_double_descent(found).axes
    p, theory = map(np.asarray, axes.lines[0].get_data())
    assert p.tolist() == [2, 4, 8]
    np.testing.assert_allclose(theory, found.theory[[1, 2, 0]])
    (bars,) = axes.containers
    np.testing.assert_allclose(bars[0].get_ydata(), found.simulated[[1, 2, 0]])
    assert draw_double_descent(found, axes) is axes.figure


NAN = torch.tensor([1.0, math.nan])
GOOD = {"p": [1, 3], "beta": BETA, "n": 4, "noise": 0.5}
REFUSED = [
    ({"p": []}, "p must be a list of numbers of features, got []"),
    ({"p": [9]}, "p must be <= 8, got 9"),
    ({"p": [-1]}, "p must be >= 0, got -1"),
    ({"p": [1.5]}, "p must be an integer, got 1.5"),
    ({"beta": NAN}, "beta must be finite, got nan at (1,)"),
    ({"beta": torch.ones(2, 2)}, "beta must have 1 axes, got shape (2, 2)"),
    ({"beta": torch.arange(8)}, "beta must be floating point, got torch.int64"),
    ({"beta": torch.zeros(0)}, "beta must not be empty, got shape (0,)"),
    ({"n": 0}, "n must be >= 1, got 0"),
    ({"noise": -0.1}, "noise must be >= 0, got -0.1"),
    ({"noise": math.inf}, "noise must be finite, got inf"),
    ({"repeats": 1}, "repeats must be >= 2, got 1"),
    ({"fit": lambda X, y: y}, "what fit gives must be 1 coefficients, got 4"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("wrong", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_refused(wrong, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        double_descent(**{**GOOD, **wrong})


def test_progress(capsys):
    double_descent(**GOOD, repeats=3, progress=True)
    assert "fits" in capsys.readouterr().err
