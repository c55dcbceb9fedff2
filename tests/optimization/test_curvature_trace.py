"""Traces and curvature by layer against dense Hessians and Gauss-Newton matrices."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from vademecum.gradients import functional
from vademecum.models import mlp
from vademecum.optimization import curvature_trace, draw_layer_curvature, layer_curvature
from vademecum.testing import check_instrument

X = torch.randn(7, 3, generator=torch.Generator().manual_seed(0)).double()
IMAGES = torch.randn(7, 2, 6, 6, generator=torch.Generator().manual_seed(1)).double()
Y = torch.arange(7) % 3
Z = torch.randn(7, 2, generator=torch.Generator().manual_seed(2)).double()


class Residual(nn.Module):
    """Skip connections, constants and a mean by hand: all piecewise linear."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        h = F.leaky_relu(self.a(x))
        return self.c(torch.cat([(h + 2 * self.b(h).relu() / 3)[:, None], h[:, None]], 1).mean(1))


class Gated(Residual):
    """A product of two activations, which is not."""

    def forward(self, x):
        h = self.a(x).relu()
        return self.c(h * self.b(h).relu())


class ByHand(Residual):
    """A weight that is used twice, once without its layer."""

    def forward(self, x):
        return self.c(F.linear(self.b(self.a(x).relu()).relu(), self.b.weight))


class Divided(Residual):
    """An activation in a denominator."""

    def forward(self, x):
        return self.c(torch.ones_like(x[:, :1]) / (2 + self.a(x).relu()))


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, groups=2), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 3, 2, bias=False), nn.LeakyReLU(), nn.AvgPool2d(2, 1), nn.Flatten(),
        nn.Dropout(), nn.Linear(3, 4), nn.Hardtanh(), nn.Linear(4, 3),
    )  # fmt: skip


def frozen() -> nn.Module:
    net = mlp([3, 5, 4, 3], nn.ReLU)
    net[2].requires_grad_(False)
    return net


def tied() -> nn.Module:
    net = mlp([3, 3, 3, 4], nn.ReLU)
    net[2].weight, net[2].bias = net[0].weight, net[0].bias
    return net


def tokens() -> nn.Module:
    return nn.Sequential(
        nn.Embedding(7, 4), nn.ReLU(), nn.Linear(4, 2), nn.Flatten(), nn.Linear(6, 3)
    )


TOKENS = torch.arange(21).view(7, 3) % 7
EXACT = {
    "relu": (lambda: mlp([3, 6, 5, 3], nn.ReLU), X, Y),
    "linear": (lambda: nn.Linear(3, 2), X, Z),
    "squares": (lambda: mlp([3, 6, 2], nn.ReLU), X, Z),
    "convolutions": (convolutions, IMAGES, Y),
    "residual": (Residual, X, Y),
    "frozen": (frozen, X, Y),
    "tokens": (tokens, TOKENS, Y),
}
PROBED = {
    "tanh": (lambda: mlp([3, 6, 5, 3], nn.Tanh), X, Y),
    "tied": (tied, X, Y),
    "gated": (Gated, X, Y),
    "by hand": (ByHand, X, Y),
    "divided": (Divided, X, Y),
    "layer norm": (lambda: nn.Sequential(nn.Linear(3, 6), nn.LayerNorm(6), nn.Linear(6, 3)), X, Y),
}


def usual(z, y):
    return F.mse_loss(z, y) if y.is_floating_point() else F.cross_entropy(z, y)


def dense_hessian(net, x, y, loss=usual) -> Tensor:
    f = functional(net)
    return torch.func.hessian(lambda theta: loss(f(theta, x), y))(f.theta)


def dense_gauss_newton(net, x, y, loss=usual) -> Tensor:
    f = functional(net)
    z = f(f.theta, x)
    J = torch.func.jacrev(lambda theta: f(theta, x))(f.theta).reshape(z.numel(), -1)
    inner = torch.func.hessian(lambda z: loss(z, y))(z).reshape(z.numel(), z.numel())
    return J.T @ inner @ J


