"""Dead units against the definition, and certificates against sampling."""

import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.approximation.region_models import MODELS
from vademecum.approximation.dying_units import dead_units
from vademecum.approximation.units import AbsUnit
from vademecum.foundations.regions import Box
from vademecum.testing import check_instrument


def test_dead_means_no_gradient():
    first, second = nn.Linear(3, 20), nn.Linear(20, 20)
    model = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Linear(20, 1))
    first.bias.data -= 1.0
    second.bias.data -= 0.3
    x = torch.randn(30, 3)
    found = dead_units(model, x)
    h = first(x)
    assert torch.equal(found[0].dead, (h <= 0).all(0))
    assert torch.equal(found[1].dead, (second(h.relu()) <= 0).all(0))
    assert found[0].dead.any()
    assert found[1].dead.any()
    assert [layer.name for layer in found] == ["submodule '1' (ReLU)", "submodule '3' (ReLU)"]
    model(x).square().sum().backward()
    for layer, units in ((first, found[0]), (second, found[1])):
        assert layer.weight.grad is not None
        assert not layer.weight.grad[units.dead].any()
    assert found[0].certified is None


def test_units_by_kind():
    x = torch.tensor([[-9.0, 9.0, 0.0], [9.0, 9.0, 0.5]])
    assert dead_units(nn.Hardtanh(), x)[0].dead.tolist() == [True, True, False]
    assert dead_units(nn.LeakyReLU(), -x.abs())[0].dead.tolist() == [False] * 3
    assert dead_units(nn.ReLU(), x)[0].dead.tolist() == [False, False, False]
    assert dead_units(nn.MaxPool1d(2), x[:, None]) == []
    assert dead_units(nn.Linear(3, 2), x) == []


