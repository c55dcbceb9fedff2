"""Bounds as formulas in plain floats, sample sizes by search, extremal laws, bad input."""

import math

import pytest
import torch

from vademecum.foundations.concentration import (
    chebyshev_bound,
    chebyshev_sample_size,
    hoeffding_bound,
    hoeffding_sample_size,
    markov_bound,
)


def test_numbers():
    assert markov_bound(3, 4) == 0.75
    assert markov_bound(0, 4) == 0
    assert chebyshev_bound(2.0, 2.0) == 0.5
    assert chebyshev_bound(2.0, 2.0, 5) == pytest.approx(0.1)
    assert chebyshev_bound(2.0, 2.0, 5, two_sided=False) == pytest.approx(2 / 22)
    assert chebyshev_bound(0.0, 1e-200) == 0
    assert chebyshev_bound(0.0, 1e-200, two_sided=False) == 0
    assert chebyshev_bound(1.0, 1e-200) == 1
    assert chebyshev_bound(1.0, 1e-200, two_sided=False) == 1
    assert hoeffding_bound(0.3, 10, two_sided=False) == pytest.approx(math.exp(-1.8))
    assert hoeffding_bound(0.3, 10) == pytest.approx(2 * math.exp(-1.8))
    assert hoeffding_bound(3, 10, low=-1, high=2) == pytest.approx(2 * math.exp(-20))
    assert hoeffding_bound(0.3, 1) == 1
    assert hoeffding_bound(0.3, 10, low=1.0, high=1.0) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors(dtype):
    mean, a = torch.rand(4, 1, dtype=dtype), torch.rand(3, dtype=dtype) + 0.1
    bound = markov_bound(mean, a)
    assert bound.dtype == dtype
    for i in range(4):
        for j in range(3):
            assert float(bound[i, j]) == pytest.approx(min(1, float(mean[i, 0] / a[j])))
    n = torch.tensor([1, 10, 100])
    for two_sided in (True, False):
        found = chebyshev_bound(mean, a, n, two_sided=two_sided)
        other = hoeffding_bound(a, n, high=mean, two_sided=two_sided)
        assert found.dtype == other.dtype == dtype
        assert found.shape == other.shape == (4, 3)
        for i in range(4):
            for j in range(3):
                m, e, k = float(mean[i, 0]), float(a[j]), int(n[j])
                assert float(found[i, j]) == pytest.approx(
                    chebyshev_bound(m, e, k, two_sided=two_sided), rel=1e-5
                )
                expected = (1 + two_sided) * math.exp(-2 * k * (e / m) ** 2)
                assert float(other[i, j]) == pytest.approx(min(1, expected), rel=1e-4, abs=1e-30)


def test_ranges_of_each_variable():
    low, high = torch.tensor([[0.0, -1.0, 2.0], [1.0, 1.0, 5.0]], dtype=torch.float64)
    for two_sided in (True, False):
        expected = (1 + two_sided) * math.exp(-2 * 9 * 1.5**2 / (1 + 4 + 9))
        found = hoeffding_bound(1.5, low=low, high=high, two_sided=two_sided)
        assert float(found) == pytest.approx(expected)
    batch = hoeffding_bound(torch.tensor([1.5, 2.0]).double(), low=low, high=high.expand(2, 3))
    assert float(batch[0]) == pytest.approx(2 * math.exp(-40.5 / 14))
    assert float(batch[1]) == pytest.approx(2 * math.exp(-72 / 14))
    same = hoeffding_bound(0.2, low=torch.zeros(50).double(), high=1.0)
    assert float(same) == pytest.approx(hoeffding_bound(0.2, 50))


@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1e30])
def test_ranges_whose_squares_leave_the_range(scale):
    widths = scale * torch.tensor([1.0, 2.0, 3.0])
    found = hoeffding_bound(scale * 1.5, high=widths)
    assert float(found) == pytest.approx(2 * math.exp(-2 * 9 * 1.5**2 / 14), rel=1e-5)


def test_gradients_reach_the_arguments():
    t = torch.tensor(0.3).double().requires_grad_()
    hoeffding_bound(t, 10, two_sided=False).backward()
    assert t.grad is not None
    assert float(t.grad) == pytest.approx(-12 * math.exp(-1.8))


def first_below(bounds, delta):
    """The number of the first bound that is small enough, as all after it are."""
    every = bounds <= delta
    first = int(every.long().argmax())
    assert bool(every[first:].all())
    return first + 1


SEARCHED = [(e, d) for e in (0.5, 0.1, 0.07) for d in (0.5, 0.05, 0.01)]


@pytest.mark.parametrize("two_sided", [True, False])
def test_hoeffding_sample_size_by_search(two_sided):
    n = torch.arange(1.0, 6000, dtype=torch.float64)
    for epsilon, delta in SEARCHED:
        size = hoeffding_sample_size(epsilon, delta, low=-0.2, two_sided=two_sided)
        bounds = (1 + two_sided) * torch.exp(-2 * n * epsilon**2 / 1.2**2)
        assert isinstance(size, int)
        assert size == first_below(bounds, delta)
    assert hoeffding_sample_size(0.01, 0.001) == math.ceil(math.log(2000) / 2e-4)
    assert hoeffding_sample_size(0.01, 0.001, two_sided=False) == 34539
    assert hoeffding_sample_size(2.0, 0.9) == 1