@pytest.mark.parametrize("name", EXACT)
def test_curvature_trace_by_the_layers_rules(name):
    make, x, y = EXACT[name]
    torch.manual_seed(0)
    net = make().double().train()
    found = curvature_trace(net, x, y)
    assert found.value == pytest.approx(float(dense_hessian(net, x, y).trace()), rel=1e-9)
    assert (found.exact, found.standard_error, found.applications) == (True, 0, 0)
    newton = curvature_trace(net, x, y, kind="gauss_newton")
    assert newton.value == pytest.approx(found.value, rel=1e-9)


@pytest.mark.parametrize("name", PROBED)
def test_curvature_trace_by_probes(name):
    make, x, y = PROBED[name]
    torch.manual_seed(0)
    net = make().double()
    wanted = float(dense_hessian(net, x, y).trace())
    found = curvature_trace(net, x, y, applications=24)
    assert not found.exact
    assert found.applications == 24
    assert abs(found.value - wanted) < 6 * found.standard_error
    full = curvature_trace(net, x, y, applications=200)  # more than there are parameters
    assert full.value == pytest.approx(wanted, rel=1e-9)
    assert (full.exact, full.standard_error) == (True, 0)


@pytest.mark.parametrize("name", ["tanh", "tied", "gated", "layer norm"])
def test_curvature_trace_of_gauss_newton(name):
    make, x, y = PROBED[name]
    net = make().double()
    found = curvature_trace(net, x, y, kind="gauss_newton")
    assert found.value == pytest.approx(float(dense_gauss_newton(net, x, y).trace()), rel=1e-9)
    assert (found.exact, found.applications) == (True, 0)


LOSSES = {
    "sum": (lambda z, y: F.cross_entropy(z, y, reduction="sum"), True),
    "ignored": (lambda z, y: F.cross_entropy(z, y, ignore_index=1), True),
    "smoothed": (
        nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 3.0]).double(), label_smoothing=0.1),
        True,
    ),
    "indefinite": (lambda z, y: (z[:, 0] ** 2 * z[:, 1] - z[:, 2] ** 2).mean(), True),
    "linear": (lambda z, y: z.sum(), True),
    "of all together": (lambda z, y: z.sum() ** 2, False),
}


@pytest.mark.parametrize("name", LOSSES)
def test_curvature_trace_of_any_loss(name):
    loss, exact = LOSSES[name]
    net = mlp([3, 6, 3], nn.ReLU).double()
    found = curvature_trace(net, X, Y, loss=loss, applications=44)
    wanted = float(dense_hessian(net, X, Y, loss).trace())
    assert found.exact is exact
    assert found.value == pytest.approx(wanted, rel=1e-9, abs=1e-12 + 6 * found.standard_error)


def test_more_outputs_than_passes_are_probed():
    net = mlp([3, 6, 5], nn.ReLU).double()
    assert curvature_trace(net, X, Y, applications=5).exact
    assert not curvature_trace(net, X, Y, applications=4).exact


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_precisions(dtype):
    net = mlp([3, 6, 3], nn.ReLU).double()
    wanted = curvature_trace(net, X, Y).value
    found = curvature_trace(net.to(dtype), X.to(dtype), Y)
    assert found.exact
    assert found.value == pytest.approx(wanted, rel=1e-5 if dtype == torch.float32 else 0.1)


@pytest.mark.parametrize("unit", [nn.ReLU, nn.Tanh])
def test_little_memory_gives_the_same(unit):
    net = mlp([3, 6, 3], unit).double()
    wanted = float(dense_hessian(net, X, Y).trace())
    found = curvature_trace(net, X, Y, memory=2**13, applications=60)  # for a few examples
    assert found.value == pytest.approx(wanted, rel=1e-9)
    by_layer = layer_curvature(net, X, Y, memory=2**15, applications=100)
    assert abs(float(by_layer.traces.sum()) - wanted) < 1e-9 + 6 * float(
        by_layer.standard_errors.sum()
    )


