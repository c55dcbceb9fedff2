"""Gradients of kernels in their hyperparameters and inputs, against differences."""

import numpy as np
import pytest
import torch

from tests.kernels.test_plain_kernels import ELL, ORDERS, composite
from vademecum.kernels import ArcCosineKernel, Kernel, LinearKernel, MaternKernel, RBFKernel


@pytest.mark.parametrize(
    "kernel",
    [RBFKernel(lengthscale=0.8), *(MaternKernel(nu=nu, lengthscale=1.3) for nu in ORDERS),
     RBFKernel(lengthscale=torch.tensor(ELL, dtype=torch.float64)),
     *(MaternKernel(nu=nu, lengthscale=torch.tensor(ELL, dtype=torch.float64)) for nu in ORDERS),
     LinearKernel(bias=2.0), 3.0 * LinearKernel(bias=2.0), composite()],
    ids=repr,
)  # fmt: skip
def test_weighted_gradients_by_differences(kernel):
    """Central differences in the logarithms; the weights have no symmetry."""
    x, W = torch.randn(12, 3, dtype=torch.float64), torch.randn(12, 12, dtype=torch.float64)
    x[1] = x[0]
    found = kernel.weighted_gradients(x, W)
    values = kernel.hyperparameters()
    assert list(found) == list(values)
    for name, h in values.items():
        h = torch.as_tensor(h, dtype=torch.float64)
        slopes = []
        for unit in torch.eye(h.numel(), dtype=torch.float64).view(-1, *h.shape):
            up, down = (kernel.replaced({name: h * (s * 1e-5 * unit).exp()})(x) for s in (1, -1))
            slopes.append(float(((up - down) * W).sum() / 2e-5))
        np.testing.assert_allclose(found[name].flatten(), slopes, rtol=2e-7, atol=2e-8)


def test_default_gradients_agree_with_closed_forms():
    x, W = torch.randn(12, 3, dtype=torch.float64), torch.randn(12, 12, dtype=torch.float64)
    kernel = composite()
    closed, automatic = kernel.weighted_gradients(x, W), Kernel._weighted_gradients(kernel, x, W)
    torch.testing.assert_close(closed, automatic)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("apart", [0.0, 1e3, 1e6])
@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_gradients_of_clusters_far_apart(dtype, apart, offset):
    """Against autograd through differences, in double precision; integers, which do not round."""
    x = torch.randint(-3, 4, (30, 2)).double() + offset
    x[15:] += apart
    W = torch.rand(30, 30, dtype=torch.float64).to(dtype)
    ell = torch.tensor([2.0, 4.0], dtype=dtype)
    for kernel in (RBFKernel(lengthscale=ell), MaternKernel(nu=2.5, lengthscale=ell)):
        found = kernel.weighted_gradients(x.to(dtype), W)["lengthscale"]
        wanted = Kernel._weighted_gradients(kernel, x - offset, W.double())["lengthscale"]
        tol = 1e-5 if dtype == torch.float32 else 1e-9
        torch.testing.assert_close(found.double(), wanted, rtol=tol, atol=0)


def test_values_far_from_the_origin_where_gradients_are_asked():
    """Moved before they are divided, inputs lose no digits."""
    x = (1e5 + torch.randint(-9, 10, (40, 3)) / 4).requires_grad_()
    for kernel in (RBFKernel(lengthscale=0.7), MaternKernel(nu=1.5, lengthscale=0.7)):
        torch.testing.assert_close(kernel(x).detach(), kernel(x.detach()), rtol=0, atol=1e-6)
    z = torch.tensor([[0.0], [1e30]], requires_grad=True)  # whose squares overflow
    for nu in ORDERS:
        K = MaternKernel(nu=nu)(z)
        (grad,) = torch.autograd.grad(K.sum(), z)
        assert (K.tolist(), grad.tolist()) == ([[1.0, 0.0], [0.0, 1.0]], [[0.0], [0.0]])


@pytest.mark.parametrize("order", [0, 1, 2])
def test_angles_have_all_digits_where_gradients_are_asked(order):
    """In single precision the arc cosine of an input with itself would be off by 1e-4."""
    x, kernel = torch.randn(300, 3), ArcCosineKernel(order=order)
    z = x + 1e-3 * torch.randn(300, 3)
    size = kernel.diagonal(x).sqrt()
    for other in (None, x.clone(), z, -z):
        found, plain = kernel(x.clone().requires_grad_(), other).detach(), kernel(x, other)
        gap = (found - plain) / size / size[:, None]
        assert float(gap.abs().max()) < 3e-6


@pytest.mark.parametrize(
    "kernel",
    [RBFKernel(), *(MaternKernel(nu=nu) for nu in ORDERS), LinearKernel(bias=2.0),
     *(ArcCosineKernel(order=order) for order in (0, 1, 2)), composite()],
    ids=repr,
)  # fmt: skip
def test_gradients_with_respect_to_inputs(kernel):
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    z = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(kernel, (x, z))
    torch.testing.assert_close(kernel(x, z).detach(), kernel(x.detach(), z.detach()))
    (grad,) = torch.autograd.grad(kernel(x).sum(), x)
    assert bool(torch.isfinite(grad).all())
