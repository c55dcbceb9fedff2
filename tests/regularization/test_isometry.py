"""Singular values of Jacobians against dense ones, known spectra and random-matrix theory."""

import math

import pytest
import torch
from torch import nn

from vademecum.regularization import _products, dynamical_isometry, isometry
from vademecum.testing import check_instrument


def gaussian_net(n, layers, activation=None, init=None):
    parts: list[nn.Module] = []
    for _ in range(layers):
        linear = nn.Linear(n, n, bias=False, dtype=torch.float64)
        (init or (lambda w: nn.init.normal_(w, std=n**-0.5)))(linear.weight)
        parts += [linear] + ([activation()] if activation else [])
    return nn.Sequential(*parts)


@pytest.mark.parametrize(("d", "k"), [(4, 7), (7, 4)])
def test_values_are_those_of_the_dense_jacobian(d, k):
    model = nn.Sequential(nn.Linear(d, 9), nn.Tanh(), nn.BatchNorm1d(9), nn.Linear(9, k)).double()
    x = torch.randn(3, d, dtype=torch.float64)
    found = dynamical_isometry(model, x)
    assert found.values is not None
    model.eval()
    for row, values in zip(x, found.values, strict=True):
        J = torch.autograd.functional.jacobian(lambda z: model(z[None])[0], row)
        assert torch.allclose(torch.linalg.svdvals(J), values, atol=1e-12)
    squares = found.values**2
    assert found.mean_square == pytest.approx(float(squares.mean()))
    assert found.spread == pytest.approx(float(squares.var(correction=0) / squares.mean() ** 2))
    assert (found.mean_square_error, found.spread_error, found.density) == (0, 0, None)
    assert (found.layers, found.gaussian) == (2, None)  # tanh and statistics are in the way


def test_theory_is_of_independent_layers_and_one_activation():
    layer, other, relu = (nn.Linear(8, 8), nn.Linear(8, 8), nn.ReLU())
    x = torch.randn(2, 8)
    again = dynamical_isometry(nn.Sequential(layer, relu, other, relu), x)
    assert (again.layers, again.gaussian, again.orthogonal) == (2, 4.0, 2.0)
    for model in (nn.Sequential(layer, layer), nn.Sequential(layer, nn.PReLU(8), other)):
        found = dynamical_isometry(model, x)
        assert (found.layers, found.gaussian, found.orthogonal) == (2, None, None)


@pytest.mark.parametrize(
    ("layers", "activation"), [(1, None), (3, nn.ReLU), (2, lambda: nn.LeakyReLU(0.5))]
)
def test_spreads_of_random_networks(layers, activation):
    """The mean of 8 networks of width 100 is within 5 standard errors and 5 % of theory."""
    for init, name in ((None, "gaussian"), (nn.init.orthogonal_, "orthogonal")):
        found = [
            dynamical_isometry(
                gaussian_net(100, layers, activation, init), torch.randn(1, 100).double()
            )
            for _ in range(8)
        ]
        theory = getattr(found[0], name)
        spreads = torch.tensor([f.spread for f in found])
        error = float(spreads.std() / math.sqrt(8))
        assert abs(float(spreads.mean()) - theory) < 5 * error + 0.05 * theory + 1e-12
    slopes = (1.0, {None: 1.0, nn.ReLU: 0.0}.get(activation, 0.5))
    kurtosis = 2 * sum(s**4 for s in slopes) / sum(s**2 for s in slopes) ** 2
    assert found[0].orthogonal == pytest.approx(layers * (kurtosis - 1))
    assert found[0].gaussian == pytest.approx(layers * kurtosis)


def test_quantiles_of_a_product_of_gaussians():
    found = dynamical_isometry(gaussian_net(300, 2), torch.randn(1, 300).double())
    assert found.values is not None
    shares = torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9], dtype=torch.float64)
    measured = torch.quantile(found.values[0], shares)
    assert torch.allclose(found.gaussian_quantiles(shares), measured, rtol=0.08)


@pytest.mark.parametrize("layers", [1, 2, 7, 40])
def test_the_law_of_products_has_the_moments_of_fuss_and_catalan(layers):
    shares = (torch.arange(40_000, dtype=torch.float64) + 0.5) / 40_000
    x = _products.gaussian_quantiles(layers, shares)
    for k in (1, 2, 3):
        moment = math.comb((layers + 1) * k, k) / (layers * k + 1)
        assert float((x**k).mean()) == pytest.approx(moment, rel=2e-3)
    top = float(_products.gaussian_quantiles(layers, torch.ones(1)))
    assert top == pytest.approx((layers + 1) ** (layers + 1) / layers**layers, rel=1e-6)


