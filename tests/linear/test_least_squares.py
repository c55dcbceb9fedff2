"""Least squares against scikit-learn, the pseudo-inverse, rationals, and its own two ways."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression as Reference
from sklearn.utils.estimator_checks import parametrize_with_checks

from vademecum.linear import least_squares as module
from vademecum.linear._moments import BLOCK, moments
from vademecum.linear._row_space import row_space
from vademecum.linear.least_squares import LinearRegression


@parametrize_with_checks([LinearRegression()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def data(n, d, t=None, rank=None, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) + 3
    if rank is not None:
        x = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, d))
    return x, rng.normal(size=n if t is None else (n, t))


CASES = [(40, 5, None, None), (40, 5, 3, None), (8, 30, 2, None), (20, 20, None, None),
         (21, 20, None, None), (6, 1, None, None), (1, 1, None, None), (1, 4, 2, None),
         (50, 8, 2, 3), (6, 12, None, 4)]  # fmt: skip


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("n", "d", "t", "rank"), CASES)
def test_equals_scikit_learn(n, d, t, rank, intercept):
    x, y = data(n, d, t, rank)
    ours, theirs = (k(fit_intercept=intercept).fit(x, y) for k in (LinearRegression, Reference))
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(ours.predict(x), theirs.predict(x), atol=1e-9)
    assert ours.rank_ == theirs.rank_


def test_by_hand():
    x, y = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([1.0, 0.0, 5.0])
    line = LinearRegression().fit(x, y)
    assert float(line.coef_) == pytest.approx(2.0)
    assert float(line.intercept_) == pytest.approx(float(Fraction(6, 3) - 2))
    constant = LinearRegression().fit(0.1 * torch.ones(7, 3).double(), torch.arange(7.0).double())
    assert constant.rank_ == 0
    assert constant.coef_.tolist() == [0.0, 0.0, 0.0]
    assert float(constant.intercept_) == pytest.approx(3.0)


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_both_ways_agree(offset, monkeypatch):
    x, y = (torch.from_numpy(v) for v in data(BLOCK + 300, 6, 2))
    x = (x + offset) * torch.tensor([1.0, 1e-3, 1e3, 1.0, 5.0, 0.1])
    quick = LinearRegression().fit(x, y)
    monkeypatch.setattr(module, "_by_cholesky", lambda *_: None)
    slow = LinearRegression().fit(x, y)
    torch.testing.assert_close(quick.coef_, slow.coef_, rtol=1e-9, atol=1e-13)
    assert quick.rank_ == slow.rank_ == 6


def test_the_quick_way_is_taken_and_left(monkeypatch):
    taken = []
    inner = module._by_cholesky
    monkeypatch.setattr(module, "_by_cholesky", lambda *a: taken.append(inner(*a)) or taken[-1])
    x, y = (torch.from_numpy(v) for v in data(200, 6))
    LinearRegression().fit(x, y)
    assert taken.pop() is not None
    tiny = torch.tensor([1, 1, 1, 1, 1, 1e-17]).double()
    assert LinearRegression().fit(x * tiny, y).rank_ == 6  # whatever the unit
    assert taken.pop() is not None
    for bad in (torch.cat([x, x[:, :1] + 1e-7 * x[:, 1:2]], 1),  # ill conditioned
                torch.cat([x, x[:, :1]], 1), torch.cat([x, 0 * x[:, :1] + 2], 1)):  # fmt: skip
        reference = Reference().fit(bad.numpy(), y.numpy())
        ours = LinearRegression().fit(bad, y)
        assert taken.pop() is None
        assert ours.rank_ == reference.rank_
        np.testing.assert_allclose(ours.predict(bad), reference.predict(bad.numpy()), atol=1e-8)


@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_single_precision_is_as_exact_as_its_data(offset):
    x, _ = (torch.from_numpy(v).float() for v in data(3 * BLOCK, 5))
    x = x * torch.tensor([1.0, 10.0, 0.1, 1.0, 1.0]) + offset
    truth = torch.tensor([1.0, -2.0, 3.0, 0.5, 0.25])
    y = (x.double() @ truth.double() + 7).float()
    fitted = LinearRegression().fit(x, y)
    assert fitted.coef_.dtype == torch.float32
    exact = torch.linalg.lstsq(
        torch.cat([x, torch.ones(len(x), 1)], 1).double(), y.double()[:, None]
    ).solution[:5, 0]
    torch.testing.assert_close(fitted.coef_.double(), exact, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("dtype", "n"), [(torch.float16, 3000), (torch.bfloat16, 500), (torch.float32, 1_000_000)]
)
def test_many_examples_of_low_precision_are_of_full_rank(dtype, n):
    """Small columns are no rounding, however many rows there are."""
    x = torch.randn(n, 2).to(dtype) * torch.tensor([1.0, 0.0625]).to(dtype)
    w = torch.tensor([1.0, 2.0])
    fitted = LinearRegression().fit(x, (x.float() @ w + 1).to(dtype))
    assert fitted.rank_ == 2
    tol = 40 * torch.finfo(dtype).eps  # targets round by eps / 2, 16 times that for the second
    torch.testing.assert_close(fitted.coef_.float(), w, atol=tol, rtol=0)
    twice = torch.cat([x, x[:, :1]], 1)
    assert LinearRegression().fit(twice[:2000], twice[:2000, 1]).rank_ == 2


def test_moments_are_those_of_a_loop():
    x, y = (torch.from_numpy(v) for v in data(2 * BLOCK + 5, 3, 2))
    x[:BLOCK] = 5.0  # a first block that misleads about the mean
    about = moments(x, y)
    z, r = x - x.mean(0), y - y.mean(0)
    torch.testing.assert_close(about.mean_x, x.mean(0))
    torch.testing.assert_close(about.gram, z.T @ z)
    torch.testing.assert_close(about.cross, z.T @ r)
    torch.testing.assert_close(about.power, r.square().sum(0))
    single = moments(x.float(), y.float())
    torch.testing.assert_close(single.gram, z.T @ z, rtol=1e-5, atol=1e-2)
    torch.testing.assert_close(
        moments(x.float(), y.float(), dtype=torch.float64).gram, z.T @ z, rtol=1e-6, atol=1e-3
    )


@pytest.mark.parametrize(("n", "d"), [(9, 4), (4, 9), (5, 5)])
def test_row_space_rebuilds_the_data(n, d):
    x, y = (torch.from_numpy(v) for v in data(n, d, 2, rank=3))
    space = row_space(x, x.mean(0), y)
    z = x - x.mean(0)
    assert len(space.sigma) == 3
    torch.testing.assert_close(space.sigma, torch.linalg.svdvals(z)[:3])
    torch.testing.assert_close(z @ space.basis @ space.basis.T, z)
    torch.testing.assert_close(space.basis * space.sigma @ space.images, z.T @ y)


def test_tensors_in_tensors_out():
    x, y = (torch.from_numpy(v).float() for v in data(30, 3, 2))
    fitted = LinearRegression().fit(x.requires_grad_(), y)
    assert fitted.coef_.dtype == fitted.predict(x).dtype == torch.float32
    assert isinstance(LinearRegression().fit([[0.0], [1.0]], [1, 2]).coef_, np.ndarray)
    integers = LinearRegression().fit(x, torch.arange(30))
    torch.testing.assert_close(integers.coef_, LinearRegression().fit(x, torch.arange(30.0)).coef_)


X, Y = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]]), torch.tensor([0.0, 1.0, 0.0])
ERRORS = [
    (X, Y[:2], r"y must have shape \(3,\) or \(3, targets\), got shape \(2,\)"),
    (X, Y[:, None, None], "y must have shape"),
    (X, Y * math.nan, "y must be finite, got nan"),
    (X * math.inf, Y, "X must be finite, got inf"),
    (X[0], Y, "X must have 2 axes"),
    (X[:0], Y[:0], "X must not be empty"),
    (X.long(), Y, "X must be floating point"),
    (X[:2] * 1j, Y[:2], "X must be real, got torch.complex64"),
    (X, Y * 1j, "y must be real, got torch.complex64"),
    (X.numpy(), None, "requires y to be passed"),
    (X.numpy(), Y.numpy()[:2], "inconsistent numbers of samples"),
]


@pytest.mark.parametrize(("x", "y", "message"), ERRORS)
def test_errors(x, y, message):
    with pytest.raises(ValueError, match=message):
        LinearRegression().fit(x, y)


def test_wrong_width():
    with pytest.raises(ValueError, match="X must be 2 wide"):
        LinearRegression().fit(X, Y).predict(torch.ones(3, 3))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize(("n", "d", "t", "rank"), CASES)
def test_cuda(n, d, t, rank):
    x, y = (torch.from_numpy(v) for v in data(n, d, t, rank))
    gpu, cpu = LinearRegression().fit(x.cuda(), y.cuda()), LinearRegression().fit(x, y)
    assert gpu.coef_.is_cuda
    torch.testing.assert_close(gpu.coef_.cpu(), cpu.coef_, rtol=1e-8, atol=1e-9)
    assert gpu.rank_ == cpu.rank_
