"""Loaders where data would stand: the same numbers as all data at once."""

from typing import Any, cast

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    TensorDataset,
)

from vademecum.foundations import eigsh
from vademecum.gradients import (
    gradient,
    gradient_norms,
    hessian,
    hvp,
    per_example_gradients,
)
from vademecum.models import batches, mlp
from vademecum.testing.laws import changes, snapshot

X = torch.randn(11, 3, generator=torch.Generator().manual_seed(0)).double()
Y = torch.arange(11) % 2
V = torch.randn(26, 2, generator=torch.Generator().manual_seed(1)).double()


class Rows(Dataset):
    def __init__(self, *columns, names=()):
        self.columns, self.names = columns, names

    def __len__(self):
        return len(X)

    def __getitem__(self, i):
        row = tuple(column[i] for column in self.columns)
        return dict(zip(self.names, row, strict=True)) if self.names else row


class Stream(IterableDataset):
    def __iter__(self):
        return zip(X, Y, strict=True)


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = mlp([3, 4, 2], nn.Tanh)

    def forward(self, one, two):
        return self.layers(one + two)


LOADERS = {
    "tensors": (lambda **more: DataLoader(TensorDataset(X, Y), **more), X),
    "stream": (lambda **more: DataLoader(Stream(), **{**more, "shuffle": None}), X),
    "mappings": (
        lambda **more: DataLoader(Rows(X, 2 * X, Y, names=("one", "two", "labels")), **more),
        {"one": X, "two": 2 * X},
    ),
    "three columns": (lambda **more: DataLoader(Rows(X, 2 * X, Y), **more), (X, 2 * X)),
}


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("name", LOADERS)
def test_they_are_all_data_at_once(name, shuffle):
    make, x = LOADERS[name]
    loader = make(batch_size=4, shuffle=shuffle)
    net = (mlp([3, 4, 2], nn.Tanh) if isinstance(x, torch.Tensor) else Named()).double()
    before = snapshot(net)
    found = gradient(net, loader), hessian(net, loader) @ V, hvp(net, loader, None, V[:, 0])
    assert not list(changes(before, snapshot(net)))
    wanted = gradient(net, x, Y), hessian(net, x, Y) @ V, hvp(net, x, Y, V[:, 0])
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_losses_of_any_kind():
    net = mlp([3, 4, 2], nn.Tanh).double()
    alone = DataLoader(TensorDataset(X), batch_size=3)
    given: Any = {"loss": lambda z, y: z.square().mean()}
    torch.testing.assert_close(gradient(net, alone, **given), gradient(net, X, None, **given))
    loader = DataLoader(TensorDataset(X, Y), batch_size=5)
    largest = eigsh(hessian(net, loader), 1).values
    torch.testing.assert_close(largest, torch.linalg.eigvalsh(hessian(net, X, Y).dense())[-1:])


class Noisy(TensorDataset):
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + torch.randn(3).double(), y


@pytest.mark.parametrize("generator", [None, torch.Generator().manual_seed(3)])
def test_each_pass_sees_the_same_batches(generator):
    loader = DataLoader(Noisy(X, Y), batch_size=4, shuffle=True, generator=generator)
    net = mlp([3, 4, 2], nn.Tanh).double()
    H = hessian(net, loader)
    first = H @ V
    torch.rand(3)
    assert torch.equal(H @ V, first)
    assert torch.equal(gradient(net, loader), gradient(net, loader))


@pytest.mark.parametrize("batched", [False, True])
def test_samplers_start_from_where_they_were(batched):
    sampler = RandomSampler(X, num_samples=5, generator=torch.Generator().manual_seed(3))
    data = TensorDataset(X, Y)
    if batched:
        loader = DataLoader(data, batch_sampler=BatchSampler(sampler, 2, drop_last=True))
    else:
        loader = DataLoader(data, sampler=sampler, batch_size=2, drop_last=True)
    net = mlp([3, 4, 2], nn.Tanh).double()
    H = hessian(net, loader)
    assert torch.equal(H @ V, H @ V)
    assert torch.equal(gradient(net, loader), gradient(net, loader))


@pytest.mark.parametrize("instrument", [gradient, per_example_gradients])
def test_random_numbers_go_on_after_an_error(instrument):
    def loss(z, y):
        raise ZeroDivisionError

    state = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError) as info:
        instrument(NET, DataLoader(TensorDataset(X, Y), batch_size=4, shuffle=True), loss=loss)
    assert torch.equal(torch.get_rng_state(), state), info


def test_in_half_precision_sums_are_not():
    x = torch.ones(3000, 1).bfloat16()
    net, loader = nn.Linear(1, 1).bfloat16(), DataLoader(TensorDataset(x), batch_size=1)
    found = gradient(net, loader, loss=lambda z, y: z.sum())
    assert found.dtype == torch.bfloat16
    assert found.tolist() == [1.0, 1.0]


def test_progress_counts_batches(capsys):
    loader = DataLoader(TensorDataset(X, Y), batch_size=4)
    gradient(mlp([3, 4, 2]).double(), loader, progress=True)
    assert "3/3 batches" in capsys.readouterr().err


NET, WORDS = mlp([3, 4, 2]).double(), cast("Dataset[str]", ["a"])
LOADER = DataLoader(TensorDataset(X, Y), batch_size=4)
ERRORS = [
    (lambda: gradient(NET, LOADER, Y), "y must be None where x is a DataLoader"),
    (lambda: hessian(NET, LOADER, Y) @ V, "y must be None where x is a DataLoader"),
    (lambda: gradient(NET, DataLoader(TensorDataset(X[:0]))), "got an empty DataLoader"),
    (lambda: gradient(NET, DataLoader(WORDS)), "must hold batches of tensors"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("act", "message"), ERRORS)
def test_errors(act, message):
    with pytest.raises(ValueError, match=message):
        act()


def test_batches_of_data_at_hand_are_these():
    ((x, y),) = batches(X, Y)
    assert x is X
    assert y is Y
    found = list(batches(LOADER, device=torch.device("cpu")))
    torch.testing.assert_close(torch.cat([x for x, _ in found]), X)
    assert F.one_hot(torch.cat([y for _, y in found])).sum() == 11


@pytest.mark.parametrize("instrument", [per_example_gradients, gradient_norms])
@pytest.mark.parametrize("name", LOADERS)
def test_examples_come_in_the_order_of_the_loader(name, instrument):
    make, x = LOADERS[name]
    net = (mlp([3, 4, 2], nn.Tanh) if name in ("tensors", "stream") else Named()).double()
    wanted = instrument(net, x, Y, loss=F.cross_entropy)
    found = instrument(net, make(batch_size=4), loss=F.cross_entropy)
    torch.testing.assert_close(found, wanted)
    with pytest.raises(ValueError, match="y must be None where x is a DataLoader"):
        instrument(net, make(batch_size=4), Y)
    with pytest.raises(ValueError, match="y must be a tensor, got NoneType"):
        instrument(net, x)
    with pytest.raises(ValueError, match="x must hold batches, got an empty DataLoader"):
        instrument(net, DataLoader(TensorDataset(X[:0], Y[:0])))
