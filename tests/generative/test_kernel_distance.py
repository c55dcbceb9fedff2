"""Kernel distances against double sums, random subsets, and the law of their errors."""

import itertools
import math

import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import polynomial_kernel
from torch import nn

from tests.generative.drawn_features import batched, normal
from vademecum.generative import kernel_distance
from vademecum.models import mlp, peak_bytes
from vademecum.testing import check_instrument


def by_pairs(x, y, degree=3, gamma=None, coef=1.0) -> float:
    """The definition: means over all pairs of different examples."""
    gamma = 1 / x.shape[1] if gamma is None else gamma
    total = 0.0
    for rows in (x, y):
        pairs = list(itertools.permutations(rows, 2))
        total += sum(float((gamma * (a @ b) + coef) ** degree) for a, b in pairs) / len(pairs)
    cross = [float((gamma * (a @ b) + coef) ** degree) for a, b in itertools.product(x, y)]
    return total - 2 * sum(cross) / len(cross)


@pytest.mark.parametrize(
    ("n", "m", "d", "knobs"),
    [
        (5, 7, 3, {}),
        (2, 3, 1, {}),
        (6, 4, 2, {"degree": 2, "gamma": 0.7, "coef": 0.3}),
        (4, 4, 5, {"degree": 1, "coef": 0.0}),
    ],
)
def test_sums_over_pairs(n, m, d, knobs):
    x, y = normal(n, d, seed=1), normal(m, d, seed=2) + 0.5
    assert kernel_distance(x, y, **knobs).value == pytest.approx(by_pairs(x, y, **knobs), rel=1e-12)


@pytest.mark.parametrize("memory", [None, 2**9, 2**11, 2**13])
def test_tiles_and_the_jackknife(memory):
    """All of it from kernels of scikit-learn, and estimates without each example in turn."""
    x, y = normal(23, 4, seed=3), 1.5 * normal(17, 4, seed=4)
    found = kernel_distance(x, y, memory=memory)
    kxx, kyy, kxy = (
        polynomial_kernel(a.numpy(), b.numpy(), degree=3) for a, b in ((x, x), (y, y), (x, y))
    )

    def estimate(i, j):
        def mean(k):
            return (k.sum() - np.trace(k)) / (len(k) * (len(k) - 1))

        return mean(kxx[np.ix_(i, i)]) + mean(kyy[np.ix_(j, j)]) - 2 * kxy[np.ix_(i, j)].mean()

    rows, columns = np.arange(23), np.arange(17)
    assert found.value == pytest.approx(estimate(rows, columns), rel=1e-12)
    left = [estimate(np.delete(rows, i), columns) for i in rows]
    right = [estimate(rows, np.delete(columns, j)) for j in columns]
    variance = 22 * np.var(left) + 16 * np.var(right)
    assert found.standard_error == pytest.approx(math.sqrt(variance), rel=1e-10)
    assert found.standard_error is not None


@pytest.mark.parametrize("power", [-400, 400])
def test_errors_whose_squares_leave_the_range(power):
    x, y, linear = normal(9, 4, seed=3), normal(7, 4, seed=4), {"degree": 1, "coef": 0.0}
    wanted = kernel_distance(x, y, **linear)
    found = kernel_distance(2.0**power * x, 2.0**power * y, **linear)
    assert found.value / 4.0**power == pytest.approx(wanted.value, rel=1e-11)
    assert found.standard_error / 4.0**power == pytest.approx(wanted.standard_error, rel=1e-11)


def test_no_bias_and_a_standard_error_that_is_one():
    """300 pairs of sets of equal and of unequal laws; the truth from moments of Gaussians.

    With degree 2, c = 0 and unit covariance times s, E k(x, x') is E (x^T x')^2 / d^2 = s^2 / d.
    """
    g, d, n, repeats = torch.Generator().manual_seed(5), 3, 20, 300
    for scale in (1.0, 2.0):
        truth = (1 + scale**2 - 2 * scale) / d
        found = []
        for _ in range(repeats):
            x, y = torch.randn(2, n, d, dtype=torch.float64, generator=g)
            found.append(kernel_distance(x, y * math.sqrt(scale), degree=2, coef=0.0))
        values = np.array([f.value for f in found])
        errors = np.array([f.standard_error for f in found])
        spread = values.std()
        assert abs(values.mean() - truth) < 4 * spread / math.sqrt(repeats)
        assert (values < 0).any() or scale > 1
        assert 0.9 < math.sqrt((errors**2).mean()) / spread < 1.7  # never too small in the mean


def test_modules_and_loaders():
    net = nn.Sequential(nn.Linear(4, 3), nn.Dropout(), nn.Tanh()).double()
    x, y = normal(11, 4, seed=6), normal(9, 4, seed=7)
    net.eval()
    wanted = kernel_distance(net(x), net(y)).value
    net.train()
    found = kernel_distance(batched(x, size=4), y, features=net)
    assert found.value == pytest.approx(wanted, rel=1e-12)

    def of_halves(model, data):
        return torch.tensor(kernel_distance(data[::2], data[1::2], features=model).value)

    check_instrument(of_halves, mlp([6, 4, 2]), normal(8, 6, seed=8).float())


def test_memory_is_kept_to():
    x, y = normal(3000, 8), normal(2000, 8, seed=1)
    assert peak_bytes(lambda: kernel_distance(x, y, memory=2**20)) < 2**20 + 5000 * 40


def test_two_examples_have_no_standard_error():
    assert kernel_distance(normal(2, 3), normal(5, 3, seed=1)).standard_error is None


x = torch.randn(5, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kernel_distance(x[:1], x), "x must hold at least 2 examples, got 1"),
        (lambda: kernel_distance(x, x[:1]), "y must hold at least 2 examples, got 1"),
        (lambda: kernel_distance(x, x[:, :1]), "equally many features, got 3 and 1"),
        (lambda: kernel_distance(x, x, degree=0), "degree must be >= 1, got 0"),
        (lambda: kernel_distance(x, x, gamma=0.0), "gamma must be > 0, got 0.0"),
        (lambda: kernel_distance(x, x, coef=-1.0), "coef must be >= 0, got -1.0"),
        (lambda: kernel_distance(x, x, memory=40), "memory must be >= 112 bytes for one pair"),
        (lambda: kernel_distance(x, x * torch.nan), "y must be finite"),
        (lambda: kernel_distance(x.double() * 1e150, x.double()), "must have finite kernels"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.gpu
def test_gpus():
    x, y = normal(50, 6), normal(40, 6, seed=1) + 1
    here, there = kernel_distance(x, y), kernel_distance(x.cuda(), y.cuda(), memory=2**12)
    assert there.value == pytest.approx(here.value, rel=1e-10)
    assert there.standard_error == pytest.approx(here.standard_error, rel=1e-9)


def test_the_standard_error_of_sets_of_three():
    x, y = torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([[1.0], [4.0], [5.0]])

    def value(x, y):  # of the kernel x y, whose mean over pairs is a square less the diagonal
        own = [(s.sum() ** 2 - s.square().sum()) / (len(s) * (len(s) - 1)) for s in (x, y)]
        return own[0] + own[1] - 2 * x.mean() * y.mean()

    keep = [torch.tensor(two) for two in ([1, 2], [0, 2], [0, 1])]
    both = torch.tensor([[value(x[two], y) for two in keep], [value(x, y[two]) for two in keep]])
    variance = 2 / 3 * (both - both.mean(1, keepdim=True)).square().sum()
    found = kernel_distance(x, y, degree=1, coef=0.0)
    assert found.standard_error == pytest.approx(float(variance) ** 0.5, rel=1e-5)