@pytest.mark.parametrize("two_sided", [True, False])
def test_chebyshev_sample_size_by_search(two_sided):
    n = torch.arange(1.0, 6000, dtype=torch.float64)
    for epsilon, delta in SEARCHED:
        size = chebyshev_sample_size(0.24, epsilon, delta, two_sided=two_sided)
        bounds = 0.24 / (n * epsilon**2 + 0.24 * (not two_sided))
        assert isinstance(size, int)
        assert size == first_below(bounds, delta)
    assert chebyshev_sample_size(1.0, 0.5, 0.25) == 16
    assert chebyshev_sample_size(1.0, 0.5, 0.25, two_sided=False) == 12
    assert chebyshev_sample_size(0.0, 0.1, 0.1) == 1


@pytest.mark.parametrize("two_sided", [True, False])
def test_large_sample_sizes_are_the_smallest(two_sided):
    epsilon = torch.logspace(-6.5, -1, 300, dtype=torch.float64)
    for delta in (0.3, 1e-3, 1e-12, 1e-300):
        size = hoeffding_sample_size(epsilon, delta, two_sided=two_sided)
        assert size.dtype == torch.int64
        assert (hoeffding_bound(epsilon, size, two_sided=two_sided) <= delta).all()
        assert (hoeffding_bound(epsilon, size - 1, two_sided=two_sided) > delta).all()
        if delta >= 1e-3:
            size = chebyshev_sample_size(0.01, epsilon, delta, two_sided=two_sided)
            assert (chebyshev_bound(0.01, epsilon, size, two_sided=two_sided) <= delta).all()
            few = (size - 1).clamp(min=1)
            less = chebyshev_bound(0.01, epsilon, few, two_sided=two_sided)
            assert (less[size > 1] > delta).all()
    found = hoeffding_sample_size(torch.tensor([0.5, 0.25]), torch.tensor(0.05))
    assert found.tolist() == [8, 30]  # 7.4 and 29.5


X = torch.ones(3)
ERRORS = [
    (markov_bound, (-1.0, 1.0), "mean must be >= 0, got -1"),
    (markov_bound, (1.0, 0.0), "a must be > 0, got 0"),
    (markov_bound, (math.nan, 1.0), "mean must be .*, got nan"),
    (markov_bound, (1.0, math.inf), "a must be finite, got inf"),
    (markov_bound, ("1", 1.0), "mean must be a number, got '1'"),
    (markov_bound, (X, -X), "a must be > 0, got -1"),
    (markov_bound, (X.long(), 1.0), "mean must be floating point, got torch.int64"),
    (markov_bound, (X[:0], 1.0), "mean must not be empty"),
    (markov_bound, (X, X.double()), "a must be real, of one dtype and device"),
    (markov_bound, (X, torch.ones(2)), r"must broadcast, got mean: \(3,\), a: \(2,\)"),
    (chebyshev_bound, (-1.0, 1.0), "variance must be >= 0, got -1"),
    (chebyshev_bound, (1.0, -1.0), "epsilon must be > 0, got -1"),
    (chebyshev_bound, (1.0, 1.0, 0), "n must be >= 1, got 0"),
    (chebyshev_bound, (1.0, 1.0, 2**63), "n must be <= 9223372036854775807, got 922"),
    (chebyshev_bound, (1.0, 1.0, 2.5), "n must be an integer, got 2.5"),
    (chebyshev_bound, (1.0, 1.0, X), "n must hold integers, got torch.float32"),
    (chebyshev_bound, (1.0, 1.0, X.long() - 1), "n must be >= 1, got 0"),
    (chebyshev_bound, (X, 1.0, torch.tensor([1, 2])), r"must broadcast, got variance: \(3,\)"),
    (chebyshev_sample_size, (1.0, 1.0, 0.0), r"delta must be in \(0, 1\), got 0"),
    (chebyshev_sample_size, (1.0, 1.0, 1.0), r"delta must be in \(0, 1\), got 1"),
    (chebyshev_sample_size, (1.0, 1e-9, 0.1), r"less than 2\*\*53 samples do, got 1e\+19"),
    (chebyshev_sample_size, (X, 1.0, torch.ones(2) / 2), "must broadcast"),
    (hoeffding_bound, (0.0, 10), "epsilon must be > 0, got 0"),
    (hoeffding_bound, (0.1,), "n must be given where low and high have no axis"),
    (hoeffding_sample_size, (0.1, 2.0), r"delta must be in \(0, 1\), got 2"),
    (hoeffding_sample_size, (0.0, 0.1), "epsilon must be > 0"),
    (hoeffding_sample_size, (1e-9, 0.1), r"2\*\*53"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("function", "arguments", "message"), ERRORS)
def test_errors(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)


@pytest.mark.usefixtures("unchecked")
def test_errors_of_ranges():
    with pytest.raises(ValueError, match="high - low must be >= 0, got -1"):
        hoeffding_bound(0.1, 10, low=2.0)
    with pytest.raises(ValueError, match=r"must broadcast, got low: \(3,\), high: \(2,\)"):
        hoeffding_bound(0.1, low=X, high=torch.ones(2))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    epsilon, n = torch.rand(50).double() + 0.01, torch.arange(1, 51)
    for two_sided in (True, False):
        here = chebyshev_bound(0.2, epsilon, n, two_sided=two_sided)
        gone = chebyshev_bound(0.2, epsilon.cuda(), n.cuda(), two_sided=two_sided)
        torch.testing.assert_close(gone.cpu(), here)
        here = hoeffding_bound(epsilon, n, two_sided=two_sided)
        gone = hoeffding_bound(epsilon.cuda(), 1 * n.cuda(), two_sided=two_sided)
        torch.testing.assert_close(gone.cpu(), here)
    sizes = hoeffding_sample_size(epsilon.cuda(), 0.05)
    assert torch.equal(sizes.cpu(), hoeffding_sample_size(epsilon, 0.05))
    widths = torch.rand(5).cuda()
    assert hoeffding_bound(0.1, high=widths).device == widths.device
