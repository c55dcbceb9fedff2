"""Regression without ridge, spectral filters, and norms in the space of a kernel."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import expm
from torch import Tensor

from vademecum.arrays import row_reduce
from vademecum.kernels import (
    LinearKernel,
    MaternKernel,
    RBFKernel,
    gram,
    kernel_regression,
    rkhs_inner,
    rkhs_norm,
    spectral_filter,
)


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape)).to(dtype)


@pytest.mark.parametrize("targets", [(), (2,)])
@pytest.mark.parametrize(("n", "d"), [(5, 9), (9, 4)])
def test_kernel_regression_is_least_squares_of_least_norm(n, d, targets):
    """With the linear kernel: NumPy's pseudoinverse of the features, from the features alone."""
    J, y, f0 = drawn(n, d), drawn(n, *targets, seed=1), drawn(n, *targets, seed=2)
    J[1] = J[0]
    found = kernel_regression(LinearKernel(), J, y, f0=f0, conflicts="average")
    beta = np.linalg.pinv(J.numpy()) @ (y - f0).numpy()
    np.testing.assert_allclose(J.T @ found.coefficients, beta, atol=1e-11)
    assert found.rank == np.linalg.matrix_rank(J.numpy()) == min(n - 1, d)
    np.testing.assert_allclose(found.residual, (y - f0).numpy() - J.numpy() @ beta, atol=1e-11)
    np.testing.assert_allclose(found.norm, np.linalg.norm(beta, axis=0), rtol=1e-10)
    np.testing.assert_allclose(found.eigenvalues[-1], np.linalg.norm(J, 2) ** 2, rtol=1e-12)
    assert found.threshold == pytest.approx(n * 2.0**-52 * float(found.eigenvalues[-1]), rel=1e-12)
    Z, z0 = drawn(3, d, seed=3), drawn(3, *targets, seed=4)
    np.testing.assert_allclose(found.predict(Z), Z.numpy() @ beta, atol=1e-11)
    np.testing.assert_allclose(found.predict(Z, z0), z0.numpy() + Z.numpy() @ beta, atol=1e-11)


def test_interpolation_in_fractions():
    """Exactly what Gauss-Jordan elimination in fractions gives for the same matrix."""
    x, y = torch.tensor([[0.0], [1.0], [3.0], [7.0]]).double(), drawn(4)
    kernel = MaternKernel(nu=1.5, lengthscale=2.0)
    found = kernel_regression(kernel, x, y)
    rows = [[*row, target] for row, target in zip(kernel(x).tolist(), y.tolist(), strict=True)]
    exact = [float(row[-1]) for row in row_reduce(rows).rows]
    np.testing.assert_allclose(found.coefficients, exact, rtol=1e-13)
    assert (found.rank, float(found.residual.abs().max())) == (4, 0.0)
    square = sum(Fraction(a) * Fraction(b) for a, b in zip(exact, y.tolist(), strict=True))
    assert float(found.norm) == pytest.approx(math.sqrt(square), rel=1e-13)


def test_the_threshold_decides_what_counts():
    J = torch.diag(torch.tensor([1.0, 1e-2, 1e-5, 0.0], dtype=torch.float64))
    y = torch.ones(4, dtype=torch.float64)
    for rtol, rank in ((None, 3), (1e-7, 2), (1e-4, 1), (0.5, 1)):
        found = kernel_regression(LinearKernel(), J, y, rtol=rtol)
        assert found.rank == rank
        assert found.residual.tolist() == [0.0] * rank + [1.0] * (4 - rank)
    zero = kernel_regression(LinearKernel(), torch.zeros(2, 3), torch.tensor([1.0, 1.0]))
    assert (zero.rank, zero.threshold, zero.norm.item()) == (0, 0.0, 0.0)
    assert "rank=0" in repr(zero)
    assert "\n" not in repr(zero)


