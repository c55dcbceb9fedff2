"""Mean-field theory against networks, SciPy's quadrature and iterated closed forms."""

import math

import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm
from torch import nn
from torch.nn import functional as F

from vademecum.regularization import critical_line, mean_field


def quadrature(f, q):
    """The mean of f(u) for u of variance q, by SciPy."""
    return quad(
        lambda z: f(math.sqrt(q) * z) * norm.pdf(z), -12, 12, epsabs=1e-13, limit=200, points=[0.0]
    )[0]


def tanh_squared(u):
    return math.tanh(u) ** 2


def tanh_slope_squared(u):
    return (1 - math.tanh(u) ** 2) ** 2


@pytest.mark.parametrize(("weights", "biases"), [(1.5, 0.05), (4.0, 0.0), (2.2, 0.4)])
def test_fixed_point_of_tanh(weights, biases):
    field = mean_field(torch.tanh, weights, biases)
    q = field.variance
    assert weights * quadrature(tanh_squared, q) + biases == pytest.approx(q, rel=1e-10)
    assert weights * quadrature(tanh_squared, 0.99 * q) + biases > 0.99 * q  # attracting
    assert field.chi == pytest.approx(weights * quadrature(tanh_slope_squared, q), rel=1e-9)
    step = 1e-4
    ends = [weights * quadrature(tanh_squared, q + s) for s in (step, -step)]
    slope = (ends[0] - ends[1]) / (2 * step)
    assert field.variance_depth == pytest.approx(-1 / math.log(slope), rel=1e-5)


def erf_orbit(weights, biases, c, steps):
    """Variance and correlations from layer to layer, by the arcsine."""
    q = 1.0
    for _ in range(3000):
        q = weights * 2 / math.pi * math.asin(2 * q / (1 + 2 * q)) + biases
    path = [c]
    for _ in range(steps):
        kernel = 2 / math.pi * math.asin(2 * q * path[-1] / (1 + 2 * q))
        path.append((weights * kernel + biases) / q)
    return q, path


@pytest.mark.parametrize(("weights", "biases"), [(3.0, 0.2), (1.2, 0.3), (5.0, 0.0)])
def test_fixed_points_of_erf(weights, biases):
    field = mean_field(torch.erf, weights, biases)
    q, path = erf_orbit(weights, biases, 0.6, 3000)
    assert field.variance == pytest.approx(q, rel=1e-12)
    assert field.correlation == pytest.approx(path[-1], abs=1e-9)
    assert field.correlation_map(0.6).item() == pytest.approx(path[1], rel=1e-12)
    gaps = [abs(c - path[-1]) for c in path]
    near = next(i for i, gap in enumerate(gaps) if gap < 1e-5)
    rate = (gaps[near + 4] / gaps[near]) ** 0.25
    assert field.correlation_depth == pytest.approx(-1 / math.log(rate), rel=1e-3)
    slope = 4 / math.pi / math.sqrt(1 + 4 * q)
    assert field.chi == pytest.approx(weights * slope, rel=1e-12)
    assert field.phase == ("chaotic" if weights * slope > 1 else "ordered")
    assert (field.correlation < 1 - 1e-6) == (field.phase == "chaotic")


@pytest.mark.parametrize("slope", [0.0, 0.3, -1.0])
def test_straight_pieces_have_one_critical_point(slope):
    """Of slopes 1 and a: the variance is multiplied by (1 + a^2) / 2 times that of the weights."""
    layer, half = nn.LeakyReLU(slope), (1 + slope**2) / 2
    critical = mean_field(layer, 1 / half)
    assert (critical.phase, critical.variance) == ("critical", 1.0)
    assert critical.variance_depth == critical.correlation_depth == math.inf
    below = mean_field(layer, 0.8 / half, 0.1)
    assert below.variance == pytest.approx(0.5, rel=1e-12)
    assert (below.phase, below.correlation) == ("ordered", 1.0)
    assert below.chi == pytest.approx(0.8, rel=1e-12)
    assert below.correlation_depth == pytest.approx(-1 / math.log(0.8), rel=1e-9)
    above = mean_field(layer, 1.2 / half, 0.1)
    assert (above.phase, above.variance) == ("chaotic", math.inf)
    assert mean_field(layer, 0.5 / half).variance == 0


def test_relu_forgets_its_inputs_like_one_over_depth_squared():
    """Hayou, Doucet and Rousseau: 1 - c tends to 9 pi^2 / (2 l^2) at the critical point."""
    field, c = mean_field(torch.relu, 2.0), torch.tensor(0.1, dtype=torch.float64)
    for _ in range(500):
        c = field.correlation_map(c)
    assert 500**2 * (1 - float(c)) == pytest.approx(4.5 * math.pi**2, rel=0.1)


def test_where_everything_stays_or_vanishes():
    linear = mean_field(nn.Identity(), 1.0)
    assert (linear.variance, linear.phase) == (1.0, "critical")
    assert math.isnan(linear.correlation)
    vanishing = mean_field(torch.tanh, 0.5)
    assert (vanishing.variance, vanishing.phase) == (0.0, "ordered")
    assert vanishing.chi == pytest.approx(0.5, abs=1e-9)
    assert mean_field(torch.tanh, 1.0).phase == "critical"
    selu = mean_field(nn.SELU(), 1.0)  # made for variance 1
    assert selu.variance == pytest.approx(1, abs=1e-6)


