"""Bounds by norms and gaps of risks over a `DataLoader`, and within a memory limit."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from vademecum.generalization import generalisation_gap, norm_bounds
from vademecum.generalization._seen_margins import quantiles
from vademecum.models import mlp, peak_bytes

X = torch.randn(23, 4, generator=torch.Generator().manual_seed(0)).double()
Y = (X[:, 0] > 0).long() + (X[:, 1] > 0).long()


def network() -> nn.Module:
    torch.manual_seed(1)
    model = mlp([4, 8, 3]).double()
    return model


def loader(x=X, y=Y, size: int = 5, **knobs: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(x, y), batch_size=size, **knobs)


def same(one: Any, other: Any) -> None:
    for name in one._fields:
        a, b = getattr(one, name), getattr(other, name)
        if name == "bounds":
            for left, right in zip(a, b, strict=True):
                assert left[:1] + left[2:3] == right[:1] + right[2:3]
                assert left.value == pytest.approx(right.value)
                assert left.margin == pytest.approx(right.margin, nan_ok=True)
        elif isinstance(a, torch.Tensor):
            torch.testing.assert_close(a, b)
        elif name != "layers":
            assert a == pytest.approx(b)


@pytest.mark.parametrize("shuffle", [False, True])
def test_norm_bounds_stream(shuffle):
    same(norm_bounds(network(), loader(shuffle=shuffle)), norm_bounds(network(), X, Y))


def test_norm_bounds_keep_to_a_memory_limit():
    model = mlp([4, 300, 3]).double()
    x, y = torch.randn(4000, 4).double(), torch.arange(4000) % 3
    limit, found = 2**21, []
    peaks = [
        peak_bytes(lambda m=m: found.append(norm_bounds(model, x, y, memory=m)))
        for m in (None, limit)
    ]
    assert peaks[1] <= limit < peaks[0]
    same(*found)


def test_quantiles_are_numpys():
    values = torch.randn(17).double()
    q = torch.linspace(0, 1, 11).double()
    torch.testing.assert_close(quantiles(values, q), torch.quantile(values, q))
    assert quantiles(values[:1], q).unique().item() == values[0]


def test_gaps_stream():
    model, fresh = network(), (X.flip(0)[:9] + 0.3, Y[:9])
    wanted = generalisation_gap(model, X, Y, fresh=fresh)
    assert generalisation_gap(model, loader(), fresh=fresh) == pytest.approx(wanted)
    assert generalisation_gap(model, X, Y, fresh=loader(*fresh)) == pytest.approx(wanted)
    loss = lambda z, y: (z.softmax(1)[:, 0] - 0.1 * y).clamp(0, 1)  # noqa: E731
    own = generalisation_gap(model, X, Y, fresh=fresh, loss=loss)
    both = generalisation_gap(model, loader(), fresh=loader(*fresh, size=2), loss=loss)
    assert both == pytest.approx(own)
    assert wanted.fresh != wanted.training


@pytest.mark.usefixtures("unchecked")
def test_errors():
    model, empty = network(), loader(X[:0], Y[:0])
    entangled = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3)).double()

    class Stopping(TensorDataset):
        def __getitem__(self, i):
            assert i < 5, "only the first batch is asked for"
            return super().__getitem__(i)

    table = [
        (lambda: norm_bounds(model, loader(), Y), "y must be None where x is a DataLoader, which"),
        (lambda: norm_bounds(model, empty), "x must hold batches, got an empty DataLoader"),
        (lambda: norm_bounds(model, loader(X[:1], Y[:1])), "at least 2 examples, got 1"),
        (lambda: norm_bounds(model, X[:1], Y[:1]), "x must have at least 2 examples, got 1"),
        (lambda: norm_bounds(model, X), "y must be a tensor, got NoneType"),
        (lambda: norm_bounds(model, X, Y[:4]), "y must be 23 classes from 0 to 2"),
        (lambda: norm_bounds(model, X, Y[:4], memory=2**20), "y must be 23 classes from 0 to 2"),
        (lambda: norm_bounds(model, X, Y, memory=9), r"memory must be >= \d+ bytes for one exampl"),
        (lambda: norm_bounds(entangled, DataLoader(Stopping(X, Y), batch_size=5)), "layer_norm"),
        (lambda: generalisation_gap(model, loader(), Y, fresh=(X, Y)), "y must be None where x is"),
        (lambda: generalisation_gap(model, empty, fresh=(X, Y)), "x must hold batches, got an em"),
        (
            lambda: generalisation_gap(model, X, Y, fresh=empty),
            "fresh must hold batches, got an em",
        ),
        (
            lambda: generalisation_gap(model, X, fresh=(X, Y)),
            "y must hold a tensor of targets, got",
        ),
    ]
    for act, message in table:
        with pytest.raises(ValueError, match=message):
            act()
