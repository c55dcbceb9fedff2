"""Eigenvalues against dense ones, on clustered, degenerate, indefinite and deficient spectra."""

import math

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.exceptions import ConvergenceWarning

from vademecum.foundations._lanczos import KrylovBasis
from vademecum.foundations.extreme_eigenvalues import eigsh
from vademecum.foundations.operators import LinearOperator, aslinearoperator

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
WHICH = ["largest", "smallest", "magnitude"]


def planted(values, dtype=torch.float64):
    """A matrix with these eigenvalues, and random eigenvectors."""
    values = torch.as_tensor(values, dtype=torch.float64)
    Q = torch.linalg.qr(torch.randn(len(values), len(values), dtype=torch.complex128)).Q
    if not dtype.is_complex:
        Q = torch.linalg.qr(Q.real).Q
    A = (Q * values) @ Q.mH
    return ((A + A.mH) / 2).to(dtype)


def wanted(A, k, which):
    values = torch.linalg.eigvalsh(A.to(torch.complex128))
    rank = {"largest": values, "smallest": -values, "magnitude": values.abs()}[which]
    return values[rank.argsort(descending=True)[:k]]


def check(A, k, which, **options):
    """Values, residuals, orthonormal vectors, all to what the tolerance promises."""
    found = eigsh(A, k, which=which, **options)
    eps = torch.finfo(A.dtype).eps
    tol, norm = options.get("tol", eps**0.5), float(torch.linalg.matrix_norm(A, 2))
    true = (A @ found.vectors - found.vectors * found.values).norm(dim=0)
    rounding = 50 * eps * norm
    assert found.converged
    assert (true <= found.residuals + rounding).all()
    assert (true <= tol * norm + rounding).all()
    gram = found.vectors.mH @ found.vectors
    torch.testing.assert_close(gram, torch.eye(k).to(gram), rtol=0, atol=1000 * eps)
    expected = wanted(A, k, which)
    if which == "magnitude":  # where two signs tie, either may come first
        expected, got = expected.abs(), found.values.double().abs()
    else:
        got = found.values.double()
    torch.testing.assert_close(got, expected, rtol=0, atol=float(true.max()) + rounding)
    return found


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("dtype", DTYPES)
def test_indefinite_matrix(dtype, which):
    A = planted(torch.randn(200).double(), dtype)
    found = check(A, 4, which)
    assert found.values.dtype == A.real.dtype
    assert found.vectors.dtype == dtype


@pytest.mark.parametrize("which", WHICH)
def test_to_machine_precision(which):
    A = planted(torch.cat([torch.rand(290), torch.tensor([9.0, 7.0, -8.0, 5.0, -6.0])]).double())
    found = check(A, 3, which, tol=1e-13)
    torch.testing.assert_close(found.values, wanted(A, 3, which), rtol=1e-13, atol=1e-13)


SPECTRA = {
    "a triple and a pair": [10.0] * 3 + [9.0] * 2,
    "clustered": [10.0, 10 - 1e-3, 10 - 1e-3, 10 - 2e-3, 5.0],
    "more copies than wanted": [10.0] * 7,
    "pairs at both ends": [-10.0] * 2 + [10.0] * 2 + [9.0],
    "copies further down": [5.0, 4.0, 3.0, 3.0, 3.0],
    "nothing special": [],
}


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("name", SPECTRA)
def test_multiplicity(name, which):
    top = torch.tensor(SPECTRA[name]).double()
    bulk = torch.rand(150 - len(top)).double() * 2 - 1
    check(planted(torch.cat([top, bulk])), 5, which)


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
def test_few_distinct_eigenvalues(dtype, which):
    n = 120
    for values in ([2.0] * n, [0.0] * n, [2.0] * 70 + [-2.5] * 50, [3.0, 3.0] + [0.0] * (n - 2)):
        check(planted(values, dtype), 4, which)


