"""Operators against the matrices that they stand for."""

import math
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
import torch

from vademecum.foundations._probes import insist_on_symmetry, random_block, square_operator
from vademecum.foundations.operators import LinearOperator, aslinearoperator

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]


def operator(A):
    """An operator that knows its matrix only inside its functions."""
    return LinearOperator(tuple(A.shape), lambda x: A @ x, lambda y: A.mH @ y, dtype=A.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_linear_operator_algebra_is_that_of_matrices(dtype):
    A, B, C = (torch.randn(s, dtype=dtype) for s in ((4, 3), (4, 3), (3, 5)))
    a, b, c = map(operator, (A, B, C))
    c2 = 2 - 1j if dtype.is_complex else 2.0
    for op, dense in [
        (a + b, A + B),
        (a - b, A - B),
        (-a, -A),
        (a * c2, A * c2),
        (c2 * a, A * c2),
        (np.float64(3.0) * a, 3 * A),
        (a / 4, A / 4),
        (a @ c, A @ C),
        (2 * (a - B) @ c, 2 * (A - B) @ C),
        (B - a, B - A),
        (B + a, B + A),
    ]:
        x, y = torch.randn(op.shape[1], 2, dtype=dtype), torch.randn(op.shape[0], dtype=dtype)
        torch.testing.assert_close(op.dense(), dense)
        torch.testing.assert_close(op @ x, dense @ x)
        torch.testing.assert_close(op @ x[:, 0], dense @ x[:, 0])
        torch.testing.assert_close(op.T @ y, dense.T @ y)
        torch.testing.assert_close(op.H @ y, dense.mH @ y)
        torch.testing.assert_close(op.H.T.dense(), dense.conj())
        torch.testing.assert_close(op.T.T.H.dense(), dense.mH)
        torch.testing.assert_close(y @ op, y @ dense)
        torch.testing.assert_close(y[None] @ op, y[None] @ dense)


def test_real_operators_and_complex_numbers():
    A, x = torch.randn(3, 2).double(), torch.randn(2, dtype=torch.complex128)
    Z = torch.randn(3, 2, dtype=torch.complex128)
    torch.testing.assert_close(operator(A) @ x, A.to(x.dtype) @ x)
    torch.testing.assert_close((operator(A) + operator(Z)) @ x, (A + Z) @ x)
    scaled = operator(A) * 1j
    assert scaled.dtype == torch.complex128
    torch.testing.assert_close(scaled.H.dense(), -1j * A.T)
    torch.testing.assert_close(operator(Z) @ x.real, Z @ x.real.to(Z.dtype))


@pytest.mark.filterwarnings("ignore:Sparse")  # CSR is in beta, and invariants are not checked
@pytest.mark.parametrize("dtype", DTYPES)
def test_aslinearoperator_takes_all_kinds_of_matrices(dtype):
    A = torch.randn(4, 3, dtype=dtype)
    A[1] = 0
    kinds = [
        A,
        A.numpy(),
        A.to_sparse(),
        A.to_sparse_csr(),
        A.to_sparse_csc(),
        scipy.sparse.csr_array(A.numpy()),
        scipy.sparse.linalg.aslinearoperator(A.numpy()),
        operator(A).scipy(),
        operator(A),
    ]
    for kind in kinds:
        op = aslinearoperator(kind)
        assert op.dtype == dtype
        torch.testing.assert_close(op.dense(), A)
        torch.testing.assert_close(op.H.dense(), A.mH.contiguous())
        torch.testing.assert_close(op.T.dense(), A.T.contiguous())
    twice = torch.sparse_coo_tensor(
        torch.tensor([[0, 0], [1, 1]]), torch.ones(2, dtype=dtype), (2, 2)
    )
    assert aslinearoperator(twice).dense().real.tolist() == [[0, 2], [0, 0]]


def test_arrays_that_torch_does_not_take():
    A = np.arange(6.0).reshape(2, 3)
    fixed = A.copy()
    fixed.flags.writeable = False
    for array in (A[::-1], A[:, ::-1], A.T, fixed):
        op = aslinearoperator(array)
        np.testing.assert_array_equal(op.dense().numpy(), array)
        np.testing.assert_array_equal(operator(op.dense().T).scipy() @ array, array.T @ array)
    made: Any = scipy.sparse.linalg.LinearOperator
    flip = made((3, 3), matvec=lambda x: x[::-1], matmat=lambda x: x[::-1], dtype=float)
    np.testing.assert_array_equal(aslinearoperator(flip).dense(), np.eye(3)[::-1])


def test_tensors_that_numpy_does_not_take():
    A, x = torch.randn(4, 3).double(), torch.randn(3, dtype=torch.complex128).conj()
    op = aslinearoperator(scipy.sparse.csr_array(A.numpy()))
    torch.testing.assert_close(op @ x, A.to(x.dtype) @ x)
    torch.testing.assert_close(op @ x.imag, A @ x.imag)  # a view that is a negative
    found = operator(A) @ x.imag.numpy(force=True)
    np.testing.assert_allclose(found, (A @ x.imag).numpy(force=True))


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_give_arrays(dtype):
    A, x = torch.randn(4, 3, dtype=dtype), torch.randn(3, 2, dtype=dtype).numpy()
    y = torch.randn(2, 4, dtype=dtype).numpy()
    op = operator(A.clone().requires_grad_())
    for found, wanted in [
        (op @ x, A.numpy() @ x),
        (op @ x[:, 0], A.numpy() @ x[:, 0]),
        (op @ x[::-1], A.numpy() @ x[::-1]),
        (y @ op, y @ A.numpy()),
        (y[0] @ op, y[0] @ A.numpy()),
    ]:
        assert type(found) is np.ndarray
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


class WithoutDtype(scipy.sparse.linalg.LinearOperator):
    def __init__(self, A):
        self.A = A
        super().__init__(None, A.shape)

    def _matvec(self, x):
        return self.A @ x

    def _rmatvec(self, x):
        return self.A.conj().T @ x


@pytest.mark.parametrize("dtype", DTYPES)
def test_scipy_operators_that_state_no_dtype(dtype):
    A = torch.randn(4, 3, dtype=dtype).numpy()
    op = aslinearoperator(WithoutDtype(A))
    assert op.dtype == (torch.complex128 if dtype.is_complex else torch.float64)
    np.testing.assert_allclose(op.dense(), A, rtol=1e-6)
    np.testing.assert_allclose(op.H.dense(), A.conj().T, rtol=1e-6)
    tried = scipy.sparse.linalg.LinearOperator(A.shape, lambda x: A @ x)  # which SciPy does
    np.testing.assert_allclose(aslinearoperator(tried).dense(), A, rtol=1e-6)
    whole = scipy.sparse.linalg.LinearOperator((3, 3), lambda x: 2 * x)
    assert aslinearoperator(whole).dense().tolist() == (2 * np.eye(3)).tolist()


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("dtype", DTYPES)
def test_operators_of_matrices_can_be_pickled(dtype):
    A = torch.randn(3, 3, dtype=dtype)
    kinds = [A, A.numpy(), A.to_sparse(), A.to_sparse_csr(), scipy.sparse.csr_array(A.numpy())]
    for kind in [*kinds, scipy.sparse.linalg.aslinearoperator(A.numpy())]:
        op = aslinearoperator(kind)
        for made in (op, op.H, op.T, 2 * op - A, op @ op.H / 3, -op + op):
            again = pickle.loads(pickle.dumps(made))
            torch.testing.assert_close(again.dense(), made.dense(), rtol=0, atol=0)
            torch.testing.assert_close(again.H.dense(), made.H.dense(), rtol=0, atol=0)
            peer = pickle.loads(pickle.dumps(made.scipy()))
            x = torch.randn(3, 2, dtype=dtype).numpy()
            np.testing.assert_array_equal(peer @ x, made @ x)


def test_scipy_gets_all_four_products():
    A = torch.randn(4, 3, dtype=torch.complex128)
    peer = operator(A).scipy()
    x, y = torch.randn(3, 2, dtype=A.dtype).numpy(), torch.randn(4, 2, dtype=A.dtype).numpy()
    np.testing.assert_allclose(peer @ x, A.numpy() @ x)
    np.testing.assert_allclose(peer @ x[:, 0], A.numpy() @ x[:, 0])
    np.testing.assert_allclose(peer.H @ y, A.numpy().conj().T @ y)
    np.testing.assert_allclose(peer.rmatvec(y[:, 0]), A.numpy().conj().T @ y[:, 0])


def test_gradients_flow_through():
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    op = LinearOperator((2, 2), lambda x: w[:, None] * x, lambda x: w[:, None] * x)
    (op @ (op @ torch.tensor([3.0, 1.0]))).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [6.0, 4.0]  # of 3 w_1^2 + w_2^2


def test_random_blocks():
    op = operator(torch.eye(400, dtype=torch.complex64))
    first = random_block(op, 50, torch.Generator().manual_seed(1))
    assert first.equal(random_block(op, 50, torch.Generator().manual_seed(1)))
    torch.testing.assert_close((first.mH @ first / 400), torch.eye(50) + 0j, rtol=0, atol=0.3)
    signs = random_block(op, 50, torch.Generator().manual_seed(1), signs=True)
    assert signs.real.unique().tolist() == [-1.0, 1.0]
    state = torch.get_rng_state()
    random_block(op, 3, torch.Generator())
    assert state.equal(torch.get_rng_state())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 50, 400])
