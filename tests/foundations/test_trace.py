"""Stochastic traces and diagonals: exact cases, leave-one-out by loops, means, standard errors."""

import math

import pytest
import torch

from vademecum.foundations._probes import random_block
from vademecum.foundations.operators import LinearOperator, aslinearoperator
from vademecum.foundations.stochastic_trace import diagonal, trace

METHODS = ["xtrace", "hutch++", "hutchinson"]
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]


def decaying(n, dtype=torch.float64):
    """A matrix that is not symmetric, with singular values that fall geometrically."""
    U, V = (torch.linalg.qr(torch.randn(n, n, dtype=dtype)).Q for _ in range(2))
    return (U * 0.7 ** torch.arange(n)) @ (U + 0.3 * V).mH


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 9])
def test_exact_if_n_products_are_allowed(n, dtype, method):
    A = torch.randn(n, n, dtype=dtype)
    found = trace(A, method=method, applications=9)
    torch.testing.assert_close(found.value, A.trace())
    assert found.standard_error == 0
    assert found.applications == n
    parts = diagonal(A, applications=9)
    torch.testing.assert_close(parts.value, A.diagonal())
    assert (parts.standard_error == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rank", [0, 1, 3])
@pytest.mark.parametrize("method", ["xtrace", "hutch++"])
def test_exact_for_low_rank(method, rank, dtype):
    A = torch.randn(50, rank, dtype=dtype) @ torch.randn(rank, 50, dtype=dtype)
    found = trace(A, method=method, applications=18)
    size = float(torch.linalg.matrix_norm(A)) * 50 * torch.finfo(dtype).eps
    assert abs(complex(found.value - A.trace())) <= 20 * size
    assert float(found.standard_error) <= 20 * size


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_xtrace_is_its_definition(dtype):
    A, n, m = decaying(30, dtype), 30, 6
    found = trace(A, applications=2 * m, generator=torch.Generator().manual_seed(5))
    omega = random_block(aslinearoperator(A), m, torch.Generator().manual_seed(5))
    estimates = []
    for i in range(m):
        Q = torch.linalg.qr(A @ omega[:, [j for j in range(m) if j != i]]).Q
        x = omega[:, i] - Q @ (Q.mH @ omega[:, i])
        scale = (n - m + 1) / x.norm() ** 2
        estimates.append((Q.mH @ A @ Q).trace() + scale * torch.vdot(x, A @ x))
    samples = torch.stack(estimates)
    torch.testing.assert_close(found.value, samples.mean())
    torch.testing.assert_close(found.standard_error, samples.std() / m**0.5)
    assert found.applications == 2 * m


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_mean_and_standard_error(method, dtype):
    A = decaying(40, dtype)
    runs = [trace(A, method=method, applications=18) for _ in range(400)]
    values = torch.stack([r.value for r in runs])
    spread = values.std()
    assert abs(complex(values.mean() - A.trace())) <= 5 * float(spread) / 20
    told = torch.stack([r.standard_error for r in runs]).square().mean().sqrt()
    assert 0.5 < told / spread < 2


@pytest.mark.parametrize("scale", [1e-30, 1e30])
@pytest.mark.parametrize("method", METHODS)
def test_scales_whose_squares_leave_the_range(method, scale):
    A = decaying(40, torch.float32)
    one, other = (
        trace(x, method=method, applications=18, generator=torch.Generator().manual_seed(0))
        for x in (A, scale * A)
    )
    torch.testing.assert_close(other.value.double() / scale, one.value.double(), rtol=1e-4, atol=0)
    error = other.standard_error.double() / scale
    torch.testing.assert_close(error, one.standard_error.double(), rtol=1e-3, atol=0)


def test_the_better_methods_are_better():
    A = decaying(60)
    errors = {
        method: math.sqrt(sum(
            float(trace(A, method=method, applications=30).value - A.trace()) ** 2
            for _ in range(30)
        ) / 30)
        for method in METHODS
    }  # fmt: skip
    assert errors["xtrace"] < errors["hutch++"] / 2 < errors["hutchinson"] / 10


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_diagonal(dtype):
    A = torch.randn(20, 20, dtype=dtype)
    samples = torch.stack([diagonal(A, applications=10).value for _ in range(400)])
    error = samples.std(0) / 20
    assert ((samples.mean(0) - A.diagonal()).abs() <= 5 * error).all()
    one = diagonal(A, applications=19)
    rows = (A.abs() ** 2).sum(1) - A.diagonal().abs() ** 2
    torch.testing.assert_close(one.standard_error, (rows / 19).sqrt(), rtol=0.7, atol=0)
    torch.testing.assert_close(diagonal(A.diag().diag(), applications=2).value, A.diagonal())


def test_hutchinson_by_hand():
    A = torch.tensor([[1.0, 2.0, 0.0], [2.0, 5.0, 0.0], [0.0, 0.0, 3.0]])
    found = trace(A, method="hutchinson", applications=2)
    assert float(found.value) in (5.0, 9.0, 13.0)  # 9 + 4 s with the sign s of the product
    assert float(found.standard_error) in (0.0, 4.0)


def test_seeds_and_blocks():
    calls = []
    A = decaying(50)

    def matvec(x):
        calls.append(x.shape[1])
        return A @ x

    op, state = LinearOperator((50, 50), matvec, dtype=A.dtype), torch.get_rng_state()
    for method, blocks in (("xtrace", [8, 8]), ("hutch++", [5, 10]), ("hutchinson", [17])):
        calls.clear()
        one, two = (
            trace(op, method=method, applications=17, generator=torch.Generator().manual_seed(1))
            for _ in range(2)
        )
        assert one.value == two.value
        assert calls == blocks * 2
        assert one.applications == sum(blocks)
    assert state.equal(torch.get_rng_state())


ERRORS = [
    (trace, (torch.ones(2, 3),), {}, "op must be square"),
    (trace, (torch.eye(9),), {"method": "exact"}, "method must be one of 'xtrace'"),
    (trace, (torch.eye(9),), {"applications": 3}, "applications must be >= 4, got 3"),
    (
        trace,
        (torch.eye(9),),
        {"applications": 5, "method": "hutch++"},
        "applications must be >= 6, got 5",
    ),
    (
        trace,
        (torch.eye(9),),
        {"applications": 1, "method": "hutchinson"},
        "applications must be >= 2, got 1",
    ),
    (
        trace,
        (torch.eye(9).half(),),
        {"applications": 4},
        "op must be in single or double precision",
    ),
    (diagonal, (torch.eye(9),), {"applications": 1}, "applications must be >= 2, got 1"),
    (diagonal, (torch.ones(2, 3),), {}, "op must be square"),
    (trace, (LinearOperator((99, 99), lambda x: x * math.nan),), {}, "op must return finite"),
    (
        diagonal,
        (LinearOperator((9, 9), lambda x: x * math.nan),),
        {"applications": 3},
        "op must return finite numbers",
    ),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("function", "arguments", "options", "message"), ERRORS)
def test_errors(function, arguments, options, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments, **options)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("method", METHODS)
def test_cuda(method):
    A = decaying(50)
    here, there = (
        trace(x, applications=18, method=method, generator=torch.Generator().manual_seed(0))
        for x in (A, A.cuda())
    )
    torch.testing.assert_close(there.value.cpu(), here.value)
    torch.testing.assert_close(there.standard_error.cpu(), here.standard_error)