@pytest.mark.parametrize("scale", [1e-36, 1e-25, 1e25, 1e36])
def test_scales_whose_squares_leave_the_range(scale):
    A = planted(torch.cat([torch.tensor([9.0, 9.0, -8.0]), torch.rand(60)]).double(), torch.float32)
    for which, expected in (("largest", [9.0, 9.0]), ("smallest", [-8.0])):
        found = eigsh(scale * A, len(expected), which=which)
        assert found.converged
        assert (found.values.double() / scale).tolist() == pytest.approx(expected, rel=1e-4)


def test_without_the_search_copies_are_missed():
    top = torch.tensor([9.0, 9.0, 9.0, 5.0, 4.0])
    A = planted(torch.cat([top, torch.rand(400)]).double())
    blind, seeing = eigsh(A, 3, degenerate=False), eigsh(A, 3)
    assert blind.values.round().tolist() == [9.0, 5.0, 4.0]
    assert seeing.values.round().tolist() == [9.0, 9.0, 9.0]


@pytest.mark.parametrize("symmetry_tol", [None, math.inf])
def test_a_good_start_saves_products(symmetry_tol):
    A = planted(torch.cat([torch.tensor([9.0, 8.9]), torch.rand(200)]).double())
    known = torch.linalg.eigh(A).eigenvectors[:, -1] + 1e-7 * torch.randn(202).double()
    warm, cold = (
        eigsh(A, 1, tol=1e-5, v0=v0, symmetry_tol=symmetry_tol) for v0 in (3 * known, None)
    )
    for found in (warm, cold):
        assert found.values.tolist() == pytest.approx([9.0], rel=1e-9)
        gap = A @ found.vectors[:, 0] - found.values * found.vectors[:, 0]
        assert float(gap.norm()) == pytest.approx(float(found.residuals), rel=1e-3)
    assert warm.applications == (1 if symmetry_tol else 2) < cold.applications - 3


@pytest.mark.parametrize("n", [1, 2, 3, 26])
@pytest.mark.parametrize("dtype", DTYPES)
def test_small_matrices_and_all_eigenvalues(n, dtype):
    A = planted(torch.randn(n).double(), dtype)
    for k in {1, n}:
        assert check(A, k, "smallest").applications == n


def test_all_eigenvalues_but_a_few():
    check(planted(torch.randn(100).double()), 60, "largest", subspace=70)
    check(planted(torch.randn(100).double()), 3, "smallest", subspace=5)


def test_the_basis_stays_orthonormal_through_restarts():
    A = planted(torch.linspace(0, 1, 300).double() ** 3)
    basis = KrylovBasis(aslinearoperator(A), 20)
    for _ in range(4):
        while basis.j < basis.size:
            basis.grow()
        theta, Y, _ = basis.ritz()
        basis.shrink(theta[-8:], Y[:, -8:])
        basis.grow()
        V, j = basis.V[: basis.j + 1], basis.j
        torch.testing.assert_close(V @ V.T, torch.eye(j + 1).double(), rtol=0, atol=1e-13)
        H = basis.H[:j, :j].triu()
        left = A @ V[:j].T - V[:j].T @ (H + H.triu(1).T)
        left[:, -1] -= basis.betas[-1] * V[j]
        assert left.abs().max() < 1e-13


def test_counts_and_seeds():
    calls = []
    d = torch.linspace(0, 1, 500)[:, None] ** 4

    def matvec(x):
        calls.append(x.shape[1])
        return d * x

    op, state = LinearOperator((500, 500), matvec, matvec), torch.get_rng_state()
    first = eigsh(op, 4, generator=torch.Generator().manual_seed(3))
    assert first.applications == sum(calls)
    assert state.equal(torch.get_rng_state())
    again = eigsh(op, 4, generator=torch.Generator().manual_seed(3))
    assert first.vectors.equal(again.vectors)


