"""Condition numbers and Polyak-Łojasiewicz ratios against closed forms and dense Hessians."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from vademecum.gradients import functional, gradient
from vademecum.models import mlp
from vademecum.optimization import condition_number, pl_constant
from vademecum.testing import check_instrument

X = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)).double()
Y = torch.arange(20) % 3
Z = torch.randn(20, 1, generator=torch.Generator().manual_seed(1)).double()


def test_condition_number_of_least_squares():
    found = condition_number(nn.Linear(3, 1, bias=False).double(), X, Z)
    s = torch.linalg.svdvals(X)
    assert found.value == pytest.approx(float(s[0] / s[-1]) ** 2)
    assert found.largest == pytest.approx(float(2 * s[0] ** 2 / 20))
    assert found.smallest == pytest.approx(float(2 * s[-1] ** 2 / 20))
    assert found.converged


@pytest.mark.parametrize("features", [200, 300])
def test_condition_number_beyond_what_is_made_dense(features):
    spectrum = torch.linspace(1, 3, features).double()
    Q = torch.linalg.qr(torch.randn(features, features).double()).Q
    x = spectrum.sqrt()[:, None] * Q  # x^T x has the spectrum
    net = nn.Linear(features, 1, bias=False).double()
    found = condition_number(net, x, torch.zeros(features, 1).double(), tol=1e-6)
    assert found.value == pytest.approx(3, rel=1e-5)
    assert found.residual <= 1e-6 * found.largest
    assert (found.applications == features) is (features <= 256)


def test_an_indefinite_hessian_has_none():
    torch.manual_seed(0)
    net = mlp([3, 6, 3], nn.Tanh).double()
    f = functional(net)
    H = torch.func.hessian(lambda theta: F.cross_entropy(f(theta, X), Y))(f.theta)
    values, found = torch.linalg.eigvalsh(H), condition_number(net, X, Y)
    assert found.value == math.inf
    assert found.smallest == pytest.approx(float(values[0]), rel=1e-6)
    assert found.smallest < 0
    assert found.largest == pytest.approx(float(values[-1]), rel=1e-9)
    wide = condition_number(mlp([3, 60, 3], nn.Tanh).double(), X, Y)
    assert wide.value == math.inf
    assert wide.smallest < 0


def test_a_singular_hessian_has_none():
    x = torch.cat([X, X[:, :1]], 1)
    assert condition_number(nn.Linear(4, 1).double(), x, Z).value == math.inf


def test_pl_constant_of_least_squares_lies_between_the_eigenvalues():
    s = 2 * torch.linalg.svdvals(X) ** 2 / 20
    best = F.mse_loss(X @ torch.linalg.lstsq(X, Z).solution, Z)
    ratios = []
    for _ in range(20):
        net = nn.Linear(3, 1, bias=False).double()
        found = pl_constant(net, X, Z, minimum=float(best))
        ratios.append(found.value)
        assert float(s[-1]) * (1 - 1e-9) <= found.value <= float(s[0]) * (1 + 1e-9)
        assert found.value == found.squared_norm / (2 * found.gap)
        g = gradient(net, X, Z)
        assert found.squared_norm == pytest.approx(float(g @ g))
        assert found.gap == pytest.approx(F.mse_loss(net(X), Z).item() - float(best))
    assert max(ratios) > 1.05 * min(ratios)


def test_pl_constant_of_one_direction_is_its_eigenvalue():
    values, vectors = torch.linalg.eigh(2 * X.T @ X / 20)
    best = torch.linalg.lstsq(X, Z).solution[:, 0]
    net = nn.Linear(3, 1, bias=False).double()
    for value, vector in zip(values, vectors.T, strict=True):
        with torch.no_grad():
            net.weight[0] = best + 0.7 * vector
        minimum = float(F.mse_loss(X @ best[:, None], Z))
        assert pl_constant(net, X, Z, minimum=minimum).value == pytest.approx(float(value))


def test_a_loader_is_all_data_at_once():
    net, loader = mlp([3, 5, 3]).double(), DataLoader(TensorDataset(X, Y), batch_size=7)
    assert pl_constant(net, loader).value == pytest.approx(pl_constant(net, X, Y).value)
    one, other = condition_number(net, loader), condition_number(net, X, Y)
    assert one.largest == pytest.approx(other.largest)


def test_laws():
    data = torch.randn(6, 5), torch.randint(3, (6,))
    without = {"no_parameters": "there is nothing to differentiate"}

    def instrument(model, data):
        found = condition_number(model, *data, generator=torch.Generator().manual_seed(0))
        return found.largest, found.smallest, pl_constant(model, *data)

    check_instrument(instrument, nn.Linear(5, 3), data, skip=without)


@pytest.mark.usefixtures("unchecked")
def test_errors():
    net = nn.Linear(3, 1, bias=False).double()
    with pytest.raises(ValueError, match=r"loss must be above minimum=100, got \d"):
        pl_constant(net, X, Z, minimum=100.0)
    with pytest.raises(ValueError, match=r"minimum must be .* nan"):
        pl_constant(net, X, Z, minimum=math.nan)
    with pytest.raises(ValueError, match="tol must be > 0"):
        condition_number(mlp([3, 60, 3]).double(), X, Y, tol=0.0)
    with pytest.raises(ValueError, match=r"single or double precision, got torch\.float16"):
        condition_number(net.half(), X.half(), Z.half())
