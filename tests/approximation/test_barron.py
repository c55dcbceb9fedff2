"""Barron's constant against closed forms, and greedy fits against exhaustive search."""

import inspect
import itertools
import math

import pytest
import torch
from torch import nn

from vademecum.approximation.barron import Heaviside, barron_fit
from vademecum.approximation.barron_spectra import barron_constant, radial_barron_constant


@pytest.mark.parametrize("n", [1, 2, 7, 60])
@pytest.mark.parametrize("width", [1e-3, 1.0, 50.0])
def test_gaussians(n, width):
    """The transform of exp(-|x|^2 / (2 width^2)) is a normal density of deviation 1 / width."""
    log = n * math.log(width) - n / 2 * math.log(2 * math.pi)
    found = radial_barron_constant(lambda r: (log - (r * width) ** 2 / 2).exp(), n)
    mean = math.sqrt(2) * math.exp(math.lgamma((n + 1) / 2) - math.lgamma(n / 2))
    assert found == pytest.approx(mean / width, rel=1e-8)


def test_exponential_and_compact_spectra():
    assert radial_barron_constant(lambda r: (-r).exp(), 1) == pytest.approx(2)
    assert radial_barron_constant(lambda r: (-r).exp(), 2) == pytest.approx(4 * math.pi)
    assert radial_barron_constant(lambda r: (r < 1).double(), 3) == pytest.approx(math.pi)
    assert radial_barron_constant(lambda r: (1 + r * r) ** -3, 1) == pytest.approx(0.5)  # no scale


def test_finite_spectrum():
    a = torch.tensor([1.0, 3j, -2.0])
    omega = torch.tensor([[3.0, 4.0], [0.0, 1.0], [0.0, 0.0]])
    assert float(barron_constant(a, omega)) == pytest.approx(8)


def best_step(x, y):
    """The least squared error of one step, over all splits of the plane by lines: by pairs."""
    best = math.inf
    for i, j in itertools.combinations(range(len(x)), 2):
        along = x[j] - x[i]
        normal = torch.stack([-along[1], along[0]])
        side = (x - x[i]) @ normal
        for tied in itertools.product([False, True], repeat=2):
            upper = side > 1e-9
            upper[[i, j]] = torch.tensor(tied)
            if 0 < int(upper.sum()) < len(x):
                rest = [y[upper] - y[upper].mean(), y[~upper] - y[~upper].mean()]
                best = min(best, float(torch.cat(rest).square().mean()))
    return best


def test_first_unit_is_the_best_step():
    x, y = torch.randn(9, 2).double(), torch.randn(9).double()
    fit = barron_fit(x, y, 1, candidates=2000)
    assert float(fit.errors[0]) == pytest.approx(best_step(x, y))


@pytest.mark.parametrize("steepness", [math.inf, 4.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_errors_are_those_of_the_network(steepness, dtype):
    x = torch.randn(80, 3, dtype=dtype) * torch.tensor([1.0, 100.0, 0.01], dtype=dtype) + 5
    y = (x[:, 1] / 50 + x[:, 0]).sin()
    fit = barron_fit(x, y, 12, steepness=steepness)
    error = (fit.network(x)[:, 0] - y).square().mean()
    torch.testing.assert_close(error, fit.errors[-1], rtol=1e-2, atol=1e-6)
    assert (fit.errors.diff() <= 1e-6).all()
    assert float(fit.errors[-1]) < 0.3 * float(y.var())
    assert isinstance(fit.network[1], Heaviside if math.isinf(steepness) else nn.Sigmoid)
    norms = fit.network.get_parameter("0.weight").norm(dim=1)
    length = 1.0 if math.isinf(steepness) else steepness
    torch.testing.assert_close(norms, torch.full_like(norms, length))


def test_directions_that_are_known():
    x = torch.randn(60, 4).double() * torch.tensor([1.0, 50.0, 0.02, 1.0]) + 3
    theta = torch.randn(2, 4).double() / x.std(0)
    t = x @ theta[1]
    fit = barron_fit(x, (t > t.median()).double(), 1, directions=theta, candidates=1, refinements=0)
    assert float(fit.errors[0]) < 1e-20
    blind = barron_fit(x, (t > t.median()).double(), 1, candidates=1, refinements=0)
    assert float(blind.errors[0]) > 1e-3


def test_stops_and_repeats():
    x = torch.tensor([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0], [3.0, 1.0]])
    stairs = torch.tensor([0.0, 0.0, 2.0, 5.0])
    fit = barron_fit(x, stairs, 10)
    assert len(fit.errors) == 2
    torch.testing.assert_close(fit.network(x)[:, 0], stairs)
    assert not fit.network.get_parameter("0.weight")[:, 1].any()  # where the points do not differ
    constant = barron_fit(x, torch.ones(4), 3)
    torch.testing.assert_close(constant.network(x), torch.ones(4, 1))
    x, y = torch.randn(2, 30, 2)[0], torch.randn(30)
    one, two = (barron_fit(x, y, 5, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(one.errors, two.errors)


X, Y = torch.linspace(-1, 2, 10).view(5, 2), torch.linspace(1, -1, 5)
ERRORS = [
    (barron_fit, (X, Y, 0), {}, "m must be >= 1, got 0"),
    (barron_fit, (X, Y[:4], 2), {}, "y must be 5 wide"),
    (barron_fit, (X, Y.double(), 2), {}, "y must be torch.float32"),
    (barron_fit, (X[0], Y, 2), {}, "x must have 2 axes"),
    (barron_fit, (X * math.nan, Y, 2), {}, "x must be finite"),
    (barron_fit, (X, Y * math.inf, 2), {}, "y must be finite"),
    (barron_fit, (X[:0], Y[:0], 2), {}, "x must not be empty"),
    (barron_fit, (X.long(), Y, 2), {}, "x must be floating point"),
    (barron_fit, (torch.full((5, 2), 0.1), Y, 2), {}, "x must have points that differ"),
    (barron_fit, (X, Y, 2), {"steepness": 0.0}, "steepness must be > 0"),
    (barron_fit, (X, Y, 2), {"candidates": 0}, "candidates must be >= 1"),
    (barron_fit, (X, Y, 2), {"directions": X[:, :1]}, "directions must be 2 wide"),
    (barron_fit, (X, Y, 2), {"directions": X * math.nan}, "directions must be finite"),
    (barron_fit, (X, Y, 2), {"refinements": -1}, "refinements must be >= 0"),
    (barron_constant, (Y, X[:4]), {}, "a must be 4 wide"),
    (barron_constant, (Y, X * math.nan), {}, "omega must be finite"),
    (barron_constant, (Y, Y), {}, "omega must have 2 axes"),
    (radial_barron_constant, (torch.sin, 1), {}, "rho must be >= 0, got -.* at radius"),
    (radial_barron_constant, (torch.exp, 1), {}, r"rho\(r\) must be finite, got inf"),
    (radial_barron_constant, (torch.sum, 1), {}, r"rho\(r\) must have shape \(2400,\)"),
    (radial_barron_constant, (torch.exp, 0), {}, "n must be >= 1"),
    (radial_barron_constant, (lambda r: 1 / (1 + r * r), 1), {}, r"rho must have a finite moment"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("function", "arguments", "knobs", "message"), ERRORS)
def test_errors(function, arguments, knobs, message):
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(function)(*arguments, **knobs)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    x, y = torch.randn(60, 3).double(), torch.randn(60).double()
    here = barron_fit(x, y, 8, generator=torch.Generator().manual_seed(0))
    there = barron_fit(x.cuda(), y.cuda(), 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(there.errors.cpu(), here.errors)