@pytest.mark.parametrize("name", MODELS)
def test_what_is_certified_is_dead_all_over_the_box(name):
    model, shape = MODELS[name]
    size = math.prod(shape)
    y = model(torch.zeros(2, *shape))
    dense = nn.Linear(y.numel() // 2, 40)
    dense.weight.data *= torch.linspace(0.01, 1, 40)[:, None]
    dense.bias.data = -torch.ones(40)
    rows = nn.Flatten() if y.ndim > 1 else nn.Unflatten(0, (-1, 1))
    model = nn.Sequential(model, rows, dense, nn.ReLU()).eval()
    box = Box(torch.full((size,), -0.5), torch.full((size,), 0.3))
    x = box.sample(4000).view(-1, *shape)
    corners = torch.where(torch.rand(4000, size) < 0.5, box.low, box.high).view(-1, *shape)
    found = dead_units(model, torch.cat([x, corners]), box=box)
    for layer in found:
        assert layer.certified is not None
        assert layer.certified.shape == layer.dead.shape
        assert not (layer.certified & ~layer.dead).any()
    last = found[-1].certified
    assert last is not None
    assert last.any()


def test_one_layer_is_certified_exactly():
    dense = nn.Linear(4, 200)
    nn.init.uniform_(dense.bias, -2, 0)
    model = nn.Sequential(dense, nn.ReLU())
    box = Box(torch.tensor([-1.0, -2.0, 0.0, 1.0]), torch.tensor([0.5, 3.0, 1.0, 2.0]))
    w, b = (p.detach().double() for p in model.parameters())
    top = w.clamp(min=0) @ box.high.double() + w.clamp(max=0) @ box.low.double() + b
    exact = top <= -1e-8  # more than the slack, 1e-10 of some 10
    found = dead_units(model, torch.zeros(1, 4), box=box)[0].certified
    assert found is not None
    assert torch.equal(found, exact)
    assert 0 < int(exact.sum()) < 200


def certified(model, low, high):
    box = Box(torch.tensor(low).double(), torch.tensor(high).double())
    found = dead_units(model, box.low[None], box=box)[-1].certified
    assert found is not None
    return found.tolist()


def test_certificates_by_kind():
    ends = [-5.0, -2.0, 2.0, -2.0], [-2.0, 0.0, 3.0, 2.0]
    assert certified(nn.Hardtanh(), *ends) == [True, False, True, False]
    assert certified(nn.Softshrink(), [-0.3, -0.3, -0.7], [0.3, 0.7, 0.3]) == [True, False, False]
    assert certified(nn.ReLU(), [-1.0, -1.0], [0.0, 0.1]) == [True, False]


def test_certificates_leave_room_for_rounding():
    """Here 1000 x - 1000 - gap is at most -gap; the slack is 1e-10 of 1000 and of 500."""
    dense = nn.Linear(1, 2).double()
    dense.weight.data[:] = 1000.0
    dense.bias.data = -1000 - torch.tensor([1e-7, 2e-7]).double()
    assert certified(nn.Sequential(dense, nn.ReLU()), [0.0], [1.0]) == [False, True]


@pytest.mark.parametrize(
    "middle", [AbsUnit(), nn.Sequential(nn.Unflatten(1, (1, 2)), nn.MaxPool1d(2), nn.Flatten())]
)
def test_ranges_of_kinks_and_maxima(middle):
    """On these boxes |x| fills [0, 2], and max(x, y) fills [0, 2]; so far nothing is lost."""
    low, high = ([-1.0], [2.0]) if isinstance(middle, AbsUnit) else ([-1.0, 0.0], [2.0, 1.0])
    dense = nn.Linear(1, 4)
    dense.weight.data = torch.tensor([[1.0], [1.0], [-1.0], [-1.0]])
    dense.bias.data = torch.tensor([-1.99, -2.01, 0.01, -0.01])
    model = nn.Sequential(middle, dense, nn.ReLU())
    assert certified(model, low, high) == [False, True, False, True]


def test_unknown_pieces_are_bounded_by_a_basis():
    dense = nn.Linear(6, 50)
    nn.init.uniform_(dense.bias, -5, 0)
    model = nn.Sequential(MODELS["maxout, abs"][0][0], dense, nn.ReLU())
    box = Box(-torch.ones(3), torch.ones(3))
    found = dead_units(model, box.sample(3000), box=box)[0]
    assert found.certified is not None
    assert not (found.certified & ~found.dead).any()
    assert found.certified.any()


def test_chunks_and_laws():
    model, shape = MODELS["cnn"]
    x = torch.randn(9, *shape)
    whole, parts = dead_units(model, x), dead_units(model, x, memory=10_000)
    assert torch.equal(whole[0].dead, parts[0].dead)
    check_instrument(dead_units, model.train(), x, outputs=None)


@pytest.mark.usefixtures("unchecked")
def test_errors():
    x = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="box must be 3 wide, got 2"):
        dead_units(nn.ReLU(), x, box=Box(torch.zeros(2), torch.ones(2)))
    with pytest.raises(ValueError, match="x must be floating point"):
        dead_units(nn.ReLU(), x.long())
    with pytest.raises(ValueError, match=r"got the model itself \(Sigmoid\)"):
        dead_units(nn.Sigmoid(), x)
    with pytest.raises(ValueError, match="memory must be >="):
        dead_units(nn.ReLU(), x, memory=1)


@pytest.mark.parametrize("size", [1, 4, 7])
def test_dead_units_over_a_loader(size):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(2, 9), nn.ReLU(), nn.Linear(9, 9), nn.ReLU(), nn.Linear(9, 1))
    with torch.no_grad():
        for layer in (model[0], model[2]):
            layer.bias -= 0.8  # pyright: ignore
    x = torch.randn(7, 2)
    box = Box(-torch.ones(2), torch.ones(2))
    wanted = dead_units(model, x, box=box)
    loader = DataLoader(TensorDataset(x, torch.zeros(7)), batch_size=size)
    found = dead_units(model, loader, box=box)
    assert [one.name for one in found] == [one.name for one in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert one.dead.equal(other.dead)
        assert one.certified is not None
        assert other.certified is not None
        assert one.certified.equal(other.certified)
    assert 0 < int(wanted[0].dead.sum()) < 9
    some = dead_units(model, x[:1])
    assert int(some[0].dead.sum()) > int(wanted[0].dead.sum())  # later batches wake units


def test_loaders_that_cannot_be_asked():
    empty = DataLoader(TensorDataset(torch.zeros(0, 2)))
    with pytest.raises(ValueError, match="x must hold batches, got an empty DataLoader"):
        dead_units(nn.ReLU(), empty)
    odd = DataLoader([torch.zeros(2), torch.zeros(3)], batch_size=1)  # pyright: ignore
    with pytest.raises(ValueError, match=r"examples of one shape, got \(2,\) and \(3,\)"):
        dead_units(nn.ReLU(), odd)
