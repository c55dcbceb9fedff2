"""Models that the layers' rules could misread: with the right numbers, or refused."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint

from tests.gradients.nets import slowly
from tests.gradients.test_jacobian import by_rows
from tests.gradients.test_per_example import loop
from vademecum.gradients import example_norms
from vademecum.gradients.example_norms import gradient_norms
from vademecum.gradients.jacobian_operator import jacobian
from vademecum.gradients.network_function import functional
from vademecum.gradients.per_example import per_example_gradients
from vademecum.gradients.products import hessian, hvp


class Between(nn.Module):
    """Two layers, and something that happens to inputs, in between, or to outputs."""

    def __init__(self, *, before=lambda x: x, between=torch.tanh, after=lambda z: z):
        super().__init__()
        self.first, self.second = nn.Linear(6, 4), nn.Linear(4, 3)
        self.before, self.between, self.after = before, between, after

    def forward(self, x):
        return self.after(self.second(self.between(self.first(self.before(x)))))


def partly(h):
    h[:, :2].mul_(3)
    h[:, 2:] = h[:, 2:].tanh()
    return h


def pruned():
    net = Between()
    prune.l1_unstructured(net.first, "weight", 0.5)
    return net


def guest():
    """A parameter that a layer holds for somebody else."""
    net: Any = Between(between=lambda h: torch.tanh(h) * net.first.gain)
    net.first.gain = nn.Parameter(torch.tensor(2.0))
    return net


def patched():
    net: Any = Between()
    net.first.forward = lambda x: F.linear(x, 2 * net.first.weight, net.first.bias)
    return net


class TwoNames(nn.Module):
    def __init__(self):
        super().__init__()
        weight = nn.Parameter(torch.randn(6, 6))
        self.weights, self.out = nn.ParameterList([weight, weight]), nn.Linear(6, 3)

    def forward(self, x):
        return self.out(torch.tanh(x @ self.weights[0]) @ self.weights[1])


class Sorted(Between):
    """Examples in the order of their first feature, as for sequences of different lengths."""

    def forward(self, x):
        order = x[:, 0].argsort()
        return super().forward(x[order])[order.argsort()]


class Scaled(nn.Module):
    """A first layer that works in place."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        return self.layer(x.mul_(2).add_(1))


class Clamp(torch.autograd.Function):
    """Written for autograd alone, without what `torch.func` asks for."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx, *g):
        return g[0] * (ctx.saved_tensors[0].abs() < 1)


class ByHand(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 3))

    def forward(self, x):
        return Clamp.apply(self.weight.mT @ x.mT).mT


def sparse():
    return nn.Sequential(nn.Embedding(7, 4, sparse=True), nn.Flatten(), nn.Linear(20, 3))


X = torch.randn(5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LATE = X.clone()  # only the second and the fourth change places, which no first look sees
LATE[:, 0] = torch.tensor([0.0, 3.0, 2.0, 1.0, 4.0])
TOKENS = torch.tensor([[0, 1, 2, 3, 4], [1, 1, 6, 6, 5], [5, 0, 5, 0, 5]])
MODELS = {
    "pruned": (pruned, X),
    "guest": (guest, X),
    "patched": (patched, X),
    "two names": (TwoNames, X),
    "sorted": (Sorted, X),
    "sorted late": (Sorted, LATE),
    "flipped": (lambda: Between(before=lambda x: x.flip(0), after=lambda z: z.flip(0)), X),
    "in place": (Scaled, X),
    "in place on a view": (lambda: Between(between=partly), X),
    "function for autograd": (ByHand, X),
    "views": (lambda: Between(before=lambda x: x.view(-1).view(-1, 6)), X),
    "sparse": (sparse, TOKENS),
    "of inputs that require gradients": (Between, X.clone().requires_grad_()),
}


def made(name):
    build, x = MODELS[name]
    return build().double(), x.detach().clone().requires_grad_(x.requires_grad)


def plain(net, x, y, v):
    """Gradients in a loop, the Jacobian row by row and a product with the Hessian: autograd's."""
    embeddings = [module for module in net.modules() if isinstance(module, nn.Embedding)]
    for module in embeddings:
        module.sparse = False
    parameters, x = list(net.parameters()), x.detach()
    value = F.cross_entropy(net.eval()(x.clone()), y)
    gradient = torch.autograd.grad(value, parameters, create_graph=True)
    along = torch.cat([g.flatten() for g in gradient]) @ v
    product = torch.autograd.grad(along, parameters)
    found = loop(net, x.clone(), y), by_rows(net, x.clone())
    for module in embeddings:
        module.sparse = True
    return *found, torch.cat([g.flatten() for g in product])


@pytest.mark.parametrize("name", MODELS)
def test_derivatives_in_parameters(name):
    net, x = made(name)
    y, v = torch.arange(len(x)) % 3, torch.randn(functional(net).size).double()
    u, before = torch.randn(3 * len(x)).double(), x.detach().clone()
    gradients, matrix, product = plain(net, x, y, v)
    with slowly(name == "function for autograd"):
        found = per_example_gradients(net, x, y, loss=F.cross_entropy)
        norms = gradient_norms(net, x, y, loss=F.cross_entropy)
        J = jacobian(net, x)
        torch.testing.assert_close(J.dense(), matrix)
        torch.testing.assert_close(J.blocks().flatten(0, 1), matrix)
    torch.testing.assert_close(found, gradients)
    torch.testing.assert_close(norms, gradients.norm(dim=1))
    torch.testing.assert_close(J @ v, matrix @ v)
    torch.testing.assert_close(J.T @ u, matrix.T @ u)
    torch.testing.assert_close(hvp(net, x, y, v, loss=F.cross_entropy), product)
    assert torch.equal(x, before)


