"""Read-outs against normal equations in NumPy; random features where they are drawn."""

import inspect
import math

import numpy as np
import pytest
import torch
from torch import nn

from vademecum.approximation.random_features import fit_readout, random_feature_fit


@pytest.mark.parametrize("alpha", [0.0, 0.3])
@pytest.mark.parametrize("targets", [(), (3,)])
def test_normal_equations(alpha, targets):
    x, y = torch.randn(30, 4).double(), torch.randn(30, *targets).double()
    features = nn.Sequential(nn.Linear(4, 6).double(), nn.Tanh())
    before = [p.clone() for p in features.parameters()]
    layer = fit_readout(features, x, y, alpha=alpha)
    f = np.concatenate([np.ones((30, 1)), features(x).detach().numpy()], 1)
    penalty = alpha * np.diag([0.0] + [1.0] * 6)
    v = np.linalg.solve(f.T @ f + penalty, f.T @ y.reshape(30, -1).numpy())
    assert layer.weight.detach().numpy() == pytest.approx(v[1:].T)
    assert layer.bias.detach().numpy() == pytest.approx(v[0])
    assert all(torch.equal(p, q) for p, q in zip(before, features.parameters(), strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_random_features(dtype):
    x = torch.randn(200, 3, dtype=dtype)
    y = x.square().sum(1, keepdim=True) * torch.tensor([1.0, -2.0], dtype=dtype)
    net = random_feature_fit(x, y, 150, activation=nn.Tanh(), scale=1.5)
    net.requires_grad_(False)
    assert net[0].weight.dtype == dtype
    # every unit is centred at a data point, and has slopes of the size that was asked for
    assert (net[0](x).abs().amin(0) < 1e-4).all()
    tau = (x - x.mean(0)).square().sum(1).mean()
    w = net.get_parameter("0.weight")
    assert float(w.square().mean() * tau) == pytest.approx(1.5**2, rel=0.3)
    fresh = torch.randn(50, 3, dtype=dtype)
    truth = fresh.square().sum(1, keepdim=True) * torch.tensor([1.0, -2.0], dtype=dtype)
    near = fresh.norm(dim=1) < 1.5
    assert float((net(fresh) - truth)[near].abs().max()) < 0.2
    assert float((net(x) - y).abs().mean()) < 0.05


def test_interpolates_and_repeats():
    x, y = torch.randn(20, 2).double(), torch.randn(20).double()
    seeded = [
        random_feature_fit(x, y, 100, generator=torch.Generator().manual_seed(3)) for _ in range(2)
    ]
    torch.testing.assert_close(seeded[0](x)[:, 0], y)
    assert torch.equal(seeded[0](x), seeded[1](x))
    ridge = random_feature_fit(x, y, 100, alpha=1e9, generator=torch.Generator().manual_seed(3))
    assert (ridge(x)[:, 0] - y.mean()).abs().max().item() < 1e-4


def test_features_are_taken_in_evaluation_and_left_as_they_are():
    features = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5)).train()
    x, y = 5 + torch.randn(40, 3), torch.randn(40)
    layer = fit_readout(features, x, y)
    assert features.training
    assert not features.get_buffer("0.running_mean").any()
    plain = fit_readout(nn.Identity(), x, y)
    torch.testing.assert_close(layer(features.eval()(x)), plain(x), rtol=1e-3, atol=1e-4)


X, Y = torch.linspace(-1, 2, 10).view(5, 2), torch.linspace(1, -1, 5)
ERRORS = [
    (random_feature_fit, (X, Y, 0), {}, "m must be >= 1, got 0"),
    (random_feature_fit, (X, Y, 2.5), {}, "m must be an integer, got 2.5"),
    (random_feature_fit, (X[0], Y, 2), {}, "x must have 2 axes"),
    (random_feature_fit, (X, Y[:4], 2), {}, r"y must have 5 rows, got shape \(4,\)"),
    (random_feature_fit, (X, Y.double(), 2), {}, "y must be torch.float32"),
    (random_feature_fit, (X * math.nan, Y, 2), {}, "x must be finite"),
    (random_feature_fit, (X, Y * math.inf, 2), {}, "y must be finite"),
    (random_feature_fit, (X.long(), Y, 2), {}, "x must be floating point"),
    (random_feature_fit, (X[:0], Y[:0], 2), {}, "x must not be empty"),
    (random_feature_fit, (torch.ones(5, 2), Y, 2), {}, "x must have points that differ"),
    (random_feature_fit, (X, Y, 2), {"scale": 0.0}, "scale must be > 0, got 0.0"),
    (random_feature_fit, (X, Y, 2), {"scale": math.inf}, "scale must be <= 3.4.*, got inf"),
    (random_feature_fit, (X, Y, 2), {"alpha": -1.0}, "alpha must be >= 0, got -1.0"),
    (fit_readout, (nn.Flatten(0), X, Y), {}, r"features\(x\) must have 2 axes"),
    (fit_readout, (nn.Identity(), X, Y[None]), {}, "y must have 5 rows"),
    (fit_readout, (nn.Identity(), X, Y), {"alpha": math.nan}, "alpha must be .* got nan"),
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
    here = random_feature_fit(x, y, 20, generator=torch.Generator().manual_seed(0))
    seeded = torch.Generator().manual_seed(0)
    there = random_feature_fit(x.cuda(), y.cuda(), 20, generator=seeded)
    torch.testing.assert_close(there(x.cuda()).cpu(), here(x))


@pytest.mark.parametrize("alpha", [0.0, 1e-3])
def test_features_of_mere_rounding_have_no_weight(alpha):
    """A ReLU that bends at the outermost example is about 1e-17 there, and zero at the others."""
    x = torch.randn(50, 3, dtype=torch.float64)
    y = torch.randn(50, dtype=torch.float64)
    x[:, 1] = 0
    x[7, 1] = 1e-17
    found = fit_readout(nn.Identity(), x, y, alpha=alpha)
    wanted = fit_readout(nn.Identity(), x[:, ::2], y, alpha=alpha)
    assert found.weight[0, 1] == 0
    torch.testing.assert_close(found.weight[:, ::2], wanted.weight)
