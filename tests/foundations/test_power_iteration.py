"""Power iteration against dense decompositions."""

import math

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from vademecum.foundations.operators import LinearOperator
from vademecum.foundations.power_method import power_iteration


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128])
@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (3, 5), (6, 6)])
def test_largest_singular_value(dtype, shape):
    J = torch.randn(shape, dtype=dtype)
    found = power_iteration(J, max_iter=20_000)
    U, sigma, Vh = torch.linalg.svd(J)
    tol = torch.finfo(dtype).eps ** 0.5
    assert found.converged
    torch.testing.assert_close(found.value, sigma[0], rtol=tol, atol=0)
    torch.testing.assert_close((Vh[0] @ found.v).abs(), torch.ones_like(sigma[0]), rtol=tol, atol=0)
    torch.testing.assert_close(J @ found.v, found.value * found.u)
    torch.testing.assert_close(
        found.residual, (J.mH @ found.u - found.value * found.v).norm(), rtol=0.01, atol=1e-6
    )
    assert (found.history.diff() >= -1e-6).all()
    assert U.shape[0] == len(found.u)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_dominant_eigenvalue_with_its_sign(dtype):
    B = torch.randn(6, 6, dtype=dtype)
    A = B @ torch.diag(torch.tensor([1.0, -3.0, 2.0, 0.5, 0.0, 1.0])).to(dtype)
    A = A @ torch.linalg.inv(B)  # not symmetric
    found = power_iteration(A, kind="eigenvalue", tol=1e-10)
    torch.testing.assert_close(found.value, torch.tensor(-3.0).to(dtype))
    torch.testing.assert_close(A @ found.v, -3 * found.v)


def test_zero_and_rank_one():
    assert power_iteration(torch.zeros(3, 2)).value == 0
    assert power_iteration(torch.zeros(3, 2)).converged
    J = torch.outer(torch.tensor([3.0, 4.0]), torch.tensor([1.0, 0.0, 0.0]))
    assert power_iteration(J).value == pytest.approx(5.0)


@pytest.mark.parametrize("scale", [1e-36, 1e-25, 1e25, 1e36])
def test_scales_whose_squares_leave_the_range(scale):
    J = scale * torch.diag(torch.tensor([1.0, -2.0, 0.5]))
    for kind, expected in (("singular", 2.0), ("eigenvalue", -2.0)):
        found = power_iteration(J, kind=kind)
        assert found.converged
        assert float(found.value) / scale == pytest.approx(expected, rel=1e-5)


def test_a_number_of_rounds():
    J, v = torch.diag(torch.tensor([1.0, 0.8])).double(), torch.tensor([3.0, 4.0]).double()
    found = power_iteration(J, v0=v, tol=0, max_iter=7)
    assert float(found.v[1] / found.v[0]) == pytest.approx(4 / 3 * 0.64**7)
    assert len(found.history) == 8
    assert float(found.history[0]) == pytest.approx(math.hypot(3, 3.2) / 5)


def test_it_says_how_far_it_came():
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    with pytest.warns(ConvergenceWarning, match=r"max_iter=9 iterations reached a relative"):
        assert not power_iteration(turn, kind="eigenvalue", max_iter=9).converged
    with pytest.warns(ConvergenceWarning, match=r"for a tolerance of 1e-06"):
        power_iteration(torch.diag(torch.tensor([1.0, 0.999])), tol=1e-6, max_iter=3)


def test_seeds():
    J, state = torch.randn(5, 4), torch.get_rng_state()
    one, two = (
        power_iteration(J, tol=0, max_iter=2, generator=torch.Generator().manual_seed(1)).v
        for _ in range(2)
    )
    assert one.equal(two)
    assert state.equal(torch.get_rng_state())


J = torch.ones(2, 3)
ERRORS = [
    ((J,), {"kind": "eigenvalue"}, "op must be square"),
    ((J,), {"kind": "values"}, "kind must be one of 'singular', 'eigenvalue'"),
    ((J,), {"tol": -1.0}, "tol must be >= 0"),
    ((J,), {"max_iter": 0}, "max_iter must be >= 1"),
    ((J,), {"v0": torch.ones(2)}, "x must have 3 rows"),
    ((J,), {"v0": torch.zeros(3)}, "v0 must not be zero, got 3 zeros"),
    ((J,), {"v0": torch.ones(3, 1)}, "v0 must have 1 axes"),
    ((J,), {"v0": torch.tensor([1.0, math.nan, 0.0])}, "v0 must be finite"),
    ((LinearOperator((2, 3), lambda x: x[:2]),), {}, "the operator has no adjoint"),
    ((LinearOperator((3, 3), lambda x: x * math.inf, lambda x: x),), {}, "must return finite"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("arguments", "options", "message"), ERRORS)
def test_errors(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        power_iteration(*arguments, **options)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    J = torch.randn(20, 30).double()
    found = power_iteration(J.cuda(), generator=torch.Generator().manual_seed(0))
    here = power_iteration(J, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(found.value.cpu(), here.value)