def test_symmetry_is_seen_and_so_is_its_absence(dtype, n):
    B = torch.randn(n, n, dtype=dtype)
    x = torch.randn(n, 2, dtype=dtype)
    insist_on_symmetry(x, (B + B.mH) @ x)
    insist_on_symmetry(x, torch.zeros_like(B) @ x)
    if n == 1 and not dtype.is_complex:
        return
    skew = torch.full((n, n), 0.3j) if dtype.is_complex else torch.ones(n, n).triu(1)
    B = B + B.mH + skew.to(dtype)
    with pytest.raises(ValueError, match=r"op must be symmetric .*, got <u, A v> - <A u, v> ="):
        insist_on_symmetry(x, B @ x)


def test_the_asymmetry_is_measured():
    n, share = 2000, 1e-3
    B, C = torch.randn(2, n, n).double()
    B, C = (B + B.T) / 2**0.5, (C - C.T) / 2**0.5  # of equal Frobenius norm n
    x = torch.randn(n, 2, dtype=torch.float64)
    with pytest.raises(
        ValueError, match=r"a relative asymmetry of .*, for symmetry_tol=1e-07"
    ) as e:
        insist_on_symmetry(x, (B + share / 2 * C) @ x, tol=1e-7)  # A - A^T = share * C
    found = float(str(e.value).partition("asymmetry of ")[2].partition(",")[0])
    assert 0 < found < 6 * share  # share times a standard normal number
    insist_on_symmetry(x, (B + share / 2 * C) @ x, tol=6 * share)
    insist_on_symmetry(x, C @ x, tol=math.inf)
    with pytest.raises(ValueError, match=r"op must be symmetric .* finite"):
        insist_on_symmetry(x, math.nan * C @ x, tol=math.inf)


