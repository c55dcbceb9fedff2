"""Eigenvalues so close to each other that a few hundred products do not tell them apart."""

import math

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.exceptions import ConvergenceWarning

from tests.foundations.test_eigsh import planted
from vademecum.foundations import _shift_invert
from vademecum.foundations.extreme_eigenvalues import eigsh
from vademecum.foundations.operators import LinearOperator, aslinearoperator


def laplacian(n, closed):
    """Of a path, or of a cycle; and its eigenvalues."""
    steps = np.diff(np.eye(n), axis=0, append=np.eye(n)[:1] if closed else np.eye(n)[-1:])
    j = torch.arange(n).double()
    j = 2 * ((j + 1) // 2) if closed else j
    steps = scipy.sparse.csr_array(steps)
    return (steps.T @ steps).tocsr(), 2 - 2 * (math.pi * j / n).cos()


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("closed", [False, True])  # whose eigenvalues come in pairs
@pytest.mark.parametrize("kind", ["scipy", "csr", "coo", "dense", "float32", "complex"])
def test_crowded_ends_of_matrices(kind, closed):
    L, exact = laplacian(700, closed)
    dense = torch.as_tensor(L.toarray())
    phase = torch.polar(torch.ones(700).double(), torch.linspace(0, 9, 700).double())
    given = {
        "scipy": lambda: L,
        "csr": dense.to_sparse_csr,
        "coo": dense.to_sparse,
        "dense": lambda: dense,
        "float32": lambda: L.astype(np.float32),
        "complex": lambda: phase[:, None] * dense * phase.conj(),
    }[kind]()
    for which, sign in (("smallest", 1), ("largest", -1)):
        found = eigsh(given, 5, which=which)
        assert found.converged
        assert found.applications < 1000
        op = aslinearoperator(given)
        true = (op @ found.vectors - found.vectors * found.values).norm(dim=0)
        rounding = 50 * torch.finfo(op.dtype).eps * 4
        assert (true <= found.residuals + rounding).all()
        assert (true <= 4 * torch.finfo(op.dtype).eps ** 0.5 + rounding).all()
        gram = found.vectors.mH @ found.vectors
        torch.testing.assert_close(gram, torch.eye(5).to(gram), rtol=0, atol=rounding)
        ordered = exact if sign > 0 else exact.sort(descending=True).values
        # Errors go with the square of the residuals, over the gap to the rest; and the value is an
        # inner product of 700 terms, whose absolute values add up to 4, the norm of L, at most.
        gap = float((ordered[6] - ordered[4]).abs())
        rounding = 700 * torch.finfo(op.dtype).eps * 4
        error = min(float(true.max()), float(true.max()) ** 2 / gap) + rounding
        torch.testing.assert_close(found.values.double(), ordered[:5], rtol=0, atol=error)


def test_crowded_ends_of_operators_are_left_with_a_warning():
    L, _ = laplacian(3000, False)
    op = LinearOperator((3000, 3000), aslinearoperator(L).__matmul__, dtype=torch.float64)
    with pytest.warns(ConvergenceWarning, match="max_iter=2000 reached .* a larger subspace"):
        found = eigsh(op, 6, which="smallest")
    assert not found.converged
    assert found.applications == 2000
    true = (op @ found.vectors - found.vectors * found.values).norm(dim=0)
    torch.testing.assert_close(found.residuals, true, rtol=1e-3, atol=1e-12)


def test_what_is_nearly_symmetric_is_taken_on_request():
    top = torch.tensor([9.0, 9.0, 8.0, 5.0])
    A = planted(torch.cat([top, torch.rand(300)]).double())
    noise = torch.randn(304, 304).double()
    single = A + 1e-6 * noise / torch.linalg.matrix_norm(noise, 2)
    for n, matrix in ((304, single), (20, single[:20, :20])):
        op = LinearOperator((n, n), lambda x, B=matrix: B @ x, dtype=torch.float64)
        with pytest.raises(ValueError, match=r"a relative asymmetry of \d.*symmetry_tol=1.49e-08"):
            eigsh(op, 3)
        found = eigsh(op, 3, symmetry_tol=1e-5)
        assert found.converged
        true = (op @ found.vectors - found.vectors * found.values).norm(dim=0)
        torch.testing.assert_close(found.residuals, true, rtol=1e-6, atol=1e-12)
        symmetric = torch.linalg.eigvalsh((matrix + matrix.T) / 2).flip(0)[:3]
        assert (found.values - symmetric).abs().max() <= 1e-5 * float(symmetric[0])


@pytest.mark.parametrize("which", ["largest", "smallest", "magnitude"])
@pytest.mark.parametrize("known", [True, False])
def test_many_copies(known, which):
    """Each of them is found in a run of its own, with what the runs before left out."""
    copies = torch.full((10,), 39.0 if which != "smallest" else -39.0)
    A = planted(torch.cat([copies, copies / 2, torch.rand(180)]).double())
    op = A if known else LinearOperator(A.shape, lambda x: A @ x, dtype=A.dtype)
    found = eigsh(op, 10, which=which)
    assert found.converged
    torch.testing.assert_close(found.values, copies.double(), rtol=0, atol=1e-11)
    true = (A @ found.vectors - found.vectors * found.values).norm(dim=0)
    assert (true <= found.residuals + 50 * torch.finfo(A.dtype).eps * 39).all()


@pytest.mark.parametrize("max_iter", [None, 90, 200])
def test_a_tolerance_below_the_asymmetry_is_not_met(max_iter, monkeypatch):
    L, exact = laplacian(700, False)
    made, solver = [], _shift_invert._solver
    monkeypatch.setattr(_shift_invert, "_solver", lambda *a: made.append(a) or solver(*a))
    noise = torch.randn(700, 700).double()
    A = torch.as_tensor(L.toarray()) + 1e-6 * noise / torch.linalg.matrix_norm(noise, 2)
    message = f"max_iter={max_iter} reached with" if max_iter else "rounding or asymmetry leaves"
    with pytest.warns(ConvergenceWarning, match=f"{message} residual norms"):
        found = eigsh(A, 5, which="smallest", symmetry_tol=1e-5, tol=1e-9, max_iter=max_iter)
    assert not found.converged
    assert len(made) <= 3
    true = (A @ found.vectors - found.vectors * found.values).norm(dim=0)
    torch.testing.assert_close(found.residuals, true, rtol=1e-6, atol=1e-12)
    if max_iter is None:
        assert true.max() <= 2e-6  # what the noise makes of it
        torch.testing.assert_close(found.values, exact[:5], rtol=0, atol=2e-6)
    else:
        assert found.applications <= max_iter + 5  # k products for the residuals