def test_a_loader_is_all_data_at_once():
    loader = DataLoader(TensorDataset(X, Y), batch_size=3, shuffle=True)
    for unit in (nn.ReLU, nn.Tanh):
        net = mlp([3, 6, 3], unit).double()
        one, other = (curvature_trace(net, *data, applications=60) for data in ((loader,), (X, Y)))
        assert one.exact
        assert one.value == pytest.approx(other.value, rel=1e-9)


# By layer


@pytest.mark.parametrize("name", ["relu", "convolutions", "frozen"])
def test_layer_curvature(name):
    make, x, y = EXACT[name]
    net = make().double()
    found, H = layer_curvature(net, x, y, tol=1e-6), dense_hessian(net, x, y)
    places = {
        p: module for module, layer in net.named_modules() for p in layer._parameters.values()
    }
    start, wanted = 0, {}
    for p in net.parameters():
        wanted.setdefault(places[p], []).extend(range(start, start + p.numel()))
        start += p.numel()
    assert list(found.names) == list(wanted)
    assert found.sizes.tolist() == [len(each) for each in wanted.values()]
    blocks = [H[each][:, each] for each in wanted.values()]
    tops = torch.stack([torch.linalg.eigvalsh(block)[-1] for block in blocks])
    traces = torch.stack([block.trace() for block in blocks])
    torch.testing.assert_close(found.sharpness, tops, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(found.traces, traces, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.shares, traces / H.trace(), rtol=1e-9, atol=1e-12)
    v = torch.linalg.eigh(H).eigenvectors[:, -1]
    parts = torch.stack([v[each].square().sum() for each in wanted.values()])
    torch.testing.assert_close(found.participation, parts, rtol=1e-4, atol=1e-5)
    assert not found.standard_errors.any()
    assert found.converged


def test_layer_curvature_by_probes():
    net = mlp([3, 6, 5, 3], nn.Tanh).double()
    found, H = layer_curvature(net, X, Y, applications=100), dense_hessian(net, X, Y)
    wanted = torch.stack([d.sum() for d in H.diagonal().split(found.sizes.tolist())])
    assert ((found.traces - wanted).abs() < 6 * found.standard_errors).all()
    assert (found.standard_errors > 0).all()
    assert float(found.shares.sum()) == pytest.approx(1)
    assert float(found.participation.sum()) == pytest.approx(1)


def test_draw_layer_curvature():
    found = layer_curvature(mlp([3, 4, 3], nn.ReLU).double(), X, Y)
    axes = draw_layer_curvature(found).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "2"]
    bars: list[Any] = list(axes.patches)
    heights = [bar.get_height() for bar in bars]
    assert heights == pytest.approx([*found.shares.tolist(), *found.participation.tolist()])


def test_laws():
    data = torch.randn(6, 5), torch.randint(3, (6,))
    without = {"no_parameters": "there is nothing to differentiate"}

    def instrument(model, data):
        generator = torch.Generator().manual_seed(0)
        found = layer_curvature(model, *data, applications=4, generator=generator)
        return curvature_trace(model, *data, applications=8, generator=generator), found.traces

    check_instrument(instrument, nn.Linear(5, 3), data, skip=without)


@pytest.mark.usefixtures("unchecked")
def test_errors():
    net = mlp([3, 4, 3], nn.ReLU).double()
    for act, message in [
        (lambda: curvature_trace(net, X, Y, kind="fisher"), "kind must be one of 'hessian'"),
        (lambda: curvature_trace(net, X, Y, applications=0), "applications must be >= 4, got 0"),
        (lambda: curvature_trace(net, X, Y, loss=lambda z, y: z), "one differentiable number"),
        (lambda: curvature_trace(nn.ReLU(), X, Y), "model must have parameters"),
        (lambda: curvature_trace(net, X, Y, loss=lambda z, y: math.nan * (z**2).sum()), "finite"),
        (lambda: layer_curvature(net, X, Y, applications=1), "applications must be >= 2, got 1"),
        (lambda: layer_curvature(net, X, Y, tol=0.0), "tol must be > 0, got 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            act()
