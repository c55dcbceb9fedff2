"""Gaussian integrals against closed forms, SciPy's adaptive quadrature and finite differences."""

import itertools
import math

import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm
from torch import nn
from torch.nn import functional as F

from vademecum.expectations import GaussianExpectations, hermite_coefficients

CORRELATIONS = (0.0, 0.5, -0.7, 0.99, -0.99, 1 - 1e-6, 1e-9 - 1, 1 - 1e-14, 1.0, -1.0)
VARIANCES = ((1.0, 1.0), (1e-6, 3.0), (2.0, 1e6), (0.3, 7.0))


def arc_cosine(q, c, p):
    """E relu(u) relu(v): Cho and Saul's kernel of degree 1, by the angle."""
    angle = math.acos(c)
    return math.sqrt(q * p) / (2 * math.pi) * (math.sin(angle) + (math.pi - angle) * c)


def arc_sine(q, c, p):
    """E erf(u) erf(v): Williams' kernel."""
    return 2 / math.pi * math.asin(2 * c * math.sqrt(q * p / (1 + 2 * q) / (1 + 2 * p)))


KERNELS = {
    "relu": (torch.relu, arc_cosine),
    "relu, integrated": (lambda z: z.relu(), arc_cosine),
    "erf": (torch.erf, arc_sine),
    "erf, integrated": (lambda z: torch.erf(z), arc_sine),
    "sign, integrated": (torch.sign, lambda q, c, p: 2 / math.pi * math.asin(c)),
    "identity": (nn.Identity(), lambda q, c, p: c * math.sqrt(q * p)),
    "identity, integrated": (lambda z: 1 * z, lambda q, c, p: c * math.sqrt(q * p)),
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("q", "p"), VARIANCES)
def test_products_are_known_kernels(name, q, p):
    activation, kernel = KERNELS[name]
    integrals = GaussianExpectations(activation)
    assert integrals.exact == ("integrated" not in name)
    size = math.sqrt(kernel(q, 1.0, q) * kernel(p, 1.0, p))
    for c in CORRELATIONS:
        found = float(integrals.product(q, c, p))
        rounding = 3e-15 + 3e-16 * (math.sqrt(size) > 1)  # acos of the oracle loses some near 1
        assert found == pytest.approx(kernel(q, c, p), abs=10 * rounding * size), c
    assert float(integrals.square(q)) == pytest.approx(kernel(q, 1.0, q), rel=1e-14)


@pytest.mark.parametrize("activation", [torch.relu, lambda z: z.relu()])
def test_products_of_slopes_are_the_share_of_both_on(activation):
    integrals = GaussianExpectations(activation)
    for c in CORRELATIONS:
        both = 0.25 + math.asin(c) / (2 * math.pi)
        assert float(integrals.slope_product(0.7, c, 3.0)) == pytest.approx(both, abs=1e-14)
    assert float(integrals.slope(3.0)) == pytest.approx(0.5, abs=1e-15)


def test_erf_slopes_by_closed_form_and_quadrature():
    known, found = GaussianExpectations(torch.erf), GaussianExpectations(lambda z: z.erf())
    for q, p in VARIANCES:
        for c in CORRELATIONS:
            det = 1 + 2 * (q + p) + 4 * q * p * (1 - c) * (1 + c)
            expected = 4 / math.pi / math.sqrt(det)
            assert float(known.slope_product(q, c, p)) == pytest.approx(expected, rel=1e-13)
            assert float(found.slope_product(q, c, p)) == pytest.approx(expected, rel=1e-11)


def test_exponentials_and_cosines():
    exp, cos = GaussianExpectations(torch.exp), GaussianExpectations(torch.cos)
    for q, p, c in ((1.0, 1.0, 0.5), (2.0, 0.3, -0.8), (0.1, 4.0, 1 - 1e-7)):
        half, cross = (q + p) / 2, c * math.sqrt(q * p)
        assert float(exp.product(q, c, p)) == pytest.approx(math.exp(half + cross), rel=1e-13)
        value = math.exp(-half) * math.cosh(cross)
        assert float(cos.product(q, c, p)) == pytest.approx(value, abs=1e-14)
        assert float(cos.mean(q)) == pytest.approx(math.exp(-q / 2), rel=1e-13)