def test_quarter_circle_for_one_matrix():
    """One Gaussian matrix: s has the density sqrt(4 - s^2) / pi."""
    s = torch.tensor([0.5, 1.0, 1.7], dtype=torch.float64)
    shares = (s * (4 - s**2).sqrt() / 2 + 2 * torch.asin(s / 2)) / math.pi
    assert torch.allclose(_products.gaussian_quantiles(1, shares).sqrt(), s, atol=1e-4)


class Scale(nn.Module):
    """A layer of known singular values."""

    def __init__(self, values):
        super().__init__()
        self.values = nn.Parameter(values)

    def forward(self, x):
        return x * self.values


def test_beyond_two_thousand_values_there_is_a_density():
    values = torch.linspace(0.5, 2, 2100)
    found = dynamical_isometry(Scale(values), torch.randn(2, 2100))
    assert found.values is None
    assert found.density is not None
    squares = values.double() ** 2
    mean, spread = float(squares.mean()), float(squares.var(correction=0) / squares.mean() ** 2)
    # the trace of a diagonal matrix is exact for probes of signs, so errors are rounding
    assert abs(found.mean_square - mean) <= 5 * found.mean_square_error + 1e-5
    assert abs(found.spread - spread) <= 5 * found.spread_error + 1e-5


@pytest.mark.parametrize(("d", "k"), [(60, 40), (40, 60)])
def test_density_and_values_agree(d, k, monkeypatch):
    model = nn.Sequential(nn.Linear(d, 50), nn.ReLU(), nn.Linear(50, k)).double()
    x = torch.randn(2, d, dtype=torch.float64)
    exact = dynamical_isometry(model, x)
    monkeypatch.setattr(isometry, "_EXACT", 10)
    found = dynamical_isometry(model, x, probes=20)
    assert found.mean_square_error > 0
    assert abs(found.mean_square - exact.mean_square) < 5 * found.mean_square_error
    assert abs(found.spread - exact.spread) < 5 * found.spread_error
    assert (found.gaussian, found.orthogonal) == (exact.gaussian, exact.orthogonal)


def test_two_probes_have_an_error_and_one_has_none(monkeypatch, unchecked):
    monkeypatch.setattr(isometry, "_EXACT", 1)
    model, x = nn.Linear(4, 3).double(), torch.randn(1, 4).double()
    found = dynamical_isometry(model, x, probes=2)  # of signs: both exact on the diagonal
    assert found.density is not None
    assert len(found.density.nodes) == 2
    with pytest.raises(ValueError, match="probes must be >= 2, got 1"):
        dynamical_isometry(model, x, probes=1)


class Named(nn.Module):
    """A model with two inputs by name, and an answer with logits."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, embeds, gain):
        return {"logits": self.linear(embeds).tanh() * gain, "rest": gain}


def test_one_input_of_several_by_name():
    model, x = Named(), {"embeds": torch.randn(2, 4), "gain": torch.ones(2, 1)}
    found = dynamical_isometry(model, x, wrt="embeds", output="logits")
    plain = nn.Sequential(model.linear, nn.Tanh())
    expected = dynamical_isometry(plain, x["embeds"])
    assert found.values is not None
    assert expected.values is not None
    assert torch.allclose(found.values, expected.values)


def test_laws():
    def measure(model, x):
        return dynamical_isometry(model, x)[2:6]

    check_instrument(measure, nn.Linear(4, 3), torch.randn(5, 4))


def test_bad_input(unchecked):
    linear, x = nn.Linear(3, 2), torch.ones(1, 3)
    found = dynamical_isometry(linear, x)
    for call, message in [
        (lambda: dynamical_isometry(linear, torch.ones(1, 3).long()), "x must be floating"),
        (lambda: dynamical_isometry(linear, x * math.nan), "x must be finite, got nan"),
        (lambda: dynamical_isometry(Scale(torch.zeros(3)), x), "model must depend on x"),
        (lambda: found.gaussian_quantiles(torch.tensor([1.5])), "shares must be between 0 and 1"),
        (
            lambda: dynamical_isometry(nn.Tanh(), x).gaussian_quantiles(torch.ones(1)),
            "a layer with weights",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu():
    model, x = nn.Sequential(nn.Linear(30, 30), nn.ReLU()), torch.randn(2, 30)
    there = dynamical_isometry(model.cuda(), x.cuda())
    here = dynamical_isometry(model.cpu(), x)
    assert there.values is not None
    assert there.values.is_cuda
    assert there.mean_square == pytest.approx(here.mean_square, rel=1e-4)
