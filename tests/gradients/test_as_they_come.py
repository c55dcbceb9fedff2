"""Inputs and outputs as other libraries make them, through all derivatives."""

import warnings
from collections import UserDict
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.gradients import (
    functional,
    gradient,
    gradient_norms,
    hessian,
    hvp,
    jacobian,
    jvp,
    per_example_gradients,
    vjp,
)
from vademecum.models import mlp

X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).double()
Y = torch.tensor([0, 1, 1, 0])


def autograd(value, net) -> Tensor:
    found = torch.autograd.grad(
        value, list(net.parameters()), materialize_grads=True, retain_graph=True
    )
    return torch.cat([g.flatten() for g in found])


def products(value, net, v) -> Tensor:
    """The product with the Hessian, by two backward passes."""
    found = torch.autograd.grad(value, list(net.parameters()), create_graph=True)
    return autograd(torch.cat([g.flatten() for g in found]) @ v, net)


# Inputs and outputs of any structure


@dataclass
class Found:
    logits: Tensor
    hidden: Tensor
    loss: Tensor | None = None


class Classifier(nn.Module):
    """Takes tokens or embeddings, a mask and labels, and gives an object, as transformers do."""

    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(7, 3), nn.Linear(3, 2)

    def forward(self, tokens=None, mask: Any = None, embeds=None, labels=None, scale=1.0):
        h = torch.tanh(self.embed(tokens) if embeds is None else embeds) * scale
        z = self.out((h * mask[..., None]).sum(1))
        return Found(z, h, None if labels is None else F.cross_entropy(z, labels))


TOKENS = torch.tensor([[1, 2, 3], [4, 5, 6], [0, 0, 1], [2, 2, 2]])
MASK = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 1], [1, 0, 0]])
WHOLE = {"output": lambda out: out, "loss": lambda out, y: out.loss + out.hidden.square().sum()}


@pytest.fixture
def net():
    return Classifier().double()


@pytest.mark.parametrize("kind", [dict, UserDict])
def test_batches_of_tokens(kind, net):
    x = kind(tokens=TOKENS, mask=MASK, scale=2.0)
    z = net(**x).logits
    v = torch.randn(functional(net).size).double()
    wanted = products(F.cross_entropy(net(**x).logits, Y), net, v)
    torch.testing.assert_close(gradient(net, x, Y), autograd(F.cross_entropy(z, Y), net))
    torch.testing.assert_close(hvp(net, x, Y, v), wanted)
    gradients = per_example_gradients(net, x, Y)
    torch.testing.assert_close(gradients.mean(0), gradient(net, x, Y))
    torch.testing.assert_close(gradient_norms(net, x, Y), gradients.norm(dim=1))
    assert jacobian(net, x).blocks().shape == (4, 2, len(v))


def test_a_loss_takes_whatever_the_model_gives(net):
    x, v = {"tokens": TOKENS, "mask": MASK, "labels": Y}, torch.randn(29).double()
    out = net(**x)
    wanted = out.loss + out.hidden.square().sum()
    torch.testing.assert_close(gradient(net, x, None, **WHOLE), autograd(wanted, net))
    out = net(**x)
    wanted = products(out.loss + out.hidden.square().sum(), net, v)
    torch.testing.assert_close(hvp(net, x, None, v, **WHOLE), wanted)
    own: Any = {"loss": lambda value, y: value}
    for output in ("loss", lambda out: out.loss):
        found = gradient(net, x, output=output, **own)
        torch.testing.assert_close(found, autograd(net(**x).loss, net))
    with pytest.raises(ValueError, match="got Found: say which entry counts with output="):
        gradient(net, x, Y, output=lambda out: out)
    with pytest.raises(ValueError, match="got Found: say which entry counts with output="):
        jacobian(net, x, output=lambda out: out)


def test_derivatives_in_a_named_input(net):
    embeds = torch.randn(4, 3, 3).double()
    x = UserDict(embeds=embeds, mask=MASK)
    wanted = torch.autograd.functional.jacobian(
        lambda e: net(embeds=e, mask=MASK).logits, embeds
    ).reshape(8, 36)
    J = jacobian(net, x, wrt="embeds")
    assert J.shape == (8, 36)
    torch.testing.assert_close(J.dense(), wanted)
    own = torch.stack([wanted.view(4, 2, 4, 9)[i, :, i] for i in range(4)])
    torch.testing.assert_close(J.blocks(), own)
    v, u = torch.randn_like(embeds), torch.randn(4, 2).double()
    torch.testing.assert_close(jvp(net, x, v, wrt="embeds").flatten(), wanted @ v.flatten())
    found = vjp(net, x, u, wrt="embeds")
    assert found.shape == embeds.shape
    torch.testing.assert_close(found.flatten(), wanted.T @ u.flatten())


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("wrt", "message"),
    [
        ("x", "wrt must be one of 'theta', 'embeds', 'mask', got 'x'"),
        ("mask", r"x\['mask'\] must be floating point, got torch.int64"),
    ],
)
def test_errors_of_named_inputs(net, wrt, message):
    x = {"embeds": torch.randn(4, 3, 3).double(), "mask": MASK}
    with pytest.raises(ValueError, match=message):
        jacobian(net, x, wrt=wrt)