@pytest.mark.parametrize("name", sorted(MODELS.keys() - {"sparse"}))
def test_derivatives_in_inputs(name):
    net, x = made(name)
    wanted = torch.autograd.functional.jacobian(lambda x: net.eval()(x.clone()), x)
    J = jacobian(net, x, wrt="x")
    torch.testing.assert_close(J.dense(), wanted.flatten(2).flatten(0, 1))
    v = torch.randn(J.shape[1]).double()
    torch.testing.assert_close(J @ v, J.dense() @ v)


def test_embeddings_are_sparse_again():
    net = sparse()
    per_example_gradients(net, TOKENS, torch.tensor([0, 1, 2]), loss=F.cross_entropy)
    assert net[0].sparse


class OverTime(nn.Module):
    """Time comes first: the first step knows of no other, but the last knows of all."""

    def __init__(self):
        super().__init__()
        self.cell = nn.RNN(6, 3)

    def forward(self, x):
        return self.cell(x)[0]


ENTANGLED = {
    "over time": (OverTime, X),
    "running sum": (lambda: Between(after=lambda z: z.cumsum(0)), X),
    "centred": (lambda: Between(after=lambda z: z - z.mean(0)), X),
    "centred, equal examples": (lambda: Between(after=lambda z: z - z.mean(0)), 0 * X),
    "centred, nearly zero": (lambda: Between(after=lambda z: 1e-9 * (z - z.mean(0))), X),
    "by place": (lambda: Between(after=lambda z: z * torch.arange(1, len(z) + 1)[:, None]), X),
}


@pytest.mark.parametrize("name", ENTANGLED)
def test_examples_that_influence_each_other_are_seen(name):
    build, x = ENTANGLED[name]
    net = build().double()
    with pytest.raises(ValueError, match="model must treat examples independently"):
        per_example_gradients(net, x, torch.zeros(len(x)), loss=lambda z, y: z.sum())
    for wrt in ("theta", "x"):
        with pytest.raises(ValueError, match="model must treat examples independently"):
            jacobian(net, x, wrt=wrt).blocks()
    torch.testing.assert_close(jacobian(net, x).dense(), by_rows(net, x), rtol=1e-6, atol=1e-14)
    wanted = torch.autograd.functional.jacobian(net, x).reshape(-1, x.numel())
    torch.testing.assert_close(jacobian(net, x, wrt="x").dense(), wanted, rtol=1e-6, atol=1e-14)


def test_inputs_without_examples_have_a_jacobian():
    class OnGraph(nn.Linear):
        def forward(self, x, edges):  # pyright: ignore[reportIncompatibleMethodOverride]
            return super().forward(x.index_add(0, edges[1], x[edges[0]]))

    net, edges = OnGraph(6, 3).double(), torch.tensor([[0, 1, 2], [1, 2, 3]])
    torch.testing.assert_close(jacobian(net, (X, edges)).dense(), by_rows(net, (X, edges)))
    with pytest.raises(ValueError, match="equally many examples"):
        jacobian(net, (X, edges)).blocks()


def test_weights_called_twice_go_in_portions(monkeypatch):
    layer = nn.Linear(6, 6)
    net = nn.Sequential(layer, nn.Tanh(), layer, nn.Tanh(), layer).double()
    y = torch.tensor([0, 1, 2, 3, 4])
    wanted = loop(net, X, y)
    monkeypatch.setattr(example_norms, "_PORTION", 2 * 42 * 8)
    torch.testing.assert_close(per_example_gradients(net, X, y, loss=F.cross_entropy), wanted)
    torch.testing.assert_close(gradient_norms(net, X, y, loss=F.cross_entropy), wanted.norm(dim=1))


def test_a_hessian_through_checkpoints_is_refused():
    net = Between(between=lambda h: checkpoint(torch.tanh, h, use_reentrant=False)).double()
    y = torch.zeros(5, dtype=torch.long)
    with pytest.raises(RuntimeError, match="model must not use checkpoints"):
        hessian(net, X, y, loss=F.cross_entropy)


def test_a_hessian_that_is_zero():
    x = X.clone().requires_grad_()  # so that the gradient depends on something else
    found = hvp(
        nn.Linear(6, 3).double(), x, None, torch.ones(21).double(), loss=lambda z, y: z.sum()
    )
    assert (found == 0).all()


def test_inference_mode_is_named():
    net, y = Between().double(), torch.zeros(5, dtype=torch.long)
    with torch.inference_mode(), pytest.raises(ValueError, match=r"in torch.inference_mode\(\)"):
        per_example_gradients(net, X, y, loss=F.cross_entropy)
    with torch.inference_mode():
        x = X.clone()
    wanted = per_example_gradients(net, X, y, loss=F.cross_entropy)
    torch.testing.assert_close(per_example_gradients(net, x, y, loss=F.cross_entropy), wanted)


def test_gradients_that_are_no_derivatives_are_refused():
    net = nn.Sequential(nn.Embedding(7, 4, scale_grad_by_freq=True), nn.Flatten(), nn.Linear(20, 3))
    with pytest.raises(ValueError, match="must not have scale_grad_by_freq, which is set in '0'"):
        jacobian(net, TOKENS)
