"""Linear, Gaussian, Matern and arc-cosine kernels against scikit-learn's and against integrals."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate
from sklearn.gaussian_process import kernels as sk
from torch import Tensor

from vademecum.kernels import (
    ArcCosineKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    RBFKernel,
)

ELL = (0.5, 1.5, 3.0)
ORDERS = (0.5, 1.5, 2.5, math.inf)


def twins(ell: Any) -> list[tuple[Kernel, Any]]:
    """Our radial kernels and scikit-learn's."""
    mine: Any = ell if isinstance(ell, float) else torch.tensor(ell, dtype=torch.float64)
    return [
        (RBFKernel(lengthscale=mine), sk.RBF(ell)),
        *((MaternKernel(nu=nu, lengthscale=mine), sk.Matern(ell, nu=nu)) for nu in ORDERS),
    ]


@pytest.mark.parametrize("ell", [0.7, ELL])
@pytest.mark.parametrize(("offset", "spread"), [(0, 1), (1e8, 1), (0, 1e5), (-1e8, 1e3)])
def test_radial_kernels_are_those_of_scikit_learn(ell, offset, spread):
    x = torch.randn(600, 3, dtype=torch.float64) * spread + offset  # more than one block
    x[7], x[8] = x[3], x[4] + 2**-10
    z = torch.cat([x[:5], x[:5] + 0.25])
    X, Z = (x - offset).numpy(), (z - offset).numpy()  # scikit-learn divides first, which rounds
    tol = 1e-11 * max(1, spread / 1e4)
    for ours, theirs in twins(ell):
        K = ours(x)
        assert torch.equal(K, K.T), ours
        np.testing.assert_allclose(K.numpy(), theirs(X), atol=tol, rtol=0)
        np.testing.assert_allclose(ours(x, z).numpy(), theirs(X, Z), atol=tol, rtol=0)
        np.testing.assert_allclose(ours.diagonal(x).numpy(), theirs.diag(X), atol=0, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("offset", "spread"), [(0, 1), (1e8, 500), (0, 3e4), (0, 1e30)])
def test_lower_precision_loses_nothing_but_the_last_digits(dtype, offset, spread):
    """Against double precision at the inputs as they were rounded, also if squares overflow."""
    x = (torch.randn(90, 4, dtype=torch.float64) * spread + offset).to(dtype)
    x[1], x[2] = x[0], x[0] * (1 + 2**-6)
    tol = 1e-6 if dtype == torch.float32 else 2**-8
    X = x.double().numpy()
    for ours, theirs in twins(2.0 * max(spread, 1)):
        K = ours(x)
        assert K.dtype == dtype
        assert bool((K.diagonal() == 1).all())
        found = K.double().numpy()
        np.testing.assert_allclose(found, theirs(X), atol=tol, rtol=0)
    for ours, theirs in twins((0.5, 1.5, 3.0, 1.0)):
        np.testing.assert_allclose(ours(x).double().numpy(), theirs(X), atol=tol, rtol=0)


def test_near_inputs_of_the_kernel_with_a_cusp():
    """The distance itself must be right: 1 - k is 1e-9, which squares of 1e-18 cannot carry."""
    x = 30 + torch.randn(50, 6, dtype=torch.float64)
    z = x + 1e-9 / math.sqrt(6)
    found = 1 - MaternKernel(nu=0.5)(x, z).diagonal()
    exact = -torch.expm1(-torch.linalg.vector_norm(z - x, dim=1))
    torch.testing.assert_close(found, exact, atol=3e-13, rtol=0)
    assert float(exact.min()) > 5e-10


def test_many_near_inputs():
    x = torch.randn(40, 5, dtype=torch.float64) * 1e-7
    x[0] += 9.0
    found = 1 - MaternKernel(nu=0.5)(x[1:], x[1:] * 1.5)
    theirs: Any = sk.Matern(nu=0.5)
    near = x[1:].numpy()
    np.testing.assert_allclose(found.numpy(), 1 - theirs(near, near * 1.5), atol=1e-15)
    together = 1 - MaternKernel(nu=0.5)(x)[1:, 1:]
    np.testing.assert_allclose(together.numpy(), 1 - theirs(near), atol=3e-13)


