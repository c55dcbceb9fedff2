"""Gram matrices against products in double precision."""

import math

import pytest
import torch

from vademecum.arrays import gram


@pytest.fixture(params=[1, 3], ids=["one thread", "three threads"])
def _threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (1, 5), (7, 3), (3, 7), (20_005, 4)])
def test_equals_the_product(n, d, dtype):
    x = (torch.randn(n, d) + 1).to(dtype)
    eps = torch.finfo(torch.promote_types(dtype, torch.float32)).eps
    for centre in (False, True):
        mean, g = gram(x, centre=centre)
        wanted = x.double().mean(0) * centre
        z = x.double() - wanted
        assert g.dtype == mean.dtype == torch.float64
        assert torch.equal(g, g.mT)
        rounding = 8 * eps + n * torch.finfo(torch.float64).eps  # ours, and the reference's
        tol = rounding * x.double().square().sum(0).max().item()
        torch.testing.assert_close(mean, wanted, rtol=0, atol=90 * eps)  # root of a block's rows
        torch.testing.assert_close(g, z.mT @ z, rtol=0, atol=tol)


@pytest.mark.usefixtures("_threads")
def test_nothing_is_lost_to_cancellation_in_any_order():
    """Far from zero, and sorted so that blocks have quite different means."""
    x = torch.randint(-3, 4, (30_000, 5)).float()
    x = x[x[:, 0].argsort()] + 2.0**20
    z = x.double() - x.double().mean(0)
    mean, g = gram(x, centre=True)
    torch.testing.assert_close(mean, x.double().mean(0), rtol=1e-9, atol=0)
    torch.testing.assert_close(g, z.mT @ z, rtol=1e-6, atol=1e-6 * g.max().item())


@pytest.mark.parametrize("unit", [2.0**-80, 2.0**80, 2.0**-120])
@pytest.mark.parametrize("centre", [False, True])
def test_squares_out_of_the_range_of_single_precision(centre, unit):
    x = torch.randn(500, 4) + 1
    x[:, 3] = 7.0  # a constant
    for scale in (unit, torch.tensor([1.0, unit, 1.0, unit])):
        scaled = x * scale
        scale = torch.as_tensor(scale).double().expand(4)
        found, wanted = gram(scaled, centre=centre), gram(x.double(), centre=centre)
        matrix = found.matrix / scale / scale[:, None]
        torch.testing.assert_close(matrix, wanted.matrix, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found.mean / scale, wanted.mean)


@pytest.mark.parametrize("centre", [False, True])
def test_parts_stand_side_by_side(centre):
    x, y = torch.randn(50, 3), torch.randn(50, 1)
    together = gram(torch.cat([x, y], 1), centre=centre)
    apart = gram(x, y, centre=centre)
    torch.testing.assert_close(apart.matrix, together.matrix, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(apart.mean, together.mean, rtol=0, atol=1e-6)


def test_strides_and_gradients_do_not_matter():
    x = torch.randn(40, 30)
    product = x.double() @ x.double().mT
    torch.testing.assert_close(gram(x.mT).matrix, product, rtol=1e-5, atol=1e-5)
    thin = x[::2, ::3]
    found = gram(thin.clone().requires_grad_(), centre=True).matrix
    assert torch.equal(found, gram(thin, centre=True).matrix)


X = torch.ones(3, 2)
ERRORS = [
    ((), "parts must not be empty"),
    ((X[0],), "x must have 2 axes"),
    ((X[:0],), "x must not be empty"),
    ((X.long(),), "x must be floating point, got torch.int64"),
    ((X * 1j,), "x must be real, got torch.complex64"),
    ((X * math.nan,), "x must be finite, got nan"),
    ((X, X * math.inf), "x must be finite, got inf"),
    ((X.double() * 1e200,), "x must be smaller: its squares overflow torch.float64"),
    ((X.double(), X.double() * 1e-200), "x must be larger: the squares of column 2 underflow"),
    ((X, X[:2]), "parts must agree in rows, dtype and device"),
    ((X, X.double()), "parts must agree in rows, dtype and device"),
]


@pytest.mark.parametrize(("parts", "message"), ERRORS)
@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.usefixtures("unchecked")
def test_errors(parts, message, centre):
    if "overflow" in message and centre:
        parts = (parts[0] * torch.tensor([[1.0], [2.0], [3.0]]),)
    with pytest.raises(ValueError, match=message):
        gram(*parts, centre=centre)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("centre", [False, True])
def test_cuda(centre):
    x = torch.randn(10_000, 50) + 2
    found, wanted = gram(x.cuda(), centre=centre), gram(x, centre=centre)
    assert found.matrix.is_cuda
    assert found.mean.is_cuda
    torch.testing.assert_close(found.mean.cpu(), wanted.mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.matrix.cpu(), wanted.matrix, rtol=1e-5, atol=1e-1)
