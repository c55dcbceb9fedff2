"""Second derivatives that torch gets wrong: avoided, or refused by the name of the layer."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from tests.gradients.test_products import CENTRAL, central
from vademecum.gradients import functional, hessian, hvp
from vademecum.gradients.products import pull
from vademecum.models import mlp

X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).double()
Y = torch.tensor([0, 1, 1, 0])


def weight_normed(old, dim, layer):
    warned = pytest.warns(FutureWarning, match="weight_norm") if old else nullcontext()
    with warned:
        norm = nn.utils.weight_norm if old else parametrizations.weight_norm
        return norm(layer, dim=dim)


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize("dim", [0, 1, 2, None])
def test_weight_normalisation_has_its_own_second_derivative(old, dim):
    first = weight_normed(old, dim, nn.Conv1d(1, 2, 2))
    last = weight_normed(old, None if dim is None else min(dim, 1), nn.Linear(4, 2))
    net = nn.Sequential(nn.Unflatten(1, (1, 3)), first, nn.Tanh(), nn.Flatten(), last).double()
    f, v = functional(net), torch.randn(functional(net).size).double()
    wanted = central(lambda theta: F.cross_entropy(f(theta, X), Y), f.theta)
    torch.testing.assert_close(f(f.theta, X), net.eval()(X))
    H = hessian(net, X, Y).dense()
    torch.testing.assert_close(H, wanted, **CENTRAL)
    torch.testing.assert_close(H, H.T)
    torch.testing.assert_close(hvp(net, X, Y, v), H @ v)
    through = torch.func.hessian(lambda theta: F.cross_entropy(f(theta, X), Y))(f.theta)
    torch.testing.assert_close(through, H)


class HalfRight(torch.autograd.Function):
    """The square, whose backward pass forgets that it depends on the input."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x.sum()

    @staticmethod
    def backward(ctx, *g):
        (x,) = ctx.saved_tensors
        return g[0] * x.sum().detach() + (g[0] * x).sum()


class Faulty(nn.Linear):
    def forward(self, input):
        return F.linear(input, HalfRight.apply(self.weight), self.bias)


def faulty(dtype=torch.float64):
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Sequential(Faulty(4, 4)), nn.Linear(4, 2))
    return net.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_hessian_that_is_not_symmetric_is_refused(dtype):
    net, x = faulty(dtype), X.to(dtype)
    v = torch.randn(functional(net).size).to(dtype)
    named = r"symmetric second derivatives, .* through '2.0' \(Faulty\)"
    for _ in range(2):  # and again
        with pytest.raises(ValueError, match=named):
            hvp(net, x, Y, v)
    H = hessian(net, x, Y)
    with pytest.raises(ValueError, match=named):
        H.dense()
    with pytest.raises(ValueError, match=named):
        _ = H @ torch.eye(len(v)).to(dtype)[:, 20]


def test_a_model_is_asked_once(monkeypatch):
    calls = []
    monkeypatch.setattr(
        "vademecum.gradients.products.pull", lambda *args: calls.append(1) or pull(*args)
    )
    net, v = mlp([3, 4, 2], nn.Tanh).double(), torch.randn(26).double()
    H = hessian(net, X, Y)
    for wanted in (2, 3, 4):
        _ = H @ v
        assert len(calls) == wanted
    hvp(net, X, Y, v)
    assert len(calls) == 5


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1000.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounding_is_no_asymmetry(dtype, scale):
    """Also where the loss is flat and its curvature is nothing but rounding."""
    for _ in range(20):
        net = mlp([3, 8, 8, 2], nn.Tanh)
        net[-1].weight.data *= scale
        net, x = net.to(dtype), X.to(dtype)
        y = net(x).argmax(1)
        v = torch.randn(functional(net).size).to(dtype)
        assert hvp(net, x, y, v).isfinite().all()


def test_a_product_that_tells_nothing_does_not_count():
    net = faulty()
    H, e = hessian(net, X, Y), torch.eye(functional(net).size).double()
    assert not (H @ (0 * e[0])).any()  # no direction
    _ = H @ e[-1]  # one in which all is well
    flat = hessian(net, X, Y, loss=lambda z, y: 0 * z.sum())
    assert not (flat @ e.sum(0)).any()  # no curvature
    with pytest.raises(ValueError, match="symmetric second derivatives"):
        _ = H @ e.sum(0)


def test_differences_where_all_parameters_are_zero():
    net = Faulty(3, 2).double()
    for p in net.parameters():
        nn.init.zeros_(p)
    with pytest.raises(ValueError, match=r"symmetric second derivatives, .* the model itself"):
        hvp(net, X, Y, torch.randn(8, generator=torch.Generator().manual_seed(0)).double())
