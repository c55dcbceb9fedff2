"""Piecewise-linear functions as networks, against NumPy's interpolation and each other."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from vademecum.approximation.interpolation import interpolating_network
from vademecum.approximation.pwl import AbsExpansion, pwl_to_abs, pwl_to_maxout, pwl_to_relu
from vademecum.approximation.sawtooth import sawtooth_network


def two_units(x, y):
    both = pwl_to_maxout(x, y)
    return lambda t: both(t)[:, None]


FORMS = {"relu": pwl_to_relu, "abs": pwl_to_abs, "maxout": two_units}


def reference(x, y, t):
    """NumPy's interpolation, with the outer pieces prolonged by hand."""
    value = np.interp(t, x, y)
    left, right = (y[1] - y[0]) / (x[1] - x[0]), (y[-1] - y[-2]) / (x[-1] - x[-2])
    value = np.where(t < x[0], y[0] + left * (t - x[0]), value)
    return np.where(t > x[-1], y[-1] + right * (t - x[-1]), value)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("m", [2, 3, 4, 30])
def test_against_numpy(form, m):
    x = torch.rand(m).double().sort().values * 4 - 1 + torch.arange(m) / m
    y, t = torch.randn(m).double(), torch.linspace(-6, 8, 500).double()
    found = FORMS[form](x, y)(t[:, None])[:, 0].detach()
    wanted = torch.from_numpy(reference(x.numpy(), y.numpy(), t.numpy()))
    slopes = float((y.diff() / x.diff()).abs().max())
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-14 * m * (1 + 10 * slopes))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("y", [[0.0, 0.0, 0.0], [0.0, 1.0, 2.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
def test_lines_and_single_kinks(form, y):
    x, t = torch.tensor([0.0, 1.0, 2.0]), torch.tensor([-3.0, 0.5, 1.0, 1.5, 7.0])
    found = FORMS[form](x, torch.tensor(y))(t[:, None])[:, 0]
    assert found.tolist() == reference(x.numpy(), np.array(y), t.numpy()).tolist()


def test_one_unit_a_kink():
    x, y = torch.arange(6.0), torch.tensor([0.0, 1.0, 2.0, 2.0, 2.0, 5.0])
    assert pwl_to_relu(x, y)[0].out_features == 2 + 1 - 1  # the second slope is zero
    assert pwl_to_relu(x, y + x)[0].out_features == 2 + 1
    assert pwl_to_abs(x, y).kinks[0].out_features == 2
    both = pwl_to_maxout(x, y)
    assert (both.g.A.flatten().tolist(), both.h.A.flatten().tolist()) == ([1.0, 4.0], [0.0, 1.0])


def test_no_random_numbers_are_used_up():
    state = torch.get_rng_state()
    x = torch.arange(4.0)
    for form in FORMS.values():
        form(x, x**2)
    sawtooth_network(3)
    interpolating_network(torch.eye(3), torch.ones(3), generator=torch.Generator())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype(dtype):
    x = torch.tensor([0.0, 1.0, 2.0], dtype=dtype)
    for network in (pwl_to_relu(x, x**2), pwl_to_abs(x, x**2), pwl_to_maxout(x, x**2).g):
        assert network(x[:, None]).dtype == dtype
    assert sawtooth_network(2, dtype=dtype)(x[:, None]).dtype == dtype
    assert interpolating_network(x[:, None], x)(x[:, None]).dtype == dtype


# The sawtooth


@pytest.mark.parametrize(("depth", "width"), [(1, 2), (5, 2), (1, 3), (3, 3), (2, 5), (2, 4)])
def test_sawtooth_is_a_triangle_wave(depth, width):
    net, teeth = sawtooth_network(depth, width, dtype=torch.float64), width**depth
    x = torch.linspace(0, 1, 1001).double()
    wave = (teeth * x - 2 * (teeth * x / 2).round()).abs()  # the distance to an even number
    # a layer adds some 4 width roundings of numbers up to width, the rest multiply them by width
    close = 8 * width * teeth * torch.finfo(x.dtype).eps
    torch.testing.assert_close(net(x[:, None])[:, 0].detach(), wave, rtol=0, atol=close)
    hidden = [layer for layer in net if isinstance(layer, nn.ReLU)]
    assert len(hidden) == depth
    assert net[0].out_features == width


def test_sawtooth_in_floating_point():
    """With two units every step is exact, so float32 and float64 agree on float32 numbers."""
    x = torch.randint(0, 2**24 + 1, (500, 1)) / 2.0**24
    deep = [sawtooth_network(12, dtype=t)(x.to(t)) for t in (torch.float32, torch.float64)]
    assert torch.equal(deep[0].double(), deep[1])


# Interpolation


SIZES = [(2, 1, 1), (20, 1, 2), (30, 2, 1), (60, 5, 3), (9, 40, 1)]


@pytest.mark.parametrize(("n", "d", "m"), SIZES)
def test_interpolation(n, d, m):
    x, y = torch.randn(n, d).double(), torch.randn(n, m).double()
    net = interpolating_network(x, y)
    net.requires_grad_(False)
    assert net[0].out_features == n - 1
    # sums of n terms: slope changes, which are the size of the slopes, times what is in [0, range]
    terms = net[:2](x).amax(0) @ net.get_parameter("2.weight").abs().amax(0) + y.abs().max()
    close = (n + d) * torch.finfo(x.dtype).eps * float(terms)
    torch.testing.assert_close(net(x), y, rtol=0, atol=close)
    torch.testing.assert_close(
        interpolating_network(x, y[:, 0])(x)[:, 0].detach(), y[:, 0], rtol=0, atol=close
    )


def test_interpolation_in_one_dimension_is_linear_between_the_points():
    x, y = torch.randn(12).double(), torch.randn(12).double()
    t = torch.linspace(float(x.min()), float(x.max()), 300).double()
    x, order = x.sort()
    net = interpolating_network(x[:, None].flip(0), y[order].flip(0))
    wanted = np.interp(t.numpy(), x.numpy(), y[order].numpy())
    torch.testing.assert_close(net(t[:, None])[:, 0].detach(), torch.from_numpy(wanted))


def test_the_direction_of_the_largest_smallest_gap():
    x = torch.tensor([[0.0, 1.0, 0.0], [1.0, 8.0, 0.2], [4.0, 3.0, 1.0]])  # gaps 1/4, 2/7, 1/5
    net = interpolating_network(x, X, directions=0)
    assert torch.equal(net.get_parameter("0.weight"), torch.eye(3)[1].expand(2, 3))
    seeded = torch.Generator().manual_seed(5)
    draws = torch.randn(99, 3, generator=torch.Generator().manual_seed(5))
    net = interpolating_network(x, X, directions=99, generator=seeded)
    gaps = [v.diff().min() / (v[-1] - v[0]) for v in ((x @ w).sort().values for w in draws)]
    best = draws[torch.stack(gaps).argmax()]
    torch.testing.assert_close(net.get_parameter("0.weight")[0].detach(), best / best.norm())


def test_interpolation_of_points_that_no_axis_separates():
    x = torch.cartesian_prod(*[torch.arange(3.0).double()] * 3)
    y = torch.where(x.sum(1) % 2 == 0, 1.0, -1.0).double()
    torch.testing.assert_close(interpolating_network(x, y)(x)[:, 0].detach(), y)
    found = interpolating_network(x, y, generator=torch.Generator().manual_seed(7))
    torch.testing.assert_close(found(x)[:, 0].detach(), y)


X, Y, P = torch.tensor([0.0, 1.0, 2.0]), torch.ones(3), torch.eye(3)
ERRORS = [
    *((form, (X[:1], Y[:1]), "x must have at least 2 points, got 1") for form in FORMS.values()),
    (pwl_to_relu, (X, Y[:2]), "y must be 3 wide"),
    (pwl_to_relu, (X.flip(0), Y), "x must increase, got 1.0 after 2.0"),
    (pwl_to_abs, (torch.zeros(3), Y), "x must increase, got 0.0 after 0.0"),
    (pwl_to_abs, (X * math.nan, Y), "x must be finite, got nan"),
    (pwl_to_abs, (X.long(), Y), "x must be floating point"),
    (pwl_to_relu, (X, Y.double()), "y must be torch.float32 on cpu as x is, got torch.float64"),
    (pwl_to_relu, (X * 1e-38, Y * X * 1e38), "the slopes of y over x must be finite"),
    (sawtooth_network, (0,), "depth must be >= 1, got 0"),
    (sawtooth_network, (1, 1), "width must be >= 2, got 1"),
    (sawtooth_network, (1.5,), "depth must be an integer"),
    (interpolating_network, (P, Y[:2]), r"y must have 3 rows, got shape \(2,\)"),
    (interpolating_network, (P[:1], Y[:1]), "x must have at least 2 points"),
    (interpolating_network, (torch.ones(3, 2), Y), "two that no direction tells apart"),
    (interpolating_network, (P[0], Y), "x must have 2 axes"),
    (interpolating_network, (P, Y * math.inf), "y must be finite"),
    (interpolating_network, (P.double(), Y), "y must be torch.float64"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("function", "arguments", "message"), ERRORS)
def test_errors(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)


def test_directions_must_be_a_number():
    with pytest.raises(ValueError, match="directions must be >= 0, got -1"):
        interpolating_network(P, Y, directions=-1)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    x, y = torch.arange(5.0).double(), torch.randn(5).double()
    t = torch.linspace(-2, 7, 50).double()[:, None]
    for make in (pwl_to_relu, pwl_to_abs, lambda x, y: pwl_to_maxout(x, y).g):
        torch.testing.assert_close(make(x.cuda(), y.cuda())(t.cuda()).cpu(), make(x, y)(t))
    points = torch.randn(20, 3).double()
    net = interpolating_network(points.cuda(), points[:, 0].cuda())
    torch.testing.assert_close(net(points.cuda())[:, 0].cpu(), points[:, 0])
    assert isinstance(pwl_to_abs(x.cuda(), y.cuda()), AbsExpansion)