LAYERS = {
    "tanh": (nn.Tanh(), []),
    "gelu": (nn.GELU(), []),
    "silu": (F.silu, []),
    "hardswish": (nn.Hardswish(), [-3, 3]),
    "relu6": (nn.ReLU6(), [0, 6]),
    "hardtanh": (nn.Hardtanh(-0.3, 1.7), [-0.3, 1.7]),
    "selu": (nn.SELU(), [0]),
    "softsign": (F.softsign, [0]),
    "softshrink": (nn.Softshrink(0.4), [-0.4, 0.4]),
    "hardshrink": (nn.Hardshrink(0.4), [-0.4, 0.4]),
    "tanhshrink": (nn.Tanhshrink(), []),
    "leaky": (nn.LeakyReLU(0.2), [0]),
    "prelu": (nn.PReLU(init=0.375), [0]),
    "root": (lambda z: z.abs().sqrt(), [0]),
    "shifted abs": (lambda z: (z - 0.123456).abs(), [0.123456]),
}


def adaptive(f, q, kinks):
    """SciPy's integral of f under N(0, q), piece by piece."""
    root = math.sqrt(q)
    ends = [-12.0, *[k / root for k in kinks if abs(k / root) < 12], 12.0]
    ends = sorted({*ends, *range(-12, 13, 2)})
    return math.fsum(
        quad(lambda z: f(root * z) * norm.pdf(z), a, b, epsabs=1e-15, epsrel=1e-13, limit=100)[0]
        for a, b in itertools.pairwise(ends)
    )


@pytest.mark.parametrize("name", LAYERS)
def test_moments_agree_with_adaptive_quadrature(name):
    activation, kinks = LAYERS[name]
    integrals = GaussianExpectations(activation)
    model = activation.double() if isinstance(activation, nn.Module) else activation

    def value(u):
        return float(model(torch.tensor([u], dtype=torch.float64)).detach())

    for q in (0.2, 5.0):
        square = adaptive(lambda u: value(u) ** 2, q, kinks)
        assert float(integrals.square(q)) == pytest.approx(square, rel=1e-11)
        mean = adaptive(value, q, kinks)
        assert float(integrals.mean(q)) == pytest.approx(mean, abs=1e-11 * math.sqrt(square))


@pytest.mark.parametrize("name", ["tanh", "hardtanh", "selu", "softsign", "softshrink"])
@pytest.mark.parametrize("c", [0.3, -0.9, 0.9999])
def test_price_links_products_and_their_slopes(name, c):
    """The derivative in the correlation, by differences of the product, is that of the slopes."""
    integrals = GaussianExpectations(LAYERS[name][0])
    step = 1e-4 * (1 - abs(c))
    q, p = 1.7, 0.6
    points = torch.tensor([-2.0, -1.0, 1.0, 2.0], dtype=torch.float64)
    at = integrals.product(q, c + step * points, p)
    difference = float(at @ torch.tensor([1.0, -8.0, 8.0, -1.0], dtype=torch.float64)) / 12 / step
    expected = math.sqrt(q * p) * float(integrals.slope_product(q, c, p))
    assert difference == pytest.approx(expected, abs=1e-14 / step + 1e-9)


@pytest.mark.parametrize("activation", [lambda z: z.relu(), torch.tanh, F.hardswish, torch.erf])
def test_gradients(activation):
    integrals = GaussianExpectations(activation)
    q, p, c = (torch.tensor(v, dtype=torch.float64) for v in ([0.7, 2.0], [1.3, 0.2], [0.4, -0.9]))
    for x in (q, p, c):
        x.requires_grad_()
    assert torch.autograd.gradcheck(integrals.product, (q, c, p))
    assert torch.autograd.gradcheck(integrals.mean, (q,))
    assert torch.autograd.gradcheck(integrals.square, (q,))
    if activation in (torch.tanh, torch.erf):
        assert torch.autograd.gradcheck(integrals.slope_product, (q, c, p))
        assert torch.autograd.gradcheck(integrals.slope, (q,))


