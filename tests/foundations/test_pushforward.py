"""Densities of transformed variables against torch's transforms and an explicit inverse."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import MultivariateNormal, Normal, TransformedDistribution, transforms

from vademecum.foundations.pushforward import pushforward_density

DTYPES = [torch.float32, torch.float64]


def standard(z: torch.Tensor) -> torch.Tensor:
    return Normal(0.0, 1.0).log_prob(z).sum(-1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "transform",
    [
        transforms.ExpTransform(),
        transforms.SigmoidTransform(),
        transforms.TanhTransform(),
        transforms.AffineTransform(1.0, -3.0),
        transforms.ComposeTransform([transforms.TanhTransform(), transforms.ExpTransform()]),
    ],
    ids=lambda t: type(t).__name__,
)
def test_against_transforms_of_torch(dtype, transform):
    z = torch.randn(50, 3, dtype=dtype)
    x, log_density = pushforward_density(standard, transform, z)
    assert x.dtype == log_density.dtype == dtype
    torch.testing.assert_close(x, transform(z))
    law = TransformedDistribution(Normal(torch.zeros(3, dtype=dtype), 1.0), transform)
    tol = 1e3 * torch.finfo(dtype).eps
    expected = law.log_prob(x).sum(-1)
    torch.testing.assert_close(log_density, expected, rtol=tol, atol=30 * tol)


def test_linear_maps_of_either_orientation():
    for sign in (1.0, -1.0):
        A = torch.tensor([[2.0, 1.0], [0.0, sign]])
        x, log_density = pushforward_density(standard, lambda z, A=A: A @ z + 1, torch.randn(20, 2))
        expected = MultivariateNormal(torch.ones(2), A @ A.T).log_prob(x)
        torch.testing.assert_close(log_density, expected)


def test_gradients_reach_the_parameters_of_the_map():
    shear = nn.Linear(2, 2, dtype=torch.float64)
    z = torch.randn(10, 2, dtype=torch.float64)
    _, log_density = pushforward_density(standard, shear, z)
    (slope,) = torch.autograd.grad(log_density.sum(), shear.weight)
    torch.testing.assert_close(slope, -10 * torch.linalg.inv(shear.weight).T)


Z = torch.ones(3, 2)
ERRORS = [
    ((standard, torch.exp, torch.ones(3)), "z must have 2 axes"),
    ((standard, torch.exp, Z.long()), "z must be floating point"),
    ((standard, torch.exp, Z * math.nan), "z must be finite"),
    ((standard, torch.exp, torch.zeros(0, 2)), "z must not be empty"),
    ((standard, torch.sum, Z), r"f must map shape \(2,\) to itself, got shape \(\)"),
    ((Normal(0.0, 1.0).log_prob, torch.exp, Z), r"log_density must give shape \(3,\), got .*3, 2"),
    (
        (standard, lambda z: z.sum() + 0 * z, Z),
        "must have an invertible Jacobian, got log .* -inf",
    ),
    (
        (standard, lambda z: (z - 1).sqrt(), Z),
        "must have an invertible Jacobian, got .* at row 0",
    ),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("arguments", "message"), ERRORS)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        pushforward_density(*arguments)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("dtype", DTYPES)
def test_cuda(dtype):
    z = torch.randn(20, 3, dtype=dtype)
    here = pushforward_density(standard, torch.exp, z)
    there = pushforward_density(standard, torch.exp, z.cuda())
    torch.testing.assert_close(there.log_density.cpu(), here.log_density)