def test_an_input_may_be_called_x():
    class Named(nn.Linear):
        def forward(self, x, shift):  # pyright: ignore[reportIncompatibleMethodOverride]
            return super().forward(x) + shift

    net, x = Named(3, 2).double(), {"x": X, "shift": torch.randn(4, 2).double()}
    torch.testing.assert_close(jacobian(net, x, wrt="x").blocks()[1], net.weight.detach())
    torch.testing.assert_close(jacobian(net, x, wrt="shift").dense(), torch.eye(8).double())


class OfOne(nn.Module):
    """Takes one argument that is no tensor: a list, a dataclass or an object with a graph."""

    def __init__(self, read):
        super().__init__()
        self.read, self.layers = read, mlp([3, 4, 2], nn.Tanh)

    def forward(self, x):
        return self.layers(self.read(x))


class Graph:
    """An object that nobody knows how to take apart."""

    def __init__(self, x, edges):
        self.x, self.edges = x, edges


EDGES = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])
ADJACENCY = torch.zeros(4, 4).double().index_put((EDGES[1], EDGES[0]), torch.ones(5).double())
with warnings.catch_warnings(action="ignore"):  # that they are in beta
    ROWS = ADJACENCY.to_sparse_csr()
ONE = {
    "list": ([X, 2 * X], lambda x: x[0] * x[1]),
    "dataclass": (Found(X, X), lambda x: x.logits + x.hidden),
    "object": (Graph(X, EDGES), lambda g: ADJACENCY @ g.x),
    "sparse": (({"x": X, "a": ADJACENCY.to_sparse()},), lambda x: x["a"] @ x["x"]),
    "sparse rows": (({"x": X, "a": ROWS},), lambda x: x["a"] @ x["x"]),
}


@pytest.mark.parametrize("name", ONE)
def test_one_argument_of_any_kind(name):
    x, read = ONE[name]
    net = OfOne(read).double()
    args = x if type(x) is tuple else (x,)
    v = torch.randn(functional(net).size).double()
    value = F.cross_entropy(net(*args), Y)
    torch.testing.assert_close(gradient(net, x, Y), autograd(value, net))
    wanted = products(F.cross_entropy(net(*args), Y), net, v)
    torch.testing.assert_close(hessian(net, x, Y) @ v, wanted)
    rows = torch.stack([autograd(z, net) for z in net(*args).flatten()])
    torch.testing.assert_close(jacobian(net, x).dense(), rows)
    if name in ("list", "dataclass"):
        found = per_example_gradients(net, x, Y)
        torch.testing.assert_close(found.mean(0), gradient(net, x, Y))
    else:
        with pytest.raises(ValueError, match="x must have examples that can be told apart, got a"):
            per_example_gradients(net, x, Y)


class Tagger(nn.Module):
    """Gives several things for tokens, with weights that are used by hand: no rule covers it."""

    def __init__(self):
        super().__init__()
        self.tokens, self.head = nn.Embedding(9, 5), nn.Linear(5, 3)

    def forward(self, ids):
        h = torch.tanh(self.tokens(ids.long()).sum(1))
        return {"state": h, "scores": (self.head.weight @ h.mT).mT + self.head(h)}


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
def test_a_loss_takes_all_of_what_comes_of_tokens(dtype):
    """Whose inputs are none to differentiate in."""
    net, y = Tagger().double(), torch.tensor([0, 2, 1, 2, 0])
    ids = torch.randint(0, 9, (5, 3)).to(dtype)

    def loss(found, y):
        return F.cross_entropy(found["scores"], y) + found["state"].square().mean()

    parameters = list(net.parameters())
    rows = [
        torch.cat(
            [
                g.flatten()
                for g in torch.autograd.grad(loss(net(ids[i : i + 1]), y[i : i + 1]), parameters)
            ]
        )
        for i in range(5)
    ]
    wanted = torch.stack(rows)
    found = per_example_gradients(net, ids, y, loss=loss)
    torch.testing.assert_close(found, wanted)
    norms = gradient_norms(net, ids, y, loss=loss)
    torch.testing.assert_close(norms, wanted.norm(dim=1))
