"""Conjugate gradients against dense solutions and against SciPy."""

import math

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import cg as scipy_cg
from sklearn.exceptions import ConvergenceWarning

from vademecum.foundations.conjugate_gradients import cg
from vademecum.foundations.operators import LinearOperator


def planted(values, dtype=torch.float64):
    values = torch.as_tensor(values, dtype=torch.float64)
    Q = torch.linalg.qr(torch.randn(len(values), len(values), dtype=torch.complex128)).Q
    Q = Q if dtype.is_complex else torch.linalg.qr(Q.real).Q
    return ((Q * values) @ Q.mH).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128])
@pytest.mark.parametrize("columns", [(), (1,), (4,)])
def test_solves(dtype, columns):
    A = planted(torch.linspace(1, 50, 60), dtype)
    b = torch.randn(60, *columns, dtype=dtype)
    found = cg(A, b)
    assert found.x.shape == b.shape
    assert found.x.dtype == dtype
    tol = torch.finfo(dtype).eps ** 0.5
    true = (b - A @ found.x).norm(dim=0)
    assert (true <= 1.01 * tol * b.norm(dim=0)).all()
    torch.testing.assert_close(found.residuals[-1], true, rtol=1e-3, atol=1e-3 * tol)
    torch.testing.assert_close(found.residuals[0], b.norm(dim=0))
    assert found.converged.all()
    assert (found.iterations <= len(found.residuals) - 1).all()


def test_iterates_are_those_of_scipy():
    A, b = planted(torch.logspace(0, 3, 40)), torch.randn(40).double()
    norms = []
    scipy_cg(A.numpy(), b.numpy(), rtol=1e-10, callback=lambda x: norms.append(
        np.linalg.norm(b.numpy() - A.numpy() @ x)))  # fmt: skip
    found = cg(A, b, tol=1e-10)
    torch.testing.assert_close(found.residuals[1:15], torch.tensor(norms[:14]), rtol=1e-9, atol=0)


def test_each_column_stops_by_itself_and_costs_no_more():
    A = planted([1.0] * 20 + [2.0] * 10 + [3.0, 4.0, 5.0])
    values, Q = torch.linalg.eigh(A)
    b = torch.stack([Q[:, 0], Q[:, :21] @ torch.ones(21).double(), Q.sum(1), 0 * Q[:, 0]], 1)
    sizes = []

    def matvec(x):
        sizes.append(x.shape[1])
        return A @ x

    found = cg(LinearOperator((33, 33), matvec, dtype=A.dtype), b, tol=1e-12, symmetry_tol=math.inf)
    assert found.iterations.tolist() == [1, 2, 5, 0]  # as many as eigenvalues there are in it
    assert sizes == [3, 2, 1, 1, 1, 4]  # the last one for the residuals of all
    torch.testing.assert_close(A @ found.x, b)
    alone = cg(A, b[:, 2], tol=1e-12)
    torch.testing.assert_close(found.residuals[:5, 2], alone.residuals[:5])
    assert values[0] > 0


def test_preconditioner_and_start():
    d = torch.logspace(0, 6, 50).double()
    A = torch.diag(d) + 0.1 * planted(torch.rand(50))
    b = torch.randn(50).double()
    M = LinearOperator((50, 50), lambda x: x / d[:, None], dtype=torch.float64)
    plain, helped = cg(A, b, tol=1e-9, max_iter=5000), cg(A, b, tol=1e-9, preconditioner=M)
    assert helped.iterations * 4 < plain.iterations
    torch.testing.assert_close(helped.x, torch.linalg.solve(A, b), rtol=1e-6, atol=1e-9)
    exact = cg(A, b, preconditioner=torch.linalg.inv(A))
    assert exact.iterations <= 2
    assert cg(A, b, x0=torch.linalg.solve(A, b)).iterations == 0


def test_what_is_nearly_symmetric_is_solved_on_request():
    A = planted(torch.linspace(1, 50, 60))
    A += 1e-6 * torch.randn(60, 60)
    b = torch.randn(60).double()
    with pytest.raises(ValueError, match="a relative asymmetry of"):
        cg(A, b)
    for tol in (1e-3, math.inf):
        found = cg(A, b, tol=1e-5, symmetry_tol=tol)
        assert found.converged
        assert (b - A @ found.x).norm() <= 1.01e-5 * b.norm()


def test_singular_but_consistent():
    A = planted([0.0] * 10 + [1.0] * 20 + [2.0] * 5)
    b = A @ torch.randn(35).double()
    torch.testing.assert_close(cg(A, b).x, torch.linalg.pinv(A) @ b)


