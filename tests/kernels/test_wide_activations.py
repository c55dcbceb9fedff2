"""Activations of infinitely wide networks against double integrals, and at extreme inputs."""

import math
import warnings
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate
from torch import nn
from torch.nn import functional as F

from vademecum.expectations import GaussianExpectations
from vademecum.kernels import infinite_width
from vademecum.kernels.wide import _series
from vademecum.kernels.wide._duals import Closed, Slopes, known_dual
from vademecum.models import SlowPathWarning

FUNCTIONS = {
    "relu": torch.relu,
    "leaky": lambda u: F.leaky_relu(u, 0.2),
    "abs": torch.abs,
    "erf": torch.erf,
    "gelu": F.gelu,
    "gelu by hand": lambda u: 0.5 * u * (1 + torch.erf(u / math.sqrt(2))),
    "sin": torch.sin,
    "sin of a multiple": lambda u: 0.7 * torch.sin(1.3 * u),
    "cos": torch.cos,
    "tanh": torch.tanh,
    "silu by hand": lambda u: u * torch.sigmoid(u),
    "softplus": F.softplus,
    "hardtanh": F.hardtanh,
    "scaled relu": lambda u: torch.relu(u) * math.sqrt(2),
    "relu and its argument": lambda u: u + torch.relu(u),
    "square": lambda u: u**2,
}
CLOSED = {
    "relu", "leaky", "abs", "erf", "gelu", "gelu by hand", "sin", "sin of a multiple", "cos",
    "scaled relu", "relu and its argument",
}  # fmt: skip


class OneLayer(nn.Module):
    """One hidden layer, whose tangent kernel of the first weights alone is wanted."""

    def __init__(self, function, d=2):
        super().__init__()
        self.function = function
        self.first, self.last = nn.Linear(d, 3), nn.Linear(3, 1)
        self.last.requires_grad_(False)

    def forward(self, x):
        return self.last(self.function(self.first(x)))


def double_integral(f, q, p, c, kinks=()):
    """E f(u) f(v) by SciPy, on a grid of pieces that end at kinks of the first number."""
    s = math.sqrt(1 - c * c)

    def number(t):
        return float(f(torch.tensor(t, dtype=torch.float64)))

    def inner(z):
        ends = [(k / math.sqrt(p) - c * z) / s for k in kinks]
        points = [e for e in ends if -10 < e < 10] or None

        def g(t):
            return number(math.sqrt(p) * (c * z + s * t)) * math.exp(-t * t / 2)

        return integrate.quad(g, -10, 10, points=points, limit=60, epsabs=1e-9)[0]

    total = 0.0
    edges = sorted({-10.0, -5.0, 0.0, 5.0, 10.0, *(k / math.sqrt(q) for k in kinks)})
    nodes, weights = np.polynomial.legendre.leggauss(24)
    for low, high in pairwise(edges):
        for z, w in zip(nodes, weights, strict=True):
            at = (low + high) / 2 + (high - low) / 2 * z
            left = number(math.sqrt(q) * at) * math.exp(-at * at / 2) * w * (high - low) / 2
            total += left * inner(at)
    return total / (2 * math.pi)