def test_single_precision_keeps_its_predictions():
    x = drawn(60, 2, dtype=torch.float32)
    y = torch.sin(x[:, 0]) * x[:, 1]
    found = kernel_regression(RBFKernel(lengthscale=1.5), x, y)
    assert 15 <= found.rank < 60
    assert found.predict(x).dtype == torch.float32
    assert float(found.residual.abs().max()) < 0.02
    torch.testing.assert_close(found.predict(x) + found.residual, y, atol=2e-4, rtol=0)


def test_filters_by_running_the_methods():
    """The exponential of a matrix, iterations, and a linear solve."""
    A, y = drawn(6, 4), drawn(6, seed=1)
    K = A @ A.T
    lam, U = torch.linalg.eigh(K)

    def learned(**knobs: Any) -> Tensor:
        return U @ (spectral_filter(lam, **knobs) * (U.T @ y))

    for t in (0.0, 0.3, 2.0):
        flow = y - torch.from_numpy(expm(-t * K.numpy())) @ y
        torch.testing.assert_close(learned(t=t), flow, atol=1e-12, rtol=0)
    f, eta = torch.zeros_like(y), 1.9 / float(lam[-1])
    for T in range(6):
        torch.testing.assert_close(learned(eta=eta, T=T), f, atol=1e-12, rtol=0)
        f = f + eta * K @ (y - f)
    ridge = torch.linalg.solve(K + 0.7 * torch.eye(6, dtype=K.dtype), K @ y)
    torch.testing.assert_close(learned(alpha=0.7), ridge, atol=1e-12, rtol=0)
    end = K @ torch.linalg.pinv(K, hermitian=True) @ y
    exact = torch.where(lam > 1e-12, lam, 0.0)
    ends: list[Any] = [{"t": math.inf}, {"alpha": 0.0}]
    for knobs in ends:
        torch.testing.assert_close(U @ (spectral_filter(exact, **knobs) * (U.T @ y)), end)


def test_spectral_filter_at_tiny_and_many_values():
    lam = torch.tensor([0.0, 1e-20, 1e-3, 1.0], dtype=torch.float64)
    wanted = [0.0, 1e-20, -math.expm1(-1e-3), -math.expm1(-1)]
    np.testing.assert_allclose(spectral_filter(lam, t=1.0), wanted, rtol=1e-15)
    np.testing.assert_allclose(
        spectral_filter(lam, eta=0.25, T=3),
        [0.0, 0.75e-20, 1 - (1 - 0.25e-3) ** 3, 1 - 0.75**3],
        rtol=1e-12,
    )
    times = torch.tensor([[0.5], [2.0], [math.inf]], dtype=torch.float64)
    several = spectral_filter(lam, t=times)
    torch.testing.assert_close(several[1], spectral_filter(lam, t=2.0))
    assert several[2].tolist() == [0.0, 1.0, 1.0, 1.0]
    assert spectral_filter(torch.tensor([2.0]), eta=1.0, T=3).item() == 2.0  # from side to side
    assert spectral_filter(torch.tensor([-1e-9, 1.0]), t=1.0)[0] == 0


def test_rkhs_inner_is_the_double_sum():
    x, z = drawn(5, 2), drawn(4, 2, seed=1)
    a, b = drawn(5, 3, seed=2), drawn(4, 3, seed=3)
    kernel = MaternKernel(nu=0.5)
    wanted = np.zeros(3)
    for i in range(5):
        for j in range(4):
            wanted += (
                a[i].numpy() * b[j].numpy() * math.exp(-math.dist(x[i].tolist(), z[j].tolist()))
            )
    for memory in (None, 1, 300):
        found = rkhs_inner(kernel, x, a, z, b, memory=memory)
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
        one = rkhs_inner(kernel, x, a[:, 0], z, b[:, 0], memory=memory)
        np.testing.assert_allclose(one, wanted[0], rtol=1e-12, atol=1e-12)