def test_linear_kernel_is_that_of_scikit_learn():
    x, z = torch.randn(530, 4, dtype=torch.float64), torch.randn(7, 4, dtype=torch.float64)
    ours, theirs, X = LinearKernel(bias=2.25), sk.DotProduct(1.5), x.numpy()
    np.testing.assert_allclose(ours(x).numpy(), theirs(X), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(ours(x, z).numpy(), theirs(X, z.numpy()), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(ours.diagonal(x).numpy(), theirs.diag(X), rtol=1e-13)
    assert torch.equal(ours(x), ours(x).T)
    assert LinearKernel().hyperparameters() == {}


def expectation(order: int, x: Tensor, z: Tensor) -> float:
    """The mean over a Gaussian in the plane of both, over radius and direction."""
    a, b = float(x.norm()), float(z.norm())
    cosine = float(torch.nn.functional.cosine_similarity(x, z, dim=0))
    theta = math.acos(min(1.0, max(-1.0, cosine)))
    radius, _ = integrate.quad(lambda r: r ** (2 * order + 1) * math.exp(-r * r / 2), 0, 40)

    def directed(phi: float) -> float:
        return (a * math.cos(phi) * b * math.cos(phi - theta)) ** order

    angle, _ = integrate.quad(directed, theta - math.pi / 2, math.pi / 2, epsabs=1e-13)
    return radius * angle / (2 * math.pi)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_arc_cosine_kernel_is_the_expectation(order):
    x, z = torch.randn(4, 3, dtype=torch.float64), 2 * torch.randn(3, 3, dtype=torch.float64)
    kernel = ArcCosineKernel(order=order)
    wanted = [[expectation(order, a, b) for b in z] for a in x]
    np.testing.assert_allclose(kernel(x, z).numpy(), wanted, rtol=1e-10, atol=1e-12)
    big = torch.randn(520, 3, dtype=torch.float64)
    K = kernel(big)
    assert torch.equal(K, K.T)
    torch.testing.assert_close(K.diagonal(), kernel.diagonal(big), rtol=1e-14, atol=0)
    torch.testing.assert_close(kernel(big, big.clone()), K, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-15, 1.0, 1e15])
def test_arc_cosine_kernel_at_the_ends_of_the_range(dtype, scale):
    """The same input, the opposite one, a near one, and 0."""
    x = torch.randn(40, 5, dtype=dtype) * scale
    for order, moment in ((0, 0.5), (1, 0.5)):
        kernel, unit = ArcCosineKernel(order=order), x.double().norm(dim=1) ** (2 * order)
        tol: Any = {"rtol": 0, "atol": 3e-7 if dtype == torch.float32 else 1e-15}
        same = (kernel(x, x.clone()).diagonal().double() / unit, torch.full_like(unit, moment))
        torch.testing.assert_close(*same, **tol)
        opposite = kernel(x, -x).diagonal().double() / unit
        torch.testing.assert_close(opposite, torch.zeros_like(unit), **tol)
        torch.testing.assert_close(kernel.diagonal(x).double() / unit, same[1], **tol)
    zero = torch.zeros(2, 5, dtype=dtype)
    for order in (0, 1, 2):
        assert not ArcCosineKernel(order=order)(torch.cat([zero, x]))[:2].any()
        assert not ArcCosineKernel(order=order).diagonal(zero).any()
    turned = x.double().clone()
    turned[:, :2] = turned[:, :2] @ torch.tensor([[1, -1e-7], [1e-7, 1]]).double()
    gap = 0.5 - ArcCosineKernel(order=0)(x.double(), turned).diagonal()
    sine = (x.double()[:, 0] * turned[:, 1] - x.double()[:, 1] * turned[:, 0]).abs()
    angle = sine / x.double().square().sum(1)
    turned_by = torch.linalg.vector_norm(x[:, :2].double(), dim=1) / x.double().norm(dim=1) * 1e-7
    torch.testing.assert_close(gap, turned_by / (2 * math.pi), rtol=1e-5, atol=1e-15)
    assert bool((angle <= turned_by * 1.1).all())


def composite() -> Kernel:
    ell = torch.tensor(ELL, dtype=torch.float64)
    smooth = 2.0 * RBFKernel(lengthscale=ell) * (LinearKernel(bias=0.5) + ArcCosineKernel(order=1))
    return smooth + MaternKernel(nu=1.5, lengthscale=0.8) * 3 + 0.5 * MaternKernel(nu=0.5)


def test_sums_products_and_multiples():
    x, z = torch.randn(9, 3, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    X, Z = x.numpy(), z.numpy()
    arc = ArcCosineKernel(order=1)(x, z).numpy()
    ell: Any = ELL
    parts: list[Any] = [sk.RBF(ell), sk.DotProduct(math.sqrt(0.5)), sk.Matern(0.8, nu=1.5)]
    rbf, dot, once, never = (k(X, Z) for k in [*parts, sk.Matern(1.0, nu=0.5)])
    wanted = 2 * rbf * (dot + arc) + 3 * once + 0.5 * never
    kernel = composite()
    np.testing.assert_allclose(kernel(x, z).numpy(), wanted, rtol=1e-12)
    torch.testing.assert_close(kernel.diagonal(x), kernel(x).diagonal(), rtol=1e-12, atol=0)
    assert list(kernel.hyperparameters()) == [
        "0.0.scale", "0.0.lengthscale", "0.1.0.bias", "1.scale", "1.lengthscale",
        "2.scale", "2.lengthscale",
    ]  # fmt: skip
    assert repr(2 * (LinearKernel() + RBFKernel())) == (
        "2 * (LinearKernel(bias=0.0) + RBFKernel(lengthscale=1.0))"
    )
    assert repr((LinearKernel() + RBFKernel()) * MaternKernel()) == (
        "(LinearKernel(bias=0.0) + RBFKernel(lengthscale=1.0))"
        " * MaternKernel(nu=2.5, lengthscale=1.0)"
    )
    assert (3 * (2.0 * RBFKernel())).hyperparameters() == {"scale": 6.0, "lengthscale": 1.0}


class Fixed(Kernel):
    """A kernel of one's own, whose matrix is always the same tensor, with one number in it."""

    one = torch.ones(1, 1)

    def _matrix(self, x1: Tensor, x2: Tensor | None) -> Tensor:
        return self.one.expand(len(x1), len(x1 if x2 is None else x2))

    def _diagonal(self, x: Tensor) -> Tensor:
        return self.one[0].expand(len(x))


def test_multiples_leave_the_matrix_of_a_kernel_as_it_is():
    kernel, x = 3.0 * Fixed(), torch.zeros(2, 1)
    for _ in range(2):
        assert kernel(x).tolist() == [[3.0, 3.0], [3.0, 3.0]]
    assert float(Fixed.one) == 1
    assert repr(kernel + RBFKernel()) == "3.0 * Fixed() + RBFKernel(lengthscale=1.0)"


def test_replaced_hyperparameters():
    kernel = composite()
    other = kernel.replaced({"1.lengthscale": 0.3, "0.0.scale": 5.0})
    assert other.hyperparameters()["1.lengthscale"] == 0.3
    assert other.hyperparameters()["1.scale"] == 3
    assert kernel.hyperparameters()["0.0.scale"] == 2.0
    x = torch.randn(5, 3, dtype=torch.float64)
    moved = other(x) - kernel(x)
    parts = 3 * (
        MaternKernel(nu=1.5, lengthscale=0.3)(x) - MaternKernel(nu=1.5, lengthscale=0.8)(x)
    )
    smooth = RBFKernel(lengthscale=torch.tensor(ELL))(x)
    parts = parts + 3 * smooth * (LinearKernel(bias=0.5)(x) + ArcCosineKernel()(x))
    torch.testing.assert_close(moved, parts)
    assert kernel.replaced({}) is kernel


X = torch.ones(2, 3)
NAN = torch.tensor([[1.0, math.nan, 1.0]])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RBFKernel(lengthscale=0.0), "lengthscale must be > 0, got 0.0"),
        (lambda: RBFKernel(lengthscale=math.inf), "lengthscale must be finite, got inf"),
        (lambda: RBFKernel(lengthscale=torch.tensor([1.0, -2.0])),
         "lengthscale must be a finite number > 0, got -2.0"),
        (lambda: RBFKernel(lengthscale=torch.ones(2, 2)),
         r"lengthscale must be a number or one for each feature, got torch.float32 of \(2, 2\)"),
        (lambda: RBFKernel(lengthscale=torch.ones(2))(X),
         "lengthscale must have one entry for each of 3 features, got 2"),
        (lambda: MaternKernel(nu=2.0), "nu must be 0.5, 1.5, 2.5 or inf, got 2.0"),
        (lambda: ArcCosineKernel(order=3), "order must be <= 2, got 3"),
        (lambda: LinearKernel(bias=-1.0), "bias must be >= 0, got -1.0"),
        (lambda: -1.0 * RBFKernel(), "scale must be > 0, got -1.0"),
        (lambda: RBFKernel()(X, torch.ones(2, 4)),
         r"x2 must hold inputs of shape \(3,\) as x1 does, got \(4,\)"),
        (lambda: RBFKernel()(X, X.double()), "x2 must be torch.float32 as x1 is, got torch.float6"),
        (lambda: LinearKernel()(X, X.to("meta")), "x2 must hold numbers, got a tensor on the dev"),
        (lambda: MaternKernel()(NAN), r"x1 must be finite, got nan at \(0, 1\)"),
        (lambda: MaternKernel().diagonal(NAN), r"x must be finite, got nan at \(0, 1\)"),
        (lambda: ArcCosineKernel()(X.long()), "x1 must be floating point, got torch.int64"),
        (lambda: ArcCosineKernel()(X[0]), r"x1 must have 2 axes, inputs and features, got \(3,\)"),
        (lambda: LinearKernel()(torch.tensor(1.0)), "x1 must have inputs along its first axis"),
        (lambda: RBFKernel()(X[:0]), r"x1 must not be empty, got shape \(0, 3\)"),
        (lambda: RBFKernel().replaced({"scale": 1.0}),
         r"values must name hyperparameters \(lengthscale\), got 'scale'"),
        (lambda: RBFKernel().weighted_gradients(X, X),
         r"weights must be 2 x 2, a number for each pair, got shape \(2, 3\)"),
        (lambda: RBFKernel().weighted_gradients(X, X[:, :2].double()),
         "weights must be torch.float32 as x is, got torch.float64"),
        (lambda: RBFKernel()(X + 1j), "x1 must be real, got torch.complex64"),
        (lambda: LinearKernel().diagonal(X * 1j), "x must be real, got torch.complex64"),
    ],
)  # fmt: skip
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_what_does_not_combine():
    for make in (lambda: RBFKernel() + 1, lambda: RBFKernel() * "a", lambda: True * RBFKernel()):
        with pytest.raises(TypeError):
            make()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kernels_on_a_gpu(dtype):
    x = torch.randn(700, 3, dtype=dtype) * 20
    off = 1e-5 if dtype == torch.float32 else 1e-11
    kernels = [*(k for k, _ in twins(ELL)), *(k for k, _ in twins(0.7)), LinearKernel(bias=1.0),
               *(ArcCosineKernel(order=n) for n in (0, 1, 2)), composite()]  # fmt: skip
    for kernel in kernels:
        found, diagonal = kernel(x.cuda()), kernel.diagonal(x)
        assert found.is_cuda
        size = diagonal.sqrt()[:, None]  # sums of products round by it, however small they are
        close = partial(torch.testing.assert_close, rtol=0, atol=off)
        close(found.cpu() / size / size.T, kernel(x) / size / size.T)
        some = kernel(x.cuda(), x[:9].cuda()).cpu()
        close(some / size / size[:9].T, kernel(x, x[:9]) / size / size[:9].T)
        torch.testing.assert_close(kernel.diagonal(x.cuda()).cpu(), diagonal, rtol=off, atol=0)
    with pytest.raises(ValueError, match="x2 must be on cuda:0 as x1 is, got cpu"):
        RBFKernel()(x.cuda(), x)