WIDE = {
    "relu": (torch.relu, 2.0, 0.0),
    "tanh": (torch.tanh, 1.7, 0.1),
    "gelu": (F.gelu, 2.5, 0.05),
    "hardtanh": (nn.Hardtanh(-0.5, 1.5), 3.0, 0.2),
}


@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("n", [70, 200])
def test_networks_of_finite_width(name, n):
    """The mean of 50 draws is within five standard errors, forwards and backwards."""
    activation, weights, biases = WIDE[name]
    field = mean_field(activation, weights, biases)
    draws, layers, c = 50, 3, 0.4
    a, b = torch.randn(2, n, dtype=torch.float64)
    b -= (a @ b) / (a @ a) * a
    a, b = (v * math.sqrt(n) / v.norm() for v in (a, b))
    h = torch.stack([a, c * a + math.sqrt(1 - c**2) * b], 1).expand(draws, n, 2)
    q = torch.tensor(1.0, dtype=torch.float64)
    for layer in range(layers):
        W = torch.randn(draws, n, n, dtype=torch.float64) * math.sqrt(weights / n)
        shift = torch.randn(draws, n, 1, dtype=torch.float64) * math.sqrt(biases)
        c, q = field.correlation_map(c, q), field.variance_map(q)
        if layer == 0:  # inputs are not random: a layer without activation makes them Gaussian
            c, q = (weights * 0.4 + biases) / (weights + biases), torch.tensor(weights + biases)
            h = W @ h + shift
        else:
            h = W @ activation(h) + shift
        for found, expected in ((h[..., 0] ** 2, q), (h[..., 0] * h[..., 1], q * c)):
            means = found.mean(1)
            error = float(means.std() / math.sqrt(draws))
            assert abs(float(means.mean()) - float(expected)) < 5 * error + 2 / n


def test_gradients_grow_by_chi():
    """One layer backwards at the fixed point: the square is multiplied by chi in the mean."""
    n, draws = 200, 50
    field = mean_field(torch.tanh, 1.8, 0.1)
    h = torch.randn(draws, n, dtype=torch.float64) * math.sqrt(field.variance)
    W = torch.randn(draws, n, n, dtype=torch.float64) * math.sqrt(1.8 / n)
    g = torch.randn(draws, 1, n, dtype=torch.float64)
    back = (g @ W)[:, 0] * (1 - torch.tanh(h) ** 2)
    ratios = back.square().mean(1) / g.square().mean((1, 2))
    error = float(ratios.std() / math.sqrt(draws))
    assert abs(float(ratios.mean()) - field.chi) < 5 * error


@pytest.mark.parametrize("activation", [torch.tanh, torch.erf, nn.Softplus(), torch.sin])
def test_critical_line_leads_back_to_chi_one(activation):
    line = critical_line(activation, torch.tensor([0.3, 1.0, 2.0], dtype=torch.float64))
    for q, w, b, attracting in zip(*line, strict=True):
        if not attracting:
            continue
        field = mean_field(activation, float(w), float(b))
        assert field.chi == pytest.approx(1, abs=1e-9)
        assert field.phase == "critical"
        assert field.variance == pytest.approx(float(q), rel=1e-7)


def test_critical_points_that_variances_leave_are_told_from_those_that_attract():
    q = torch.tensor([0.1, 1.0, 3.0], dtype=torch.float64)
    grows = critical_line(lambda z: z * z.abs(), q)  # E phi^2 = 3 q^2, E phi'^2 = 4 q: slope 3/2
    torch.testing.assert_close(grows.weight_variance, 1 / (4 * q))
    torch.testing.assert_close(grows.bias_variance, q / 4)
    assert not grows.attracting.any()
    assert critical_line(torch.tanh, q).attracting.all()
    assert critical_line(torch.relu, q).attracting.all()  # every variance stays: slope 1


def test_critical_line_leaves_out_negative_variances_of_biases():
    q = torch.tensor([0.5, 1.0], dtype=torch.float64)
    line = critical_line(lambda z: torch.cos(z) + 1, q)  # E phi^2 > q E phi'^2 there
    assert len(line.variance) == 0
    assert critical_line(torch.relu, q).bias_variance.tolist() == [0.0, 0.0]
    assert len(critical_line(torch.tanh).variance) == 41


def test_results_print_on_one_line():
    field = mean_field(torch.relu, 2.0)
    assert repr(field).startswith("MeanField(expectations=GaussianExpectations(relu, closed form)")
    assert "\n" not in repr(field)
    assert repr(critical_line(torch.relu)).startswith("CriticalLine(variance=float64[41]")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mean_field(torch.relu, 0.0), "weight_variance must be > 0, got 0.0"),
        (lambda: mean_field(torch.relu, math.nan), "weight_variance must be .*, got nan"),
        (lambda: mean_field(torch.relu, 1.0, -0.1), "bias_variance must be >= 0, got -0.1"),
        (lambda: mean_field("relu", 1.0), "activation must be a callable, got 'relu'"),
        (lambda: mean_field(torch.sign, 1.0), "activation must be continuous"),
        (lambda: mean_field(lambda z: torch.exp(z**2), 1.0), "must have a second moment"),
        (lambda: critical_line(torch.relu, torch.ones(2, 2)), "variance must have 1 axes"),
        (lambda: critical_line(torch.relu, -torch.ones(2)), "variance must be >= 0"),
    ],
)
def test_bad_input(call, message, unchecked):
    with pytest.raises(ValueError, match=message):
        call()