def test_rkhs_norm_is_that_of_the_weights():
    J, a = drawn(5, 3), drawn(5, 2, seed=1)
    norm = rkhs_norm(LinearKernel(), J, a)
    np.testing.assert_allclose(norm, np.linalg.norm(J.numpy().T @ a.numpy(), axis=0), rtol=1e-12)
    null = np.linalg.svd(J.numpy())[0][:, -1]  # the function 0, up to rounding on both sides
    assert float(rkhs_norm(LinearKernel(), J, torch.from_numpy(null.copy()))) < 1e-7


X, Y = torch.tensor([[0.0], [1.0], [2.0], [5.0]]), torch.zeros(4)
REPEATED = torch.tensor([[0.0], [1.0], [0.0]])


def bump(x1: Tensor, x2: Tensor) -> Tensor:
    """Symmetric, and 1 at distance 0, but no kernel."""
    return 1 - torch.cdist(x1, x2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: kernel_regression(bump, X, Y),
         r"kernel must be positive semidefinite, got a matrix whose smallest eigenvalue is"
         r" -4.70339, the largest 6.15328"),
        (lambda: kernel_regression(lambda a, b: a - b.T + 1, X, Y),
         r"kernel must be symmetric, got -4 at \(0, 3\) and 6 at \(3, 0\)"),
        (lambda: kernel_regression(RBFKernel(), REPEATED, torch.tensor([1.0, 2.0, 3.0])),
         "x must not have equal inputs with different targets without noise, got rows 0 and 2"
         " with 1.0 and 3.0; KernelRidge has noise"),
        (lambda: kernel_regression(RBFKernel(), X, Y[:3]),
         r"y must have 4 rows as x has, got shape \(3,\)"),
        (lambda: kernel_regression(RBFKernel(), X, Y.double()),
         "y must be torch.float32 on cpu as x is, got torch.float64 on cpu"),
        (lambda: kernel_regression(RBFKernel(), X, Y, f0=Y[:, None]),
         r"f0 must have shape \(4,\), got \(4, 1\)"),
        (lambda: kernel_regression(RBFKernel(), X, Y, rtol=1.0), "rtol must be < 1, got 1.0"),
        (lambda: kernel_regression(RBFKernel(), X, Y, conflicts="mean"),
         "conflicts must be one of 'refuse', 'average', got 'mean'"),
        (lambda: kernel_regression(RBFKernel(), X, Y * math.nan), "y must be finite, got nan"),
        (lambda: kernel_regression(RBFKernel(), X, Y).predict(X[:2, :0]), "x must not be empty"),
        (lambda: kernel_regression(RBFKernel(), X, Y).predict(torch.ones(2, 3)),
         r"x must hold inputs of shape \(1,\) as the training set does, got \(3,\)"),
        (lambda: kernel_regression(RBFKernel(), X, X).predict(X, Y),
         r"f0 must have shape \(4, 1\), got \(4,\)"),
        (lambda: rkhs_inner(RBFKernel(), X, Y, torch.ones(4, 2), Y),
         r"z must hold inputs of shape \(1,\) as x does, got \(2,\)"),
        (lambda: spectral_filter(Y, t=1.0, alpha=1.0),
         "one of t, alpha, or eta with T must be given, got 2 of them"),
        (lambda: spectral_filter(Y), "one of t, alpha, or eta with T must be given, got 0 of"),
        (lambda: spectral_filter(Y, eta=1.0), "eta and T must be given together"),
        (lambda: spectral_filter(Y, T=3), "eta and T must be given together"),
        (lambda: spectral_filter(Y - 1, t=1.0), "eigenvalues must be >= 0, got -1"),
        (lambda: spectral_filter(Y, t=-1.0), "t must be >= 0, got -1.0"),
        (lambda: spectral_filter(Y, t=torch.tensor([1.0, -2.0])), "t must be >= 0, got -2.0"),
        (lambda: spectral_filter(Y, alpha=math.inf), "alpha must be finite, got inf"),
        (lambda: spectral_filter(Y, alpha=torch.tensor(-1.0)), "alpha must be >= 0 and finite"),
        (lambda: spectral_filter(Y, eta=0.0, T=1), "eta must be > 0, got 0.0"),
        (lambda: spectral_filter(Y, eta=1.0, T=-1), "T must be >= 0, got -1"),
        (lambda: spectral_filter(Y + 9.0, eta=1.0, T=99),
         "eta must be at most 2 / 9, or 99 steps of descent leave the range of torch.float32"),
        (lambda: rkhs_norm(RBFKernel(), X, Y[:3]),
         r"alpha must have 4 rows, one for each input, got \(3,\)"),
        (lambda: rkhs_inner(RBFKernel(), X, Y, X, Y[:, None]),
         r"beta must be of as many functions as alpha, \(\), got \(1,\)"),
        (lambda: rkhs_norm(RBFKernel(), X, Y.double()), "alpha must be torch.float32 on cpu as th"),
        (lambda: rkhs_norm(bump, X, torch.tensor([1.0, 0.0, 0.0, 1.0])),
         "kernel must be positive semidefinite, got -6 for the squared norm"),
        (lambda: rkhs_norm(RBFKernel(), X, Y, memory=0), "memory must be >= 1, got 0"),
    ],
)  # fmt: skip
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_squared_norms_below_zero_by_rounding_count_as_zero():
    """Of functions that are 0: coefficients in the null space of the matrix."""
    x = drawn(30, 3).float()
    null = torch.linalg.svd(x.double()).U[:, 3:].float()
    assert float(rkhs_inner(LinearKernel(), x, null, x, null).min()) < 0
    assert float(rkhs_norm(LinearKernel(), x, null).max()) < 1e-2