def test_sparse_and_scipy_operands():
    path = scipy.sparse.csr_array(np.diag([2.0] * 500) - np.eye(500, k=1) - np.eye(500, k=-1))
    found = eigsh(path, 2, which="largest", tol=1e-6)
    exact = [2 - 2 * math.cos(math.pi * j / 501) for j in (500, 499)]
    assert found.values.tolist() == pytest.approx(exact, abs=1e-5)


def test_graphs_are_not_kept():
    w = torch.linspace(0, 1, 100).requires_grad_()
    op = LinearOperator((100, 100), lambda x: w[:, None] * x, lambda x: w[:, None] * x)
    assert not eigsh(op, 2).vectors.requires_grad


def test_no_convergence_is_told():
    A = planted(torch.cat([torch.tensor([9.0, 5.0]), torch.rand(400)]).double())
    with pytest.warns(ConvergenceWarning, match="and others, or copies, may be hidden"):
        assert not eigsh(A, 2, max_iter=eigsh(A, 2, degenerate=False).applications + 2)[-1]
    A = planted(torch.linspace(0, 1, 400).double())
    with pytest.warns(ConvergenceWarning, match=r"max_iter=40 reached with residual norms"):
        found = eigsh(A, 4, tol=1e-12, max_iter=40)
    assert not found.converged
    assert found.applications == 40
    true = (A @ found.vectors - found.vectors * found.values).norm(dim=0)
    torch.testing.assert_close(found.residuals, true)


I, BAD = torch.eye(50), torch.eye(50) + torch.ones(50, 50).triu(1)
ERRORS = [
    ((BAD, 2), {}, "op must be symmetric"),
    ((torch.ones(2, 2).triu(), 2), {}, "op must be symmetric"),
    ((1j * torch.eye(3, dtype=torch.complex64), 2), {}, "op must be symmetric"),
    ((torch.ones(2, 3), 2), {}, r"op must be square, got shape \(2, 3\)"),
    ((torch.eye(3).half(), 2), {}, "op must be in single or double precision, got torch.float16"),
    ((I, 0), {}, "k must be >= 1, got 0"),
    ((I, 51), {}, "k must be <= 50, got 51"),
    ((I, 2), {"which": "middle"}, "which must be one of 'largest'"),
    ((I, 2), {"tol": 0.0}, "tol must be > 0, got 0"),
    ((I, 2), {"tol": math.nan}, "tol must be .*, got nan"),
    ((I, 2), {"subspace": 3}, "subspace must be >= 4, got 3"),
    ((I, 2), {"symmetry_tol": math.nan}, "symmetry_tol must be .*, got nan"),
    ((I, 2), {"max_iter": 0}, "max_iter must be >= 1, got 0"),
    ((I, 2), {"v0": torch.zeros(50)}, "v0 must not be zero, got 50 zeros"),
    ((I, 2), {"v0": torch.ones(49)}, "v0 must be 50 wide"),
    ((I, 2), {"v0": torch.full((50,), math.nan)}, "v0 must be finite"),
    ((LinearOperator((50, 50), lambda x: x * math.nan), 2), {}, "op must be symmetric .* finite"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("arguments", "options", "message"), ERRORS)
def test_errors(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        eigsh(*arguments, **options)


def test_numbers_that_go_wrong_later():
    calls = []

    def matvec(x):
        calls.append(1)
        return x * (torch.arange(50.0)[:, None] + (math.inf if len(calls) > 3 else 0))

    with pytest.raises(ValueError, match="op must return finite numbers"):
        eigsh(LinearOperator((50, 50), matvec), 2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
def test_cuda(dtype):
    A = planted(torch.cat([torch.full((2,), 9.0), torch.rand(300)]).double(), dtype)
    found = eigsh(A.cuda(), 3, generator=torch.Generator().manual_seed(0))
    assert found.vectors.is_cuda
    here = eigsh(A, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(found.values.cpu(), here.values)
