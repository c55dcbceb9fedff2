"""Jacobians against autograd's, entry by entry, in parameters and in inputs."""

import math
import weakref
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.gradients.nets import NETS, call, close, make, slowly
from tests.gradients.test_per_example import AcrossExamples, Argmax, Detached, Pooled
from vademecum.gradients.jacobian_operator import jacobian
from vademecum.gradients.network_function import functional
from vademecum.testing import check_instrument
from vademecum.testing.laws import changes, snapshot

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even")


def by_rows(net, x):
    """The Jacobian in the parameters from a backward pass for each entry of the output."""
    parameters, rows = list(net.parameters()), []
    for entry in call(net, x).flatten():
        found = torch.autograd.grad(
            entry, parameters, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        rows.append(torch.cat([g.flatten() for g in found]))
    return torch.stack(rows)


@pytest.mark.parametrize("name", NETS)
def test_in_parameters(name):
    net, x, _ = make(name)
    v, u = torch.randn(functional(net).size, 2).double(), torch.randn(15, 2).double()
    before = snapshot(net.train())
    J = jacobian(net, x)
    with slowly(name == "recurrent"):
        found, forwards, backwards, blocks = J.dense(), J @ v, J.T @ u, J.blocks()
    assert not list(changes(before, snapshot(net)))
    wanted = by_rows(net, x).to(found.dtype)
    close(name, found, wanted)
    close(name, forwards, wanted @ v)
    close(name, backwards, wanted.T @ u)
    close(name, blocks.flatten(0, 1), wanted)


@pytest.mark.parametrize(
    "name", sorted(NETS.keys() - {"language", "words", "time first", "keywords", "tuple"})
)
def test_in_inputs(name):
    net, x, _ = make(name)
    J = jacobian(net, x, wrt="x")
    wanted = torch.autograd.functional.jacobian(lambda x: call(net, x), x)
    n, k = wanted.shape[:2]
    close(name, J.dense(), wanted.reshape(n * k, -1))
    own = torch.stack([wanted[i, :, i].flatten(1) for i in range(n)])
    close(name, J.blocks(), own)
    v, u = torch.randn(J.shape[1]).double(), torch.randn(J.shape[0]).double()
    close(name, J @ v, wanted.reshape(n * k, -1) @ v)
    close(name, J.T @ u, wanted.reshape(n * k, -1).T @ u)


@pytest.mark.parametrize("wrt", ["theta", "x"])
def test_examples_that_influence_each_other(wrt):
    net, x = AcrossExamples(3, 2).double(), torch.randn(4, 3).double()
    J = jacobian(net, x, wrt=wrt)
    columns = J @ torch.eye(J.shape[1]).double()  # by other passes
    torch.testing.assert_close(J.dense(), columns)
    with pytest.raises(ValueError, match="independently"):
        J.blocks()
    assert jacobian(Pooled(3, 2).double(), x, wrt=wrt).dense().shape[0] == 1


def test_examples_that_are_numbers():
    x = torch.tensor([1.0, -2.0, 3.0])
    assert jacobian(nn.ReLU(), x, wrt="x").blocks().flatten().tolist() == [1, 0, 1]
    assert jacobian(nn.ReLU(), x, wrt="x").dense().tolist() == torch.diag(x > 0).float().tolist()


def test_one_input_without_an_axis_of_examples():
    W = torch.randn(3, 4)
    net = nn.Linear(4, 3, bias=False)
    net.weight.data = W
    torch.testing.assert_close(jacobian(net, torch.randn(4), wrt="x").dense(), W)
    assert jacobian(nn.Tanh(), torch.tensor(0.0), wrt="x").dense().tolist() == [[1.0]]


@pytest.mark.parametrize("wrt", ["theta", "x"])
@pytest.mark.parametrize("name", ["planar", "by hand"])
def test_portions_keep_to_memory(name, wrt):
    net, x, _ = make(name, 6)
    whole = jacobian(net, x, wrt=wrt).blocks()
    with pytest.raises(ValueError, match=r"memory must be >= \d+ bytes for one example") as error:
        jacobian(net, x, wrt=wrt, memory=1).blocks()
    one = int(str(error.value).split()[4])
    for examples in (1, 2, 4):
        J = jacobian(net, x, wrt=wrt, memory=examples * one)
        parts = list(J.chunks())
        assert [part.stop - part.start for part, _ in parts] == _lengths(6, examples)
        torch.testing.assert_close(torch.cat([blocks for _, blocks in parts]), whole)
        torch.testing.assert_close(J.blocks(), whole)


def _lengths(n, step):
    """As few portions as there may be, of about the same size."""
    return {1: [1] * n, 2: [2] * (n // 2), 4: [n // 2] * 2}[step]


class Peak(TorchDispatchMode):
    """The most bytes that operations have made and that were alive at once."""

    def __init__(self):
        super().__init__()
        self.alive, self.now, self.most = weakref.WeakSet(), 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = [t.untyped_storage() for t in args if isinstance(t, torch.Tensor)]
        made = func(*args, **(kwargs or {}))
        for t in made if isinstance(made, list | tuple) else [made]:
            if isinstance(t, torch.Tensor):
                self._count(t.untyped_storage(), given)
        return made

    def _count(self, storage, given):
        if storage in self.alive or any(storage is other for other in given):
            return  # a view
        self.alive.add(storage)
        self.now += storage.nbytes()
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._forget, storage.nbytes())

    def _forget(self, size):
        self.now -= size


@pytest.mark.parametrize("wrt", ["theta", "x"])
@pytest.mark.parametrize("name", ["covered", "by hand"])
def test_memory_suffices(name, wrt):
    net: Any = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(144, 10))
    if name == "by hand":  # a use of a parameter that no rule knows
        net.register_forward_hook(lambda module, args, z: z * net[3].bias)
    x, memory = torch.randn(32, 1, 8, 8), 10**6 if wrt == "theta" else 10**5
    J = jacobian(net, x, wrt=wrt, memory=memory)
    assert 1 < len(list(J.chunks())) < 32
    with Peak() as peak:
        found = J.blocks()
    assert peak.most - found.nbytes <= memory


def test_frozen_parameters_are_left_out_on_request():
    net, x, _ = make("planar")
    net[0].requires_grad_(False)
    whole, size = jacobian(net, x).dense(), sum(p.numel() for p in net[0].parameters())
    torch.testing.assert_close(jacobian(net, x, frozen=False).dense(), whole[:, size:])


@pytest.mark.parametrize("wrt", ["theta", "x"])
def test_laws(wrt):
    def instrument(model, x):
        return jacobian(model, x, wrt=wrt).blocks()

    without = {"no_parameters": "there is nothing to differentiate"} if wrt == "theta" else {}
    check_instrument(instrument, nn.Linear(5, 3), torch.randn(6, 5), per_example=True, skip=without)


X = torch.linspace(-1, 1, 12).view(4, 3).sin()
NET = nn.Linear(3, 2)
ERRORS = [
    (lambda: jacobian(nn.ReLU(), X), "model must have parameters to differentiate, got none"),
    (lambda: jacobian(NET, X, wrt="w"), "wrt must be one of 'theta', 'x', got 'w'"),  # pyright: ignore
    (lambda: jacobian(NET, (X,), wrt="x"), "x must be a tensor, got tuple"),
    (lambda: jacobian(nn.Embedding(3, 2), X.long(), wrt="x"), "x must be floating point"),
    (lambda: jacobian(NET, X * math.inf), "x must be finite, got"),
    (lambda: jacobian(NET, X[:0]), "x must not be empty"),
    (lambda: jacobian(nn.Embedding(3, 2), X[:0].long()), r"x must not be empty, got .* \(0, 3\)"),
    (lambda: jacobian(NET, X, memory=0), "memory must be >= 1, got 0"),
    (lambda: jacobian(Argmax(3, 2), X), "outputs of model must be floating point, got torch.int64"),
    (lambda: jacobian(Detached(3, 2), X).dense(), "outputs of model must be differentiable"),
    (lambda: jacobian(Detached(3, 2), X, wrt="x") @ torch.ones(12), "must be differentiable"),
    (lambda: jacobian(nn.LSTM(3, 2), X), "model must give a tensor, got tuple"),
    (lambda: jacobian(AcrossExamples(3, 2), X, memory=10**9).dense(), "memory can be kept to only"),
    (lambda: jacobian(NET, X) @ torch.ones(3), "x must have 8 rows"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("act", "message"), ERRORS)
def test_errors(act, message):
    with pytest.raises(ValueError, match=message):
        act()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_memory_on_cuda():
    net = nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(3136, 10),
    )  # fmt: skip
    x = torch.randn(128, 1, 28, 28)
    wanted = jacobian(net, x[:4]).blocks()
    net, x, memory = net.cuda(), x.cuda(), 5 * 10**7
    torch.testing.assert_close(jacobian(net, x[:4]).blocks().cpu(), wanted, rtol=1e-3, atol=1e-4)
    J = jacobian(net, x, memory=memory)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    found = J.blocks()
    assert torch.cuda.max_memory_allocated() - before - found.nbytes <= memory
    assert J.shape[1] == functional(net).size
