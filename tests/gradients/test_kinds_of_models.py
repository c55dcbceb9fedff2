"""Models on graphs and over sequences, compiled ones, and what is refused by name."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.gradients.test_as_they_come import EDGES, X, Y, autograd, products
from vademecum.gradients import (
    functional,
    gradient,
    gradient_norms,
    hessian,
    hvp,
    jacobian,
    per_example_gradients,
)
from vademecum.models import mlp
from vademecum.testing.laws import changes, snapshot

# Graphs


class Convolution(nn.Module):
    """Messages along edges, added up at their ends, with the edges given or kept."""

    def __init__(self, edges=None):
        super().__init__()
        self.first, self.second = nn.Linear(3, 5), nn.Linear(5, 2)
        self.register_buffer("edges", edges)

    def forward(self, x, edges=None):
        start, end = self.get_buffer("edges") if edges is None else edges
        for layer in (self.first, self.second):
            x = torch.tanh(layer(x.index_add(0, end, x[start])))
        return x


SOME = torch.tensor([True, False, True, True])


def over_nodes(z, y):
    return F.cross_entropy(z[SOME], y[SOME])


@pytest.mark.parametrize("kept", [False, True])
def test_graphs(kept):
    net = Convolution(EDGES if kept else None).double()
    x: Any = X if kept else (X, EDGES)
    v = torch.randn(functional(net).size).double()
    before = snapshot(net)
    found = gradient(net, x, Y, loss=over_nodes), hvp(net, x, Y, v, loss=over_nodes)
    J = jacobian(net, x)
    matrix, forwards = J.dense(), J @ v
    assert not list(changes(before, snapshot(net)))
    torch.testing.assert_close(found[0], autograd(over_nodes(net(X, EDGES), Y), net))
    torch.testing.assert_close(found[1], products(over_nodes(net(X, EDGES), Y), net, v))
    wanted = torch.stack([autograd(z, net) for z in net(X, EDGES).flatten()])
    torch.testing.assert_close(matrix, wanted)
    torch.testing.assert_close(forwards, wanted @ v)
    for act in (per_example_gradients, gradient_norms):
        with pytest.raises(ValueError, match=r"(number of|equally many) examples"):
            act(net, x, Y)
    if kept:
        inputs = torch.autograd.functional.jacobian(net, X).reshape(8, 12)
        torch.testing.assert_close(jacobian(net, X, wrt="x").dense(), inputs)
    else:
        given = {"x": X, "edges": EDGES}
        inputs = torch.autograd.functional.jacobian(lambda x: net(x, EDGES), X).reshape(8, 12)
        torch.testing.assert_close(jacobian(net, given, wrt="x").dense(), inputs)


class Strict(nn.Linear):
    """Says itself that it knows no other number of nodes."""

    error: type[Exception]

    def forward(self, input):
        if len(input) != 4:
            raise self.error("no such node")
        return super().forward(input)


@pytest.mark.parametrize("error", [IndexError, ValueError, AssertionError, RuntimeError])
def test_models_that_fail_for_few_examples(error):
    net = Strict(3, 2).double()
    net.error = error
    rows = torch.stack([autograd(z, net) for z in net(X).flatten()])
    torch.testing.assert_close(jacobian(net, X).dense(), rows)
    for act in (per_example_gradients, gradient_norms):
        with pytest.raises(ValueError, match="model must take any number of examples: no such"):
            act(net, X, Y)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        per_example_gradients(nn.Linear(2, 2).double(), X, Y)


# Sequences of different lengths


class Reader(nn.Module):
    """A recurrent layer over a packed sequence."""

    def __init__(self, kind):
        super().__init__()
        self.cell, self.out = kind(3, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, packed):
        z, lengths = pad_packed_sequence(self.cell(packed)[0], batch_first=True)
        return self.out(z[torch.arange(len(z)), lengths - 1])


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_packed_sequences(kind):
    net, lengths = Reader(kind).double(), torch.tensor([2, 5, 1, 3])
    rows = torch.randn(4, 5, 3).double()
    x = pack_padded_sequence(rows, lengths, batch_first=True, enforce_sorted=False)
    v = torch.randn(functional(net).size).double()
    before = snapshot(net.train())
    found = gradient(net, x, Y), hvp(net, x, Y, v), jacobian(net, x).dense()
    assert not list(changes(before, snapshot(net)))
    torch.testing.assert_close(found[0], autograd(F.cross_entropy(net(x), Y), net))
    torch.testing.assert_close(found[1], products(F.cross_entropy(net(x), Y), net, v))
    wanted = torch.stack([autograd(z, net) for z in net(x).flatten()])
    torch.testing.assert_close(found[2], wanted)
    with pytest.raises(ValueError, match=r"equally many examples, got the shapes \{'x.data'"):
        per_example_gradients(net, x, Y)


# Modules that are compiled, scripted or quantised


def compiled():
    return torch.compile(mlp([3, 4, 2], nn.Tanh).double(), backend="eager")


def compiled_within():
    net = mlp([3, 4, 2], nn.Tanh).double()
    first: Any = torch.compile(net[:2], backend="eager")
    return nn.Sequential(first, net[2])


def compiled_in_place():
    net = mlp([3, 4, 2], nn.Tanh).double()
    net.compile(backend="eager")
    net[0].compile(backend="eager")
    return net


@pytest.mark.parametrize("make", [compiled, compiled_within, compiled_in_place])
def test_compiled_modules_are_left_aside(make):
    net: Any = make()
    plain = mlp([3, 4, 2], nn.Tanh).double()
    for p, q in zip(plain.parameters(), net.parameters(), strict=True):
        p.data = q.data
    v = torch.randn(26).double()
    if make is compiled:
        assert list(functional(net).shapes) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    for f, more in [(gradient, ()), (hvp, (v,)), (per_example_gradients, ()), (gradient_norms, ())]:
        torch.testing.assert_close(f(net, X, Y, *more), f(plain, X, Y, *more))
    for wrt in ("theta", "x"):
        found = jacobian(net, X, wrt=wrt)
        torch.testing.assert_close(found.dense(), jacobian(plain, X, wrt=wrt).dense())


class Quantised(nn.Module):
    """Looks like a layer of torch's quantised ones."""

    __module__ = "torch.ao.nn.quantized.modules.linear"


@pytest.mark.usefixtures("unchecked")
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_scripted_and_quantised_modules_are_refused():
    scripted = torch.jit.script(mlp([3, 4, 2]))
    for net in (scripted, nn.Sequential(scripted)):
        with pytest.raises(ValueError, match="model must not be scripted or traced"):
            gradient(net, X, Y)
    with pytest.raises(ValueError, match="in floating point, got a quantised Quantised"):
        functional(nn.Sequential(Quantised()))


# Batch normalisation without running statistics


def test_batch_statistics_tie_examples():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False))
    net = net.append(nn.Linear(4, 2)).double()
    named = "independently in evaluation mode, but BatchNorm1d '1' has no running statistics"
    for act in (per_example_gradients, gradient_norms):
        with pytest.raises(ValueError, match=named):
            act(net, X, Y)
    with pytest.raises(ValueError, match=named):
        jacobian(net, X).blocks()
    v = torch.randn(functional(net).size).double()
    torch.testing.assert_close(gradient(net, X, Y), autograd(F.cross_entropy(net(X), Y), net))
    wanted = products(F.cross_entropy(net(X), Y), net, v)
    torch.testing.assert_close(hessian(net, X, Y) @ v, wanted)
    rows = torch.stack([autograd(z, net) for z in net(X).flatten()])
    torch.testing.assert_close(jacobian(net, X).dense(), rows)
