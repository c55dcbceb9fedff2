"""Parameters that a model's code finds in plain attributes: in lists, tuples, dicts, or bare."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.gradients import (
    backprop,
    functional,
    gradient,
    gradient_norms,
    hvp,
    jacobian,
    per_example_gradients,
)
from vademecum.models import ModelState
from vademecum.testing.laws import changes, snapshot

X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).double()
Y = torch.tensor([0, 1, 1, 0])


class Held(nn.Module):
    """A layer, and a weight that is reached by other ways than as a parameter."""

    weights: Any
    one: Tensor
    two: Tensor

    def __init__(self, way: str):
        super().__init__()
        self.first, self.w = nn.Linear(3, 3), nn.Parameter(torch.randn(3, 2))
        self.way = way
        match way:
            case "list":
                self.weights = [self.first.weight, self.w]
            case "tuple":
                self.weights = (self.first.weight, self.w)
            case "dict":
                self.weights = {"two": [self.first.weight, self.w]}
            case _:
                vars(self)["one"], vars(self)["two"] = self.first.weight, self.w

    def forward(self, x: Tensor) -> Tensor:
        if self.way == "bare":
            one, two = self.one, self.two
        else:
            one, two = self.weights["two"] if self.way == "dict" else self.weights
        return torch.tanh(F.linear(torch.tanh(self.first(x)), one)) @ two


@pytest.fixture(params=["list", "tuple", "dict", "bare"])
def net(request):
    return Held(request.param).double()


def rows(net):
    found = []
    for i in range(len(X)):
        loss = F.cross_entropy(net(X[i : i + 1]), Y[i : i + 1])
        found.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, net.parameters())]))
    return torch.stack(found)


def test_gradients_know_them(net):
    before, wanted = snapshot(net), rows(net)
    torch.testing.assert_close(per_example_gradients(net, X, Y), wanted)
    torch.testing.assert_close(gradient_norms(net, X, Y), wanted.norm(dim=1))
    torch.testing.assert_close(gradient(net, X, Y), wanted.mean(0))
    found = backprop(nn.Sequential(net, nn.Identity()), X, Y).gradients
    torch.testing.assert_close(torch.cat([g.flatten() for g in found.values()]), wanted.mean(0))
    assert not list(changes(before, snapshot(net)))


def test_other_parameters_take_their_place(net):
    f, v = functional(net), torch.randn(functional(net).size).double()
    slope = [gradient_at(f, f.theta + s * 1e-6 * v) for s in (1, -1)]
    wanted = (slope[0] - slope[1]) / 2e-6
    torch.testing.assert_close(hvp(net, X, Y, v), wanted, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(f(0 * f.theta, X), torch.zeros(4, 2).double())
    J = jacobian(net, X)
    torch.testing.assert_close(J @ v, J.dense() @ v)


def gradient_at(f, theta):
    theta = theta.clone().requires_grad_()
    return torch.autograd.grad(F.cross_entropy(f(theta, X), Y), theta)[0]


def test_a_state_holds_them_too(net):
    wanted, state = net(X), ModelState(net, copy=True)
    with torch.no_grad():
        net.w.zero_()
    torch.testing.assert_close(state.run(net, X), wanted)
    assert not net(X).any()


def test_a_layer_that_comes_twice():
    layer: Any = nn.Linear(3, 3).double()
    layer.all = [layer.weight]
    layer.forward = lambda input: F.linear(input, layer.all[0], layer.bias)
    net = nn.Sequential(layer, nn.Tanh(), layer)
    found = backprop(net, X, Y).gradients
    wanted = torch.autograd.grad(F.cross_entropy(net(X), Y), [layer.weight, layer.bias])
    for one, other in zip(found.values(), wanted, strict=True):
        torch.testing.assert_close(one, other)
