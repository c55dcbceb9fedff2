"""Lipschitz, smoothness and strong-convexity constants against closed forms, with witnesses."""

import inspect
import math

import numpy as np
import pytest
import torch
from torch import nn

from vademecum.foundations._tangents import Tangents
from vademecum.foundations.curvature_constants import (
    lipschitz_constant,
    smoothness_constant,
    strong_convexity_constant,
)
from vademecum.foundations.regions import Ball, Box
from vademecum.foundations.steepest import gradient_of


def cube(low: float, high: float, d: int = 1, dtype=torch.float64) -> Box:
    return Box(torch.full((d,), low, dtype=dtype), torch.full((d,), high, dtype=dtype))


def hessian_at(f, x: torch.Tensor) -> torch.Tensor:
    """The Hessian of a function of one point."""
    found = torch.autograd.functional.hessian(f, x)
    assert isinstance(found, torch.Tensor)
    return found


@pytest.mark.parametrize("d", [1, 2, 7, 30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_quadratics_are_exact(d, dtype):
    a = torch.randn(d, d, dtype=dtype)
    h, b = a + a.T, torch.randn(d, dtype=dtype)
    f = lambda x: ((x @ h) * x).sum(1) / 2 + x @ b  # noqa: E731
    spectrum, vectors = torch.linalg.eigh(h)
    tol = 50 * torch.finfo(dtype).eps * d * float(spectrum.abs().max())
    ball = Ball(torch.ones(d, dtype=dtype), 2.0)
    low = strong_convexity_constant(f, ball, steps=3)
    assert low.value == pytest.approx(float(spectrum[0]), abs=tol)
    assert low.distance == 0.0
    assert abs(float(low.direction @ vectors[:, 0])) == pytest.approx(1.0, abs=1e-2)
    assert low.x.dtype == low.direction.dtype == dtype
    top = smoothness_constant(f, ball, steps=3)
    assert top.value == pytest.approx(float(spectrum.abs().max()), abs=tol)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spectrum", ["clustered", "ill-conditioned"])
def test_large_quadratics_are_exact(spectrum, dtype):
    d = 60  # which is beyond the Jacobians that are formed at every step
    top = 1 + 1e-6 * torch.arange(10)
    values = {
        "clustered": torch.cat([top, torch.linspace(-1, 0.999, d - 10)]),
        "ill-conditioned": torch.logspace(-7, 3, d),
    }
    Q = torch.linalg.qr(torch.randn(d, d).double()).Q
    h = (Q * values[spectrum].double()) @ Q.T
    h = ((h + h.T) / 2).to(dtype)
    exact = torch.linalg.eigvalsh(h)
    tol = 50 * torch.finfo(dtype).eps * d * float(exact[-1])
    f, ball = (lambda x: ((x @ h) * x).sum(1) / 2), Ball(torch.ones(d, dtype=dtype), 2.0)
    low, high = strong_convexity_constant(f, ball, steps=2), smoothness_constant(f, ball, steps=2)
    assert low.value == pytest.approx(float(exact[0]), abs=tol)
    assert high.value == pytest.approx(float(exact.abs().max()), abs=tol)
    turned = h @ high.direction
    assert float(turned.norm()) == pytest.approx(high.value, abs=tol)
    map_ = lipschitz_constant(lambda x: x @ h[:, :40], ball, steps=2)
    norm = float(torch.linalg.matrix_norm(h[:, :40], 2))
    assert map_.value == pytest.approx(norm, abs=tol)


@pytest.mark.parametrize("bend", [True, False])
def test_krylov_spaces_find_what_the_whole_jacobian_shows(bend):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(50, 30), nn.Tanh(), nn.Linear(30, 1)).double()
    g = gradient_of(lambda x: net(x)[:, 0])
    x, guides = torch.randn(2, 5, 50).double()
    whole = Tangents(g, guides, bend=bend)(x, few=50)
    quick = Tangents(g, guides, bend=bend)
    rough = quick(x, size=3)
    assert (rough.value < whole.value).all()  # the quotient of a vector, never more
    fine = quick(x, size=12, rounds=30)
    torch.testing.assert_close(fine.value, whole.value, rtol=1e-12, atol=0)
    torch.testing.assert_close((fine.extra * whole.extra).sum(1).abs(), torch.ones(5).double())
    torch.testing.assert_close(fine.gradient, whole.gradient, rtol=1e-5, atol=1e-9)
    i, best = quick.best(x, fine)
    assert i == int(whole.value.argmax())
    torch.testing.assert_close(best.value[0], whole.value.max())


def test_krylov_spaces_leave_what_they_are_caught_in():
    """A direction that was steepest, and an eigenvector, is given up when another is steeper."""
    scale = torch.linspace(1, 2, 40).double()
    g, guides = (lambda x: scale * x**3), torch.ones(1, 40).double()
    climb = Tangents(g, guides, bend=False)
    for place in (0, 39):
        x = 0.1 * torch.ones(1, 40).double()
        x[0, place] = 1.0
        found = climb(x, size=20, rounds=20)
        assert float(found.value) == pytest.approx(3 * float(scale[place]))


def test_many_places_without_derivatives_are_passed_over():
    x = torch.linspace(0.0, 1.0, 41).double()[torch.arange(80).view(2, 40) % 41]
    assert (x == 0).any(1).tolist() == [True, True]
    x[1] += 0.25
    found = Tangents(lambda x: x.sqrt(), torch.randn(2, 40).double(), bend=False)(x, rounds=9)
    assert found.value.tolist() == [-math.inf, pytest.approx(1.0)]


KNOWN = [  # function, low, high, d, L, mu
    (lambda x: x.logsumexp(1), -1.0, 1.0, 2, 0.5, 0.0),
    (lambda x: x.sin().sum(1), 0.0, 1.5, 3, math.sin(1.5), -math.sin(1.5)),
    (lambda x: x.exp().sum(1), -1.0, 2.0, 2, math.exp(2), math.exp(-1)),
    (lambda x: (x**4).sum(1), -1.0, 2.0, 3, 48.0, 0.0),
    (lambda x: -x.log().sum(1), 0.5, 4.0, 2, 4.0, 1 / 16),
    (lambda x: 100 * (x[:, 1] - x[:, 0] ** 2) ** 2, -1.0, 1.0, 2, 1644.0, -400.0),
    (lambda x: torch.where(x.abs() < 1, x**2 / 2, x.abs() - 0.5).sum(1), -3.0, 3.0, 2, 1.0, 0.0),
]


@pytest.mark.parametrize(("f", "low", "high", "d", "smooth", "strong"), KNOWN)
def test_known_constants(f, low, high, d, smooth, strong):
    if smooth == 1644.0:  # Rosenbrock's valley: the Hessian is steepest in a corner
        x = torch.tensor([1.0, -1.0])
        corner = hessian_at(lambda x: f(x[None])[0], x)
        smooth = float(torch.linalg.eigvalsh(corner)[-1])
    assert smoothness_constant(f, cube(low, high, d)).value == pytest.approx(smooth, rel=1e-6)
    found = strong_convexity_constant(f, cube(low, high, d))
    assert found.value == pytest.approx(strong, rel=1e-6, abs=1e-7)


def test_ridges_are_climbed():
    p = torch.softmax(torch.tensor([3.0, 3.0, -3.0, -3.0, -3.0]).double(), 0)
    best = torch.linalg.eigvalsh(torch.diag(p) - torch.outer(p, p))[-1]
    found = smoothness_constant(lambda x: x.logsumexp(1), cube(-3.0, 3.0, 5))
    assert found.value == pytest.approx(float(best), rel=1e-6)


def test_kinks_are_found_between_points():
    found = smoothness_constant(lambda x: x.abs().sum(1), cube(-1.0, 1.0, 2))
    assert found.value > 1e5
    assert found.distance > 0
    other = found.x + found.distance * found.direction
    assert (found.x.sign() != other.sign()).any()
    jump = lipschitz_constant(lambda x: (x[:, 0] > 0.3).double(), cube(-1.0, 1.0))
    assert jump.value > 1e5
    assert float(jump.x) <= 0.3 + 1e-5
    bend = strong_convexity_constant(lambda x: -x.abs().sum(1), cube(-1.0, 1.0, 2))
    assert bend.value < -1e5


def test_places_without_derivatives_are_passed_over():
    steep = lipschitz_constant(lambda x: x.sqrt().sum(1), cube(0.0, 1.0))
    assert steep.value > 100
    cone = strong_convexity_constant(
        lambda x: torch.linalg.vector_norm(x, dim=1), cube(-1.0, 1.0, 2)
    )
    assert cone.value == pytest.approx(0.0, abs=1e-9)


def test_values_are_attained_by_their_witnesses():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    f = lambda x: model(x)[:, 0]  # noqa: E731
    one = lambda x: f(x[None])[0]  # noqa: E731
    ball = Ball(torch.zeros(3).double(), 2.0)
    top, low, steep = (
        search(f, ball)
        for search in (smoothness_constant, strong_convexity_constant, lipschitz_constant)
    )
    hessian = hessian_at(one, top.x)
    assert top.value == pytest.approx(float(torch.linalg.matrix_norm(hessian, 2)))
    assert float((hessian @ top.direction).norm()) == pytest.approx(top.value)
    hessian = hessian_at(one, low.x)
    assert low.value == pytest.approx(float(torch.linalg.eigvalsh(hessian)[0]))
    gradient = torch.autograd.functional.jacobian(one, steep.x)
    assert steep.value == pytest.approx(float(gradient.norm()))
    hessians = torch.stack([hessian_at(one, x) for x in ball.sample(200)])
    assert float(torch.linalg.matrix_norm(hessians, 2).max()) <= top.value
    assert float(torch.linalg.eigvalsh(hessians)[:, 0].min()) >= low.value


def test_lipschitz_constants_of_maps():
    a = torch.randn(4, 3).double()
    linear = lipschitz_constant(lambda x: x @ a.T, cube(-1.0, 1.0, 3), steps=2)
    assert linear.value == pytest.approx(float(torch.linalg.matrix_norm(a, 2)), rel=1e-12)
    images = lipschitz_constant(lambda x: (x @ a.T).view(-1, 2, 2), cube(-1.0, 1.0, 3), steps=2)
    assert images.value == pytest.approx(linear.value)
    net = nn.Sequential(nn.Linear(2, 9), nn.ReLU(), nn.Linear(9, 2)).double()
    found = lipschitz_constant(net, cube(-1.0, 1.0, 2))
    jacobian = torch.autograd.functional.jacobian(lambda x: net(x[None])[0], found.x)
    assert found.value == pytest.approx(float(torch.linalg.matrix_norm(jacobian, 2)))
    assert all(p.grad is None for p in net.parameters())


def test_without_derivatives():
    def f(x):
        return torch.from_numpy(np.abs(x.numpy()).sum(1) * 2)

    found = lipschitz_constant(f, cube(-1.0, 1.0))
    assert found.value == pytest.approx(2.0, rel=1e-9)
    assert found.distance > 0


class Once(torch.autograd.Function):
    """The half square, which refuses to be differentiated twice."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square().sum(1) / 2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *grads):  # pyright: ignore[reportIncompatibleMethodOverride]
        return grads[0][:, None] * ctx.saved_tensors[0]


def test_functions_with_one_derivative_only():
    found = smoothness_constant(Once.apply, cube(-1.0, 1.0, 2))
    assert found.value == pytest.approx(1.0, rel=1e-9)
    assert found.distance > 0


def test_searches_repeat_with_their_random_numbers():
    f, box = (lambda x: (x.sin() * x.roll(1, 1)).sum(1)), cube(-3.0, 3.0, 3)
    one, two, other = (
        smoothness_constant(f, box, generator=torch.Generator().manual_seed(seed))
        for seed in (0, 0, 5)
    )
    assert one.value == two.value
    assert one.x.equal(two.x)
    assert not other.x.equal(one.x)
    with torch.no_grad():
        again = smoothness_constant(f, box, generator=torch.Generator().manual_seed(0))
    assert again.value == one.value


def test_a_function_that_fails_is_not_taken_for_one_without_derivatives():
    def f(x):
        if x.requires_grad:
            raise torch.OutOfMemoryError("the device is full")
        return x.sum(1)

    with pytest.raises(torch.OutOfMemoryError, match="the device is full"):
        lipschitz_constant(f, cube(-1.0, 1.0))


BOX, SQUARE = cube(-1.0, 1.0, 2), lambda x: x.square().sum(1)
ERRORS = [
    (smoothness_constant, (SQUARE, [0, 1]), {}, "region must have the methods .* got list"),
    (smoothness_constant, (SQUARE, BOX), {"pairs": 0}, "pairs must be >= 1, got 0"),
    (smoothness_constant, (SQUARE, BOX), {"starts": 0}, "starts must be >= 1, got 0"),
    (smoothness_constant, (SQUARE, BOX), {"steps": -1}, "steps must be >= 0, got -1"),
    (smoothness_constant, (lambda x: x, BOX), {}, "f must return one number a point, got 2"),
    (smoothness_constant, (lambda x: x.sum(), BOX), {}, "f must return one row for each of"),
    (smoothness_constant, (lambda x: 1.0, BOX), {}, "one row for each of 512 points, got float"),
    (smoothness_constant, (lambda x: x.detach().sum(1), BOX), {}, "f must be differentiable"),
    (smoothness_constant, (lambda x: x.sum(1).sqrt(), BOX), {}, r"f\(x\) must be finite, got nan"),
    (lipschitz_constant, (lambda x: x.log(), BOX), {}, r"f\(x\) must be finite, got nan"),
    (lipschitz_constant, (lambda x: x > 0, BOX), {}, r"f\(x\) must be floating point"),
    (lipschitz_constant, (lambda x: x + 1j, BOX), {}, r"f\(x\) must be real"),
    (lipschitz_constant, (lambda x: x - x.mean(0), BOX), {}, "f must act on each row by itself"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("function", "arguments", "knobs", "message"), ERRORS)
def test_errors(function, arguments, knobs, message):
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(function)(*arguments, **knobs)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    f = lambda x: (x**4).sum(1) + x.prod(1)  # noqa: E731
    here, there = (
        smoothness_constant(f, Box(-torch.ones(3, device=at), torch.ones(3, device=at)))
        for at in ("cpu", "cuda")
    )
    assert there.x.is_cuda
    assert there.value == pytest.approx(here.value, rel=1e-4)