@pytest.mark.parametrize("scale", [1e-36, 1e-25, 1e25, 1e33])
def test_scales_whose_squares_leave_the_range(scale):
    A, b = planted(torch.linspace(1, 50, 60), torch.float32), torch.randn(60, 2)
    expected = torch.linalg.solve(A.double(), b.double())
    found = cg(A, torch.stack([b[:, 0], scale * b[:, 1]], 1))
    assert found.converged.all()
    assert (found.iterations > 5).all()
    solved = found.x.double() / torch.tensor([1.0, scale]).double()
    torch.testing.assert_close(solved, expected, rtol=0, atol=1e-3)
    assert float(found.residuals[0, 1]) == pytest.approx(scale * float(b[:, 1].norm()), rel=1e-5)
    torch.testing.assert_close(cg(scale * A, b).x.double() * scale, expected, rtol=0, atol=1e-3)


def test_where_there_is_nothing_to_solve():
    A, x = planted(torch.linspace(1, 50, 60)), torch.randn(60, 2).double()
    b = torch.stack([A @ x[:, 0], 0 * x[:, 1]], 1)
    found = cg(A, b, x0=x + 1)
    assert found.converged.all()
    assert not found.x[:, 1].any()
    assert found.iterations[1] == 0
    torch.testing.assert_close(found.x[:, 0], x[:, 0], rtol=0, atol=1e-6)
    tiny = cg(A, 1e-150 * b[:, 0], x0=x[:, 1])  # for which the start is far off
    assert tiny.converged
    torch.testing.assert_close(1e150 * tiny.x, x[:, 0], rtol=0, atol=1e-6)


def test_one_unknown():
    found = cg(torch.tensor([[4.0]]), torch.tensor([2.0]), max_iter=1)  # which is enough
    assert found.x.tolist() == [0.5]
    assert found.iterations == 1


def test_it_says_how_far_it_came():
    A, b = planted(torch.logspace(0, 8, 100)), torch.randn(100).double()
    message = r"5 iterations reached a relative residual of .*, for a tolerance of 1e-10"
    with pytest.warns(ConvergenceWarning, match=message):
        found = cg(A, b, tol=1e-10, max_iter=5)
    assert not found.converged
    torch.testing.assert_close(found.residuals[-1], (b - A @ found.x).norm())
    with pytest.warns(ConvergenceWarning):  # below what rounding allows: it gives up by itself
        assert not cg(A, b, tol=1e-17).converged


I, B = torch.eye(3), torch.ones(3)
ERRORS = [
    ((torch.diag(torch.tensor([1.0, 1.0, -1.0])), B), {}, r"op must be positive definite .*p\^H A"),
    ((-I, B), {}, r"op must be positive definite and finite, got p\^H A p = -1 in iteration 1"),
    ((0 * I, B), {}, "op must be positive definite"),
    ((I, B), {"preconditioner": -I}, "preconditioner must be positive definite .*= -1"),
    ((I + torch.ones(3, 3).triu(1), B), {}, "op must be symmetric"),
    ((I + 1e-3 * torch.ones(3, 3).triu(1), B), {"symmetry_tol": 1e-6}, "for symmetry_tol=1e-06"),
    ((I, B), {"symmetry_tol": -1.0}, "symmetry_tol must be >= 0, got -1.0"),
    ((torch.ones(2, 3), B), {}, "op must be square"),
    ((I, torch.ones(2)), {}, r"b must be \(3,\) or \(3, r\) .*, got shape \(2,\)"),
    ((I, B[0]), {}, r"b must be \(3,\) or \(3, r\) .*, got shape \(\)"),
    ((I, torch.ones(3, 1, 1)), {}, r"b must be \(3,\) or \(3, r\)"),
    ((I, B.double()), {}, "b must be .* torch.float32, got .* torch.float64"),
    ((I, B * math.nan), {}, "b must be finite, got nan"),
    ((I, B[:, None][:, :0]), {}, "b must not be empty"),
    ((I, B), {"x0": torch.ones(3, 1)}, "x0 and preconditioner must fit"),
    ((I, B), {"preconditioner": torch.eye(2)}, "x0 and preconditioner must fit"),
    (
        (LinearOperator((3, 3), lambda x: x * math.nan), B),
        {"symmetry_tol": math.inf},
        "op .*finite",
    ),
    ((I, B), {"tol": -1.0}, "tol must be > 0, got -1.0"),
    ((I, B), {"max_iter": 0}, "max_iter must be >= 1, got 0"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("arguments", "options", "message"), ERRORS)
def test_errors(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        cg(*arguments, **options)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    A, b = planted(torch.linspace(1, 50, 60)), torch.randn(60, 3).double()
    torch.testing.assert_close(cg(A.cuda(), b.cuda()).x.cpu(), cg(A, b).x, rtol=1e-6, atol=1e-8)