@pytest.mark.parametrize("name", ["gelu", "erf", "sin", "cos", "leaky", "abs"])
def test_closed_forms_by_double_integrals(name):
    q, p, c = 1.4, 0.6, -0.35
    f = FUNCTIONS[name]
    kinks = (0.0,) if name in ("leaky", "abs") else ()
    found = GaussianExpectations({"leaky": nn.LeakyReLU(0.2), "gelu": nn.GELU()}.get(name, f))
    assert found.exact
    assert float(found.product(q, c, p)) == pytest.approx(
        double_integral(f, q, p, c, kinks), abs=1e-7
    )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_activation_by_quadrature_in_the_plane(name):
    """Closed forms and series, against integrals that know neither."""
    f = FUNCTIONS[name]
    x = torch.tensor([[1.0, 0.5], [-0.3, 0.8], [2.0, 1.01]], dtype=torch.float64)
    limit = infinite_width(OneLayer(f), weight_variance=1.5, bias_variance=0.1)
    blind = GaussianExpectations(lambda u: f(u))  # a function that is not recognised
    assert not blind.exact
    K = 1.5 * x @ x.T / 2 + 0.1
    q, k = K.diagonal(), K[0, 1:]
    c = k / (q[0] * q[1:]).sqrt()
    nngp = 1.5 * blind.product(q[0].expand(2), c, q[1:]) + 0.1
    ntk = 1.5 * k * blind.slope_product(q[0].expand(2), c, q[1:])
    torch.testing.assert_close(limit.nngp(x)[0, 1:], nngp, rtol=2e-9, atol=1e-9)
    torch.testing.assert_close(limit.ntk(x)[0, 1:], ntk, rtol=2e-9, atol=1e-9)
    torch.testing.assert_close(limit.nngp(x[:1], x[1:])[0], nngp, rtol=2e-9, atol=1e-9)
    both = limit.diagonal(x)
    torch.testing.assert_close(both.nngp, 1.5 * blind.square(q) + 0.1, rtol=2e-9, atol=1e-9)
    torch.testing.assert_close(both.ntk, 1.5 * q * blind.slope(q), rtol=2e-9, atol=1e-9)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_activations_are_recognised_by_what_they_compute(name):
    found = known_dual(FUNCTIONS[name], (1.3,))
    assert (found is not None) == (name in CLOSED)
    assert found is None or isinstance(found, Slopes | Closed)


LOOKALIKES = [
    F.relu6, torch.tanh, lambda u: torch.erf(1.01 * u), F.softshrink,
    lambda u: torch.sin(u.clamp(-5, 5)), lambda u: u.clamp(0, 1e5), lambda u: F.softplus(u, 1e7),
]  # fmt: skip


@pytest.mark.parametrize("f", LOOKALIKES)
def test_lookalikes_are_not_recognised(f):
    assert known_dual(f, ()) is None


@pytest.mark.parametrize(
    ("f", "scale"), [(lambda u: F.hardtanh(u, -64, 64), 50.0), (torch.tanh, 1)]
)
def test_parallel_inputs_of_different_lengths(f, scale):
    """Correlation 1 with different variances; an activation that is straight near zero bends."""
    x = scale * torch.tensor([[1.0, 0.5], [2.0, 1.0]], dtype=torch.float64)
    limit = infinite_width(OneLayer(f), weight_variance=1.5)
    blind, q = GaussianExpectations(lambda u: f(u)), 0.75 * x.square().sum(1)
    one = torch.ones((), dtype=torch.float64)
    wanted = 1.5 * blind.product(q[0], one, q[1])
    assert limit.nngp(x)[0, 1].item() == pytest.approx(wanted.item(), rel=2e-9)
    wanted = 1.5 * 0.75 * (x[0] @ x[1]) * blind.slope_product(q[0], one, q[1])
    assert limit.ntk(x)[0, 1].item() == pytest.approx(wanted.item(), rel=2e-9)


def test_many_pairs_near_one_say_that_they_are_slow():
    """ELU with a kink in its slope, at correlations that 256 terms cannot reach."""
    x = torch.tensor([[1.0, 1.0], [1.01, 1.0], [1.0, 1.02]], dtype=torch.float64)
    limit = infinite_width(OneLayer(lambda u: F.elu(u, 1.7)), tol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowPathWarning)
        near = limit.nngp(x)
    q, k = x.square().sum(1), x @ x.T
    blind = GaussianExpectations(lambda u: F.elu(u, 1.7))
    wanted = 2 * blind.product(q[0], k[0, 1] / (q[0] * q[1]).sqrt(), q[1])
    assert near[0, 1].item() == pytest.approx(wanted.item(), rel=1e-11)
    few, _series._MANY = _series._MANY, 2
    try:
        with pytest.warns(SlowPathWarning, match="covariances are integrated one by one"):
            limit.nngp(x)
    finally:
        _series._MANY = few


SCALES = [1e-15, 1e-7, 1.0, 1e7, 1e15]


