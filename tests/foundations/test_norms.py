"""The dual norm by SciPy's and torch's norms, by search, and by autograd."""

import inspect
import math

import numpy as np
import pytest
import torch

from vademecum.foundations.norms import dual_norm

POWERS = (1, 1.0 + 1e-9, 1.1, 1.5, 2, 3.0, 10.0, 1e9, math.inf)


def conjugate(p: float) -> float:
    return {1: math.inf, math.inf: 1.0}.get(p) or p / (p - 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", POWERS)
def test_value_and_maximiser(p, dtype):
    x = torch.randn(2, 5, 7, dtype=dtype) * torch.tensor([[1e-3], [1.0], [1.0], [10.0], [0.0]])
    x = x.to(dtype)
    x[0, 1, 2] = 0.0
    value, v = dual_norm(x, p)
    assert value.dtype == v.dtype == dtype
    q, rtol = conjugate(p), 1e-5 if dtype == torch.float32 else 1e-7 if 1 < p < 1.01 else 1e-12
    wide = x.double().numpy()
    top = abs(wide).max(-1)
    expected = top * np.linalg.norm(wide / np.where(top > 0, top, 1)[..., None], q, axis=-1)
    np.testing.assert_allclose(value.numpy(), expected, rtol=rtol)
    attained = (v * x).sum(-1)
    torch.testing.assert_close(attained, value, rtol=10 * rtol, atol=0.0)
    assert (torch.linalg.vector_norm(v.double(), p, dim=-1) <= 1 + 10 * rtol).all()


def test_by_hand():
    x = torch.tensor([1.0, -8.0], dtype=torch.float64)
    value, v = dual_norm(x, 4)  # q = 4 / 3
    assert float(value) == pytest.approx((1 + 16) ** 0.75)
    assert v.tolist() == pytest.approx([17**-0.25, -2 * 17**-0.25])
    assert dual_norm(torch.tensor([-2.0, 2.0]), 1).maximiser.tolist() == [-1.0, 0.0]
    for p in POWERS:
        assert dual_norm(torch.zeros(3), p).value == 0
        assert dual_norm(torch.zeros(3), p).maximiser.tolist() == [0, 0, 0]


@pytest.mark.parametrize("p", [1 + 1e-7, 1.001, 1.01, 1.1, 100.0])
def test_many_entries_of_nearly_equal_size(p):
    x = 1 + 1e-3 * torch.rand(1000)
    value, v = dual_norm(x, p)
    assert float(torch.linalg.vector_norm(v.double(), p)) == pytest.approx(1.0, rel=1e-6)
    assert float(v.double() @ x.double()) == pytest.approx(float(value), rel=3e-6)


@pytest.mark.parametrize("p", POWERS)
def test_nothing_in_the_ball_does_better(p):
    x, v = torch.randn(4, dtype=torch.float64), torch.randn(20_000, 4, dtype=torch.float64)
    v /= v.abs().amax(-1, keepdim=True)
    v /= torch.linalg.vector_norm(v, p, dim=-1, keepdim=True)
    best = float((v @ x).max())
    assert best <= float(dual_norm(x, p).value) * (1 + 1e-9)
    assert best >= float(dual_norm(x, p).value) * 0.8


@pytest.mark.parametrize("p", POWERS)
def test_extreme_sizes(p):
    for big in (1e-300, 1e300):
        x = big * torch.tensor([0.5, -1.0], dtype=torch.float64)
        value, v = dual_norm(x, p)
        small, same = dual_norm(x / big, p)
        assert float(value) == pytest.approx(big * float(small))
        torch.testing.assert_close(v, same)


@pytest.mark.parametrize("p", POWERS)
def test_gradient_is_the_maximiser(p):
    x = torch.tensor([[3.0, -1.0, 2.0], [0.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    value, v = dual_norm(x, p)
    value.sum().backward()
    torch.testing.assert_close(x.grad, v, rtol=1e-7, atol=1e-12)
    if 1.01 < p < 1e6:
        y = x.detach()[:1].requires_grad_()
        assert torch.autograd.gradgradcheck(lambda y: dual_norm(y, p).value, y)


X = torch.ones(2, 3)
ERRORS = [
    ((X, 0.5), "p must be >= 1, got 0.5"),
    ((X, math.nan), "p must be .*, got nan"),
    ((X, "2"), "p must be a number, got '2'"),
    ((X * math.nan, 2), "x must be finite, got nan"),
    ((X.long(), 2), "x must be floating point, got torch.int64"),
    ((X[:0], 2), "x must not be empty"),
    ((X[0, 0], 2), r"x must hold real vectors, got shape \(\)"),
    ((X + 1j, 2), "x must hold real vectors, got .* of torch.complex64"),
]


@pytest.mark.parametrize(("arguments", "message"), ERRORS)
def test_errors(arguments, message, unchecked):
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(dual_norm)(*arguments)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("p", POWERS)
def test_cuda(p):
    x = torch.randn(9, 5, dtype=torch.float64)
    for here, there in zip(dual_norm(x, p), dual_norm(x.cuda(), p), strict=True):
        torch.testing.assert_close(there.cpu(), here, rtol=1e-6, atol=1e-12)
