"""Systems that are solved by products with kernel matrices, against the same equations densely."""

import math

import pytest
import torch
from scipy.linalg import get_lapack_funcs
from torch import Tensor

from vademecum.kernels import LinearKernel, RBFKernel, _iterative
from vademecum.kernels._iterative import System, iterative_fit

ROWS, KEPT = 2**15, 2**21  # bytes: rows are computed again and again; the matrix is kept


def inputs(n: int, d: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(n)
    return torch.randn(n, d, dtype=torch.float64, generator=generator)


def eye(n: int) -> Tensor:
    return torch.eye(n, dtype=torch.float64)


def dense(system: System) -> Tensor:
    """The preconditioner as a matrix."""
    return system.power(1.0, eye(len(system.x)))


def close(one: Tensor, other: Tensor, tol: float = 1e-10) -> None:
    assert float((one - other).abs().max()) <= tol * float(other.abs().max())


def pivoted(K: Tensor, rank: int) -> Tensor:
    """What LAPACK's decomposition with complete pivoting explains of a matrix after some steps."""
    (decomposed,) = get_lapack_funcs(("pstrf",), (K.numpy(),))
    factor, order, _, _ = decomposed(K.numpy(), lower=1, tol=0.0)
    G = torch.empty(len(K), rank, dtype=torch.float64)
    G[torch.from_numpy(order).long() - 1] = torch.from_numpy(factor).tril()[:, :rank]
    return G @ G.T


@pytest.mark.parametrize("memory", [ROWS, KEPT])
def test_products_are_those_of_the_matrix(memory):
    x, kernel = inputs(60), RBFKernel(lengthscale=0.8)
    diagonal = torch.linspace(0.1, 2, 60, dtype=torch.float64)
    v = inputs(60, 4)
    for added in (0.3, diagonal):
        system = System(kernel, x, added, memory)
        assert (system.kept is None) == (memory == ROWS)
        wanted = kernel(x) + torch.diag(added * torch.ones_like(diagonal))
        close(system.product(v), wanted @ v, 1e-13)


def test_what_is_kept_fits_into_the_memory():
    """The matrix and as much again for portions of it, in bytes."""
    x, size = inputs(40), 2 * 40 * 40 * 8
    assert System(RBFKernel(), x, 1.0, size).kept is not None
    assert System(RBFKernel(), x, 1.0, size - 1).kept is None


@pytest.mark.parametrize("noise", [0.01, 0.5])
def test_the_preconditioner_is_a_pivoted_decomposition(monkeypatch, noise):
    monkeypatch.setattr(_iterative, "RANK", 7)
    x, kernel = inputs(50), 3.0 * RBFKernel(lengthscale=0.9)
    K = kernel(x)
    explained = pivoted(K, 7)
    delta = max(noise, float((K - explained).trace()) / 50)
    system = System(kernel, x, noise, KEPT)
    close(dense(system), explained + delta * eye(50), 1e-12)
    assert system.delta == pytest.approx(delta, rel=1e-12)


def test_a_diagonal_counts_with_its_least_entry():
    x, kernel = inputs(20), RBFKernel()
    diagonal = torch.linspace(0.4, 3, 20, dtype=torch.float64)
    close(dense(System(kernel, x, diagonal, KEPT)), kernel(x) + 0.4 * eye(20), 1e-12)


def test_a_kernel_of_low_rank_is_known_after_so_many_steps():
    """Nothing is left after three pivots; what rounding leaves must not become a pivot."""
    x = inputs(150)
    system = System(LinearKernel(), x, 0.09, KEPT)
    assert int((system.scales > 0.09 * (1 + 1e-9)).sum()) == 3
    close(dense(system), x @ x.T + 0.09 * eye(150), 1e-12)


def test_powers_of_the_preconditioner():
    system = System(RBFKernel(lengthscale=0.7), inputs(30), 0.2, KEPT)
    P = dense(system)
    values, vectors = torch.linalg.eigh(P)
    for q in (-1.0, -0.5, 0.5):
        close(system.power(q, eye(30)), vectors * values**q @ vectors.T, 1e-12)


def test_where_the_preconditioner_is_all_the_likelihood_is_exact():
    x, y = inputs(150), inputs(150, 4)[:, :3]
    A = x @ x.T + 0.25 * eye(150)
    for t in (1, 3):
        found = iterative_fit(LinearKernel(), 0.5, x, y[:, :t], memory=KEPT, tol=1e-12, seed=0)
        law = torch.distributions.MultivariateNormal(torch.zeros(150).double(), A)
        assert found.value == pytest.approx(float(law.log_prob(y[:, :t].T).sum()), rel=1e-10)
        assert found.error < 1e-8
        close(found.alpha, torch.linalg.solve(A, y[:, :t]), 1e-9)


def test_error_bars_are_those_of_the_values(monkeypatch):
    """With few pivots something is left to probes; the bar is what values spread by over seeds."""
    monkeypatch.setattr(_iterative, "RANK", 2)
    x, y, kernel = inputs(40), inputs(40, 2), RBFKernel(lengthscale=0.6)
    law = torch.distributions.MultivariateNormal(
        torch.zeros(40).double(), kernel(x) + 0.04 * eye(40)
    )
    exact = float(law.log_prob(y.T).sum())
    fits = [
        iterative_fit(kernel, 0.2, x, y, memory=KEPT, tol=1e-10, seed=seed) for seed in range(40)
    ]
    values = torch.tensor([fit.value for fit in fits], dtype=torch.float64)
    bar = math.sqrt(sum(fit.error**2 for fit in fits) / 40)
    # Standard errors: 11 % of a deviation of 40 values, 3 % of the bar over 40 times 16 probes.
    assert float(values.std()) == pytest.approx(bar, rel=0.45)
    assert abs(float(values.mean()) - exact) < 5 * bar / math.sqrt(40)


@pytest.mark.parametrize("memory", [ROWS, KEPT])
@pytest.mark.parametrize("t", [1, 3])
def test_derivatives_are_those_of_the_equation_with_these_probes(monkeypatch, memory, t):
    monkeypatch.setattr(_iterative, "RANK", 5)
    x, y, noise, n = inputs(60), inputs(60, 4)[:, :t], 0.3, 60
    kernel = 2.0 * RBFKernel(lengthscale=0.7)
    found = iterative_fit(
        kernel, noise, x, y, memory=memory, tol=1e-13, seed=4, gradient=("scale", "noise")
    )
    K = kernel(x)
    inverse = torch.linalg.inv(K + noise**2 * eye(n))
    values, vectors = torch.linalg.eigh(dense(found.system))
    root, back = (vectors * values**q @ vectors.T for q in (0.5, -0.5))
    signs = 2.0 * torch.randint(2, (n, 16), generator=torch.Generator().manual_seed(4)) - 1
    signs = signs.double()
    alpha = inverse @ y
    W = alpha @ alpha.T - t / 16 * inverse @ root @ signs @ signs.T @ back
    r2 = torch.cdist(x, x).square() / 0.49
    wanted = {"scale": K, "lengthscale": K * r2, "noise": 2 * noise**2 * eye(n)}
    assert found.gradients.keys() == wanted.keys()
    for name, slope in wanted.items():
        expected = float((W * slope).sum()) / 2
        assert float(found.gradients[name]) == pytest.approx(expected, rel=1e-8), name


def test_the_residual_is_the_worst_of_all_targets(monkeypatch):
    """One target is an eigenvector, for which few products are enough."""
    monkeypatch.setattr(_iterative, "RANK", 5)
    x, kernel = inputs(40), RBFKernel(lengthscale=0.8)
    A = kernel(x) + 0.09 * eye(40)
    y = torch.cat([inputs(40, 2), 50 * torch.linalg.eigh(A)[1][:, -1:]], 1)
    found = iterative_fit(kernel, 0.3, x, y, memory=KEPT, tol=1e-2, seed=0)
    parts = (y - A @ found.alpha).norm(dim=0) / y.norm(dim=0)
    assert float(parts.min()) < 0.9 * float(parts.max())
    assert found.residual == pytest.approx(float(parts.max()), rel=1e-6)
    assert 0 < found.residual <= 1e-2