def test_equal_inputs_with_equal_targets_are_no_conflict():
    y = torch.tensor([1.0, 2.0, 1.0])
    found = kernel_regression(RBFKernel(), REPEATED, y)
    assert found.rank == 2
    top = float(found.eigenvalues[-1])
    assert found.threshold == pytest.approx(3 * torch.finfo(torch.float32).eps * top)
    torch.testing.assert_close(found.predict(REPEATED), y)
    other = kernel_regression(RBFKernel(), REPEATED, y + REPEATED[:, 0], conflicts="average")
    torch.testing.assert_close(other.predict(REPEATED), y + REPEATED[:, 0])
    mixed = kernel_regression(RBFKernel(), REPEATED, torch.arange(3.0), conflicts="average")
    torch.testing.assert_close(mixed.predict(REPEATED), torch.tensor([1.0, 1.0, 1.0]))
    torch.testing.assert_close(mixed.residual, torch.tensor([-1.0, 0.0, 1.0]), atol=1e-6, rtol=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.gpu
def test_regression_on_a_gpu():
    x, y = drawn(30, 3), drawn(30, 2, seed=1)
    kernel = MaternKernel(nu=1.5)
    mine, other = (kernel_regression(kernel, x.to(d), y.to(d)) for d in ("cuda", "cpu"))
    assert mine.coefficients.is_cuda
    assert mine.rank == other.rank
    torch.testing.assert_close(mine.predict(x.cuda()).cpu(), y, atol=1e-9, rtol=0)
    a = other.coefficients
    norms = [rkhs_norm(kernel, x.to(d), a.to(d)).cpu() for d in ("cuda", "cpu")]
    torch.testing.assert_close(*norms)
    lam = torch.linalg.eigvalsh(gram(kernel, x))
    ways: list[Any] = [{"t": 2.0}, {"alpha": 0.3}, {"eta": 0.01, "T": 5}]
    for knobs in ways:
        found = spectral_filter(lam.cuda(), **knobs)
        torch.testing.assert_close(found.cpu(), spectral_filter(lam, **knobs))
