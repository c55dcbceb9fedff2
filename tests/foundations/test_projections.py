"""Projections against support functions (a certificate of optimality), sorting, and autograd."""

import inspect
import math
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from vademecum.foundations.projections import project

SETS: Any = ("l1", "l2", "linf", "simplex")
RADII = (0.0, 0.3, 1.0, 25.0)


def norm(x: Tensor, onto: str) -> Tensor:
    order = {"l1": 1, "l2": 2, "linf": math.inf, "simplex": 1}[onto]
    return torch.linalg.vector_norm(x, order, dim=-1)


def support(g: Tensor, onto: str, r: float) -> Tensor:
    """The largest inner product of g with a point of the set."""
    dual = {"l1": "linf", "l2": "l2", "linf": "l1"}
    return r * (g.amax(-1) if onto == "simplex" else norm(g, dual[onto]))


def by_sorting(x: Tensor, r: float) -> Tensor:
    """The projection onto the simplex as textbooks have it, in fractions."""
    entries, total, tau = [Fraction(v) for v in x.tolist()], Fraction(0), Fraction(0)
    for k, u in enumerate(sorted(entries, reverse=True), 1):
        total += u
        if k * u > total - Fraction(r):
            tau = (total - Fraction(r)) / k
    return torch.tensor([float(max(u - tau, 0)) for u in entries], dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("onto", SETS)
def test_optimal(onto, radius, dtype):
    for shape in [(1,), (2,), (7, 3), (2, 3, 50), (400, 1500)]:
        x = 3 * torch.randn(shape, dtype=dtype)
        z = project(x, onto, radius=radius)
        assert z.dtype == dtype
        assert z.shape == x.shape
        x, z, eps = x.double(), z.double(), 40 * torch.finfo(dtype).eps
        assert (norm(z, onto) <= radius * (1 + eps)).all()
        if onto == "simplex":
            assert (z >= 0).all()
            assert (norm(z, "l1") >= radius * (1 - eps)).all()
        g = x - z
        gap = support(g, onto, radius) - (g * z).sum(-1)  # zero exactly at the nearest point
        assert (gap.abs() <= eps * (1 + radius) * (1 + norm(x, "l1"))).all()


CASES = {
    "ties": torch.tensor([2.0, 1.0, 2.0, 1.0, 2.0]),
    "equal": torch.full((9,), -3.0),
    "geometric": 2.0 ** -torch.arange(60.0, dtype=torch.float64),
    "growing": 1.5 ** torch.arange(200.0, dtype=torch.float64),
    "one above many": torch.cat([torch.zeros(1), torch.full((1000,), -0.999)]),
    "far away": 1e6 + torch.randn(500, generator=torch.Generator().manual_seed(0)),
    "zero": torch.zeros(4),
}


@pytest.mark.parametrize("radius", [1e-3, 1.0, 3.0, 100.0])
@pytest.mark.parametrize("name", CASES)
def test_simplex_by_sorting(name, radius):
    x = CASES[name]
    z, exact = project(x, "simplex", radius=radius), by_sorting(x, radius)
    eps = torch.finfo(x.dtype).eps
    torch.testing.assert_close(z.double(), exact, rtol=0, atol=2 * eps * radius + 1e-9 * eps)
    assert float(z.double().sum()) == pytest.approx(radius, rel=30 * eps)


def test_by_hand():
    x = torch.tensor([[3.0, -2.0, 0.5], [0.2, 0.1, -0.1]])
    assert project(x, "l1", radius=3).tolist() == [[2, -1, 0], x[1].tolist()]
    assert project(x, "simplex")[0].tolist() == [1, 0, 0]
    torch.testing.assert_close(project(x, "simplex")[1], torch.tensor([1.4, 1.1, 0.5]) / 3)
    assert project(torch.tensor([1.0, 1.0]), "l1").tolist() == [0.5, 0.5]
    assert project(torch.tensor([30.0, -40.0]), "l2", radius=5).tolist() == [3.0, -4.0]
    assert project(torch.tensor([1.0, 0.0]), "simplex", radius=0).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("onto", SETS)
def test_points_of_the_set_come_back_bit_by_bit(onto, dtype):
    for shape in [(3,), (50, 4), (300, 1000), (1, 10**6)]:
        for radius in RADII:
            z = project(3 * torch.randn(shape, dtype=dtype), onto, radius=radius)
            assert torch.equal(project(z, onto, radius=radius), z)
            if onto != "simplex":
                assert torch.equal(project(z / 2, onto, radius=radius), z / 2)
    soft = torch.randn(100, 300, dtype=dtype).softmax(-1)
    assert torch.equal(project(soft, onto), soft)
    tiny = torch.tensor([1.0, 1e-30, 0.0], dtype=dtype)
    assert torch.equal(project(tiny, onto), tiny)


@pytest.mark.parametrize("onto", SETS)
def test_extreme_sizes(onto):
    for big in (1e-310, 1e200, 1.7e308):
        x = torch.tensor([[big, -big, big / 4], [0.0, big, -big]], dtype=torch.float64)
        z = project(x, onto, radius=2.0)
        expected = project(x / big * 1e100 if big > 1 else x, onto, radius=2.0)
        torch.testing.assert_close(z, expected, rtol=1e-12, atol=1e-12)
        assert (norm(z, onto) <= 2 * (1 + 1e-14)).all()


def test_layouts_and_half_precision():
    x = torch.randn(20, 6, 30, dtype=torch.float64)
    swapped = x.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    for onto in SETS:
        torch.testing.assert_close(project(swapped, onto), project(x, onto))
        low = project(x.bfloat16(), onto)
        assert low.dtype == torch.bfloat16
        torch.testing.assert_close(low, project(x.bfloat16().double(), onto).bfloat16())


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch's forward mode
@pytest.mark.parametrize("radius", [0.4, 1.0, 30.0])
@pytest.mark.parametrize("onto", SETS)
def test_derivatives(onto, radius):
    torch.manual_seed(1)
    x = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)

    def function(x):
        return project(x, onto, radius=radius)

    assert gradcheck(function, x, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(function, x)


def test_jacobian_in_closed_form():
    x = torch.tensor([3.0, -2.5, 2.8, 0.1], dtype=torch.float64)
    signs = [[1.0, -1.0, 1.0, 0.0], [1.0, 0.0, 1.0, 0.0]]
    for onto, s in zip((SETS[0], SETS[3]), torch.tensor(signs).double(), strict=True):
        jacobian = torch.func.jacrev(lambda x, onto=onto: project(x, onto))(x)
        torch.testing.assert_close(jacobian, torch.diag(s * s) - torch.outer(s, s) / (s @ s))
    for onto in SETS[:3]:
        jacobian = torch.func.jacrev(lambda x, onto=onto: project(x, onto, radius=99))(x)
        torch.testing.assert_close(jacobian, torch.eye(4).double())
    on = torch.tensor([0.25, 0.75], dtype=torch.float64)
    jacobian = torch.func.jacrev(lambda x: project(x, "simplex"))(on)
    torch.testing.assert_close(jacobian, torch.eye(2).double() - 0.5)


@pytest.mark.parametrize("onto", SETS)
@pytest.mark.parametrize("radius", [0.0, 1.0])
def test_derivatives_at_zero_are_finite(onto, radius):
    x = torch.zeros(2, 3, requires_grad=True)
    project(x, onto, radius=radius).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


X = torch.ones(2, 3)
ERRORS = [
    ((X, "l3"), {}, "onto must be one of 'l1', 'l2', 'linf', 'simplex', got 'l3'"),
    ((X, "l1"), {"radius": -1.0}, "radius must be >= 0, got -1.0"),
    ((X, "l1"), {"radius": math.nan}, "radius must be .*, got nan"),
    ((X, "l2"), {"radius": math.inf}, r"radius must be <= 1.1\d*e\+38, got inf"),
    ((X, "l2"), {"radius": "1"}, "radius must be a number, got '1'"),
    ((X * math.nan, "l1"), {}, "x must be finite, got nan"),
    ((X * math.inf, "simplex"), {}, "x must be finite, got inf"),
    ((X.long(), "simplex"), {}, "x must be floating point, got torch.int64"),
    ((X[:, :0], "simplex"), {}, "x must not be empty"),
    ((torch.tensor(1.0), "l1"), {}, r"x must hold real vectors, got shape \(\)"),
    ((X + 1j, "l2"), {}, "x must hold real vectors, got shape .* of torch.complex64"),
    (([1.0], "l1"), {}, "x must be a tensor, got list"),
]


@pytest.mark.parametrize(("arguments", "options", "message"), ERRORS)
def test_errors(arguments, options, message, unchecked):
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(project)(*arguments, **options)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("onto", SETS)
def test_cuda(onto):
    for dtype in (torch.float32, torch.float64):
        x = 3 * torch.randn(700, 1000, dtype=dtype)
        here, there = (v.clone().requires_grad_() for v in (x, x.cuda()))
        z, w = project(here, onto, radius=2.0), project(there, onto, radius=2.0)
        torch.testing.assert_close(w.cpu(), z, rtol=0, atol=40 * torch.finfo(dtype).eps)
        assert torch.equal(project(w, onto, radius=2.0), w)
        z[:, ::2].sum().backward()
        w[:, ::2].sum().backward()
        assert here.grad is not None
        assert there.grad is not None
        torch.testing.assert_close(there.grad.cpu(), here.grad, rtol=1e-4, atol=1e-5)