@pytest.mark.parametrize("bias", [0.0, 0.1])
@pytest.mark.parametrize("name", ["relu", "leaky", "abs", "erf", "gelu", "sin", "cos"])
def test_diagonals_in_single_precision_at_all_scales(name, bias):
    """Against double precision by another way: variances alone, without correlations."""
    f = FUNCTIONS[name]
    base = torch.tensor([[0.3, -1.2, 0.7]])
    x = torch.cat([base * s for s in SCALES] + [-base, 0 * base])
    model = nn.Sequential(
        nn.Linear(3, 4), _Function(f), nn.Linear(4, 4), _Function(f), nn.Linear(4, 1)
    )
    limit = infinite_width(model, weight_variance=1.5, bias_variance=bias)
    integrals = GaussianExpectations({"leaky": nn.LeakyReLU(0.2), "gelu": nn.GELU()}.get(name, f))
    q = 1.5 * x.double().square().mean(1) + bias
    theta = q
    for _ in range(2):
        slope = integrals.slope(q)
        q = 1.5 * integrals.square(q) + bias
        theta = q + 1.5 * theta * slope
    both = limit.diagonal(x)
    assert x.dtype == both.nngp.dtype == torch.float32
    torch.testing.assert_close(both.nngp.double(), q, rtol=1e-6, atol=0)
    torch.testing.assert_close(both.ntk.double(), theta, rtol=1e-6, atol=0)
    for kernel, wanted in ((limit.nngp, q), (limit.ntk, theta)):
        K, again = kernel(x), kernel(x, x.clone())
        assert bool(torch.isfinite(K).all())
        assert bool(torch.isfinite(again).all())
        torch.testing.assert_close(K.diagonal().double(), wanted, rtol=1e-6, atol=0)
        if name not in ("sin", "cos"):  # whose phases are lost at large arguments
            torch.testing.assert_close(again.diagonal().double(), wanted, rtol=1e-6, atol=0)


class _Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize("scale", [1e-15, 1.0, 1e15])
def test_opposite_inputs_and_zero(scale):
    """Cov(relu(u), relu(-u)) = 0, |u| |-u| = u^2; x = 0 without biases gives zero."""
    x = scale * torch.tensor([[1.0, 2.0], [-1.0, -2.0], [0.0, 0.0]])
    relu, absolute = (infinite_width(OneLayer(FUNCTIONS[n])) for n in ("relu", "abs"))
    zero = torch.zeros(3, dtype=torch.float64)
    for kernel in (relu.nngp, relu.ntk):
        K = kernel(x).double()
        assert abs(K[0, 1].item()) <= 1e-6 * K[0, 0].item()
        assert K[2].equal(zero)
    K = absolute.nngp(x)
    assert K[0, 1].item() == pytest.approx(K[0, 0].item(), rel=1e-6)
    assert absolute.ntk(x)[0, 1].item() == pytest.approx(absolute.ntk(x)[0, 0].item(), rel=1e-6)


def test_convolutions_in_single_precision_at_all_scales():
    x = torch.randn(1, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    x = torch.cat([x * s for s in SCALES] + [-x, 0 * x])
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1, bias=False), nn.ReLU(), nn.AvgPool2d(2),
        nn.Conv2d(3, 3, 3, padding=1, bias=False), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(3, 1, bias=False),
    )  # fmt: skip
    limit = infinite_width(model)
    for kernel in (limit.nngp, limit.ntk):
        K, one = kernel(x), float(kernel(x[2:3].double()))
        assert bool(torch.isfinite(K).all())
        scales = torch.tensor(SCALES, dtype=torch.float64)
        wanted = one * scales**2
        torch.testing.assert_close(K.diagonal()[:5].double(), wanted, rtol=1e-6, atol=0)
        twice = kernel(x, x.clone()).diagonal()[:5].double()
        torch.testing.assert_close(twice, wanted, rtol=3e-6, atol=0)
        wanted = one * scales[:, None] * scales
        torch.testing.assert_close(K[:5, :5].double(), wanted, rtol=3e-6, atol=0)
        assert bool((K[6] == 0).all())