A: Any = torch.ones(2, 3)
X: Any = torch.ones(3)
FLAT: Any = (2,)
OP = aslinearoperator(A)
ERRORS = [
    (lambda: aslinearoperator("A"), "A must be a matrix or an operator, got str"),
    (lambda: aslinearoperator(X), r"A must have 2 axes, got shape \(3,\)"),
    (lambda: aslinearoperator(A.long()), "A must be floating point, got torch.int64"),
    (lambda: aslinearoperator(np.eye(2, dtype=int)), "A must be floating point, got torch.int64"),
    (lambda: aslinearoperator(A * math.nan), "A must be finite, got nan"),
    (lambda: aslinearoperator(A.to_sparse() * math.inf), "A must be finite, got inf"),
    (lambda: aslinearoperator(A[:0]), "A must not be empty"),
    (lambda: LinearOperator(FLAT, lambda x: x), r"shape must be \(m, n\), got \(2,\)"),
    (lambda: LinearOperator((2, 0), lambda x: x), r"shape\[1\] must be >= 1, got 0"),
    (lambda: LinearOperator((2, 2), lambda x: x, dtype=torch.int64), "dtype must be floating"),
    (lambda: LinearOperator((2, 2), lambda x: x).H, "the operator has no adjoint"),
    (lambda: LinearOperator((2, 3), lambda x: x) @ X, r"must return a block of shape \(2, 1\)"),
    (lambda: LinearOperator((3, 3), lambda x: x.double()) @ X, "and dtype torch.float32, got .*64"),
    (lambda: OP @ torch.ones(2), r"x must have 3 rows, got shape \(2, 1\)"),
    (lambda: OP @ torch.ones(3, 1, 1), r"x must have 3 rows, got shape \(3, 1, 1\)"),
    (lambda: OP @ X.double().numpy(), "x must be of dtype torch.float32, got torch.float64"),
    (lambda: OP @ np.ones(3, int), "x must be of dtype torch.float32, got torch.int64"),
    (lambda: OP @ np.ones((2, 2), "f"), r"x must have 3 rows, got shape \(2, 2\)"),
    (lambda: OP @ X.double(), "x must be of dtype torch.float32, got torch.float64"),
    (lambda: OP @ X.to("meta"), "x must be on cpu, got one on meta"),
    (lambda: OP @ OP, r"the shapes must match, got \(2, 3\) and \(2, 3\)"),
    (lambda: OP + OP.T, r"the shapes must be equal, got \(2, 3\) and \(3, 2\)"),
    (lambda: OP + A.double(), "precisions must be equal, got torch.float32 and torch.float64"),
    (lambda: OP + LinearOperator((2, 3), lambda x: x, device="meta"), "devices must be equal"),
    (lambda: X * OP, "the factor must be a finite number"),
    (lambda: math.inf * OP, "the factor must be a finite number, got inf"),
    (lambda: square_operator("op", A), r"op must be square, got shape \(2, 3\)"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    A = torch.randn(4, 3, dtype=torch.complex128)
    op = aslinearoperator(A.cuda())
    x = random_block(op, 2, torch.Generator().manual_seed(0))
    assert x.is_cuda
    torch.testing.assert_close((2 * op.T.H @ x).cpu(), 2 * A.conj() @ x.cpu())
    np.testing.assert_allclose(op.scipy() @ x.cpu().numpy(), A.numpy() @ x.cpu().numpy())
    with pytest.raises(ValueError, match="x must be on cuda"):
        _ = op @ x.cpu()
