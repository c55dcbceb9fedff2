"""Jacobians over the batches of a `DataLoader`, against those of all data at once."""

import random

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from vademecum.gradients import functional, jacobian, jvp, vjp
from vademecum.models import mlp

X = torch.randn(7, 3, generator=torch.Generator().manual_seed(0)).double()
Y = torch.arange(7)


def network() -> nn.Module:
    torch.manual_seed(2)
    return mlp([3, 4, 2]).double()


def loader(size: int = 3, **knobs) -> DataLoader:
    return DataLoader(TensorDataset(X, Y), batch_size=size, **knobs)


@pytest.mark.parametrize("size", [1, 3, 7])
def test_products_and_matrices_stream(size):
    model = network()
    wanted, found = jacobian(model, X), jacobian(model, loader(size))
    assert found.shape == wanted.shape == (14, functional(model).size)
    torch.testing.assert_close(found.output, wanted.output)
    torch.testing.assert_close(found.dense(), wanted.dense())
    torch.testing.assert_close(found.blocks(), wanted.blocks())
    for columns in ((), (3,)):
        v = torch.randn(found.shape[1], *columns).double()
        u = torch.randn(14, *columns).double()
        torch.testing.assert_close(found @ v, wanted @ v)
        torch.testing.assert_close(found.T @ u, wanted.T @ u)
    seen = torch.zeros(7)
    for here, blocks in found.chunks():
        torch.testing.assert_close(blocks, wanted.blocks()[here])
        seen[here] += 1
    assert bool((seen == 1).all())


def test_memory_is_for_a_batch():
    found = jacobian(network(), loader(), memory=10_000)
    wanted = jacobian(network(), X)
    torch.testing.assert_close(found.blocks(), wanted.blocks())


def test_jvp_and_vjp_stream():
    model = network()
    v, u = torch.randn(functional(model).size).double(), torch.randn(7, 2).double()
    torch.testing.assert_close(jvp(model, loader(), v), jvp(model, X, v))
    torch.testing.assert_close(vjp(model, loader(), u), vjp(model, X, u))


def test_frozen_parameters_and_outputs_by_name():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network()
            next(self.inner.parameters()).requires_grad_(False)

        def forward(self, x):
            return {"score": self.inner(x), "other": x}

    model, knobs = Named(), {"frozen": False, "output": "score"}
    wanted = jacobian(model, X, **knobs)
    torch.testing.assert_close(jacobian(model, loader(), **knobs).dense(), wanted.dense())
    v, u = torch.randn(wanted.shape[1]).double(), torch.randn(7, 2).double()
    torch.testing.assert_close(jvp(model, loader(), v, **knobs), jvp(model, X, v, **knobs))
    torch.testing.assert_close(vjp(model, loader(), u, **knobs), vjp(model, X, u, **knobs))


def test_a_loader_that_shuffles_keeps_its_order():
    torch.manual_seed(0)
    found = jacobian(network(), loader(shuffle=True))
    v = torch.randn(found.shape[1]).double()
    torch.testing.assert_close(found @ v, found.dense() @ v)
    assert not found.output.equal(jacobian(network(), X).output)


class Restless:
    """Examples that change by random numbers of Python's own generator."""

    def __init__(self, system: random.Random):
        self._system = system

    def __len__(self):
        return 4

    def __getitem__(self, i):
        return torch.full((3,), self._system.random()).double()


@pytest.mark.usefixtures("unchecked")
def test_errors():
    model = network()
    restless = DataLoader(Restless(random.Random(0)), batch_size=2)  # pyright: ignore
    J = jacobian(model, restless)
    empty = DataLoader(TensorDataset(X[:0]))
    v, u = torch.zeros(functional(model).size).double(), torch.zeros(7, 2).double()
    message = "wrt must be 'theta' where x is a DataLoader, got 'x': derivatives in inputs are as"
    table = [
        (lambda: jacobian(model, loader(), wrt="x"), message),
        (lambda: jvp(model, loader(), X, wrt="x"), message),
        (lambda: vjp(model, loader(), u, wrt="x"), message),
        (lambda: J @ v, "x must bring the same examples in the same order at each pass"),
        (lambda: jacobian(model, empty), "x must hold batches, got an empty DataLoader"),
        (lambda: jvp(model, empty, v), "x must hold batches, got an empty DataLoader"),
        (lambda: vjp(model, empty, u), "x must hold batches, got an empty DataLoader"),
        (lambda: vjp(model, loader(), u[:5]), r"u must have the shape \(3, 2\)"),
        (
            lambda: vjp(model, loader(), torch.cat([u, u])),
            "u must have 7 rows like the outputs, go",
        ),
        (lambda: jvp(model, loader(), v[1:]), "v must have the shape"),
    ]
    for act, text in table:
        with pytest.raises(ValueError, match=text):
            act()