@pytest.mark.parametrize("activation", [torch.relu, lambda z: z.relu(), torch.tanh])
def test_gradient_at_correlation_one_is_finite(activation):
    integrals = GaussianExpectations(activation)
    c = torch.ones((), dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(integrals.product(2.0, c), c)
    assert float(found) == pytest.approx(2 * float(integrals.slope(2.0)), rel=1e-13)


def test_shapes_dtypes_and_broadcasting():
    integrals = GaussianExpectations(torch.tanh)
    q, c = torch.tensor([[0.5], [2.0]]), torch.tensor([0.1, 0.9, -1.0])
    found = integrals.product(q, c)
    assert found.shape == (2, 3)
    assert found.dtype == torch.float32
    assert found[1, 1].item() == pytest.approx(float(integrals.product(2.0, 0.9)), rel=1e-6)
    assert integrals.mean(1.0).dtype == torch.float64
    assert integrals.square(torch.zeros(2)).tolist() == [0.0, 0.0]


def test_a_module_is_called_in_evaluation_mode_and_stays_as_it_is():
    model = nn.Sequential(nn.Dropout(0.5), nn.PReLU(init=0.5), nn.Tanh())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = GaussianExpectations(model).square(2.0)
    same = GaussianExpectations(lambda z: torch.tanh(torch.where(z > 0, z, z / 2))).square(2.0)
    assert float(found) == pytest.approx(float(same), rel=1e-13)
    assert model.training
    assert all(v.equal(before[k]) for k, v in model.state_dict().items())
    assert model[1].weight.dtype == torch.float32
    assert model[1].weight.grad is None


def test_representation():
    assert repr(GaussianExpectations(nn.ReLU())) == "GaussianExpectations(ReLU, closed form)"
    assert repr(GaussianExpectations(torch.tanh)) == "GaussianExpectations(tanh, quadrature)"


REFUSED = {
    "no callable": (3, "activation must be a callable, got 3"),
    "class": (nn.ReLU, "must be a callable"),
    "mixing": (nn.Softmax(0), "must act on each number alone"),
    "sum": (torch.sum, r"a real number for each of 5, got shape \(\)"),
    "random": (torch.randn_like, "must act on each number alone"),
    "slopes": (nn.PReLU(3), "one function for all units, got nn.PReLU with 3 slopes"),
    "no moment": (lambda z: torch.exp(z**2 / 4), "second moment under a Gaussian of variance 1"),
    "overflow": (lambda z: torch.exp(z**4), "must be finite, got inf at"),
    "NaN": (torch.log, "must be finite, got nan at -17"),
    "pole": (lambda z: 1 / z, "must be smooth but for a few kinks"),
    "single precision": (lambda z: z.float().tanh(), "must be smooth but for a few kinks"),
    "complex": (lambda z: z + 0j, "a real number"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_activations_without_a_second_moment_are_refused(name):
    activation, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        GaussianExpectations(activation).square(1.0)


def test_bad_numbers(unchecked):
    integrals = GaussianExpectations(torch.relu)
    for call, message in [
        (lambda: integrals.mean(-1.0), "variance must be >= 0, got -1.0"),
        (lambda: integrals.square(math.nan), "variance must be finite, got nan"),
        (lambda: integrals.product(1.0, 1.1), "correlation must be between -1 and 1, got 1.1"),
        (lambda: integrals.product(1.0, 0.5, -2.0), "other must be >= 0, got -2.0"),
        (lambda: integrals.mean(torch.ones(2, dtype=torch.int64)), "variance must be floating"),
        (
            lambda: integrals.product(torch.ones(2), torch.ones(3)),
            r"must broadcast, got variance: \(2,\), correlation: \(3,\)",
        ),
        (
            lambda: GaussianExpectations(torch.sign).slope(1.0),
            "must be continuous where its derivative is integrated, got a jump at 0",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


def test_slopes_with_kinks_are_not_differentiated_wrongly():
    q = torch.ones((), dtype=torch.float64, requires_grad=True)
    with pytest.raises(ValueError, match="continuous slope"):
        GaussianExpectations(F.relu6).slope(q).backward()


@pytest.mark.parametrize("order", [0, 1])
def test_hermite_coefficients_of_the_exponential(order):
    """E exp(s z) h_k(z) = exp(s^2 / 2) s^k / sqrt(k!), and E exp(2 s z) = exp(2 s^2)."""
    q = torch.tensor([0.5, 2.0], dtype=torch.float64)
    found = hermite_coefficients(GaussianExpectations(torch.exp), q, 30, order=order)
    k = torch.arange(30, dtype=torch.float64)
    wanted = torch.exp(q[:, None] / 2 + k * q[:, None].log() / 2 - torch.lgamma(k + 1) / 2)
    torch.testing.assert_close(found.values, wanted, rtol=1e-10, atol=5e-11)  # beyond reach
    torch.testing.assert_close(found.square, torch.exp(2 * q), rtol=1e-11, atol=0)
