"""Breakpoints on a segment against sawtooth networks, dense sampling and the plane."""

import copy
import math
from fractions import Fraction
from itertools import pairwise

import pytest
import torch
from torch import nn

from tests.approximation.region_models import MODELS
from vademecum.approximation.claims.region_bounds import cells, integer_layer, measured
from vademecum.approximation.patterns import activation_pattern
from vademecum.approximation.regions import _walk, regions_along
from vademecum.approximation.regions._cells import split_by_lines
from vademecum.approximation.sawtooth import sawtooth_network
from vademecum.testing import check_instrument


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pieces_are_those_of_the_network(name, dtype):
    model, shape = MODELS[name]
    a, b = 3 * torch.randn(2, *shape, dtype=dtype)
    twin = copy.deepcopy(model).to(dtype)
    found = regions_along(twin, a, b)
    ends = torch.cat([torch.zeros(1), found.breaks, torch.ones(1)]).double()
    assert (ends.diff() > 0).all()
    assert len(found.maps) == len(found.breaks) + 1

    def at(r):
        r = r.view(-1, *[1] * len(shape))
        return a.double() + r * (b.double() - a.double())

    network = copy.deepcopy(model).double().eval()
    middle = (ends[1:] + ends[:-1]) / 2
    for r in (middle, middle + ends.diff() / 3, ends[:-1], ends[1:]):  # also at breakpoints
        value = found.maps[..., 0] + r[:, None] * found.maps[..., 1]
        torch.testing.assert_close(value, network(at(r)).reshape(len(r), -1), rtol=1e-8, atol=1e-8)
    patterns = activation_pattern(network, at(middle))
    changes = (patterns[1:] != patterns[:-1]).any(1)
    assert changes.all()
    dense = activation_pattern(network, at(torch.linspace(0, 1, 2001).double()))
    assert int((dense[1:] != dense[:-1]).any(1).sum()) <= len(found.breaks)
    for r, piece in (
        (middle - ends.diff() / 2.2, patterns),
        (middle + ends.diff() / 2.2, patterns),
    ):
        assert torch.equal(activation_pattern(network, at(r)), piece)


@pytest.mark.parametrize("widths", [(1, 3), (1, 4, 4), (1, 3, 3, 3)])
def test_integer_networks_as_counted_in_fractions(widths):
    for _ in range(5):
        layers = [integer_layer(n, m) for n, m in pairwise(widths)]
        assert measured(layers, -50.0, 50.0) == cells(layers, Fraction(-50), Fraction(50))


def test_coinciding_kinks_are_one_breakpoint():
    layer = nn.Linear(1, 3)
    layer.weight.data = torch.tensor([[1.0], [2.0], [-3.0]])
    layer.bias.data = torch.tensor([-0.1, -0.2, 0.3])
    found = regions_along(nn.Sequential(layer, nn.ReLU()).double(), torch.zeros(1), torch.ones(1))
    assert len(found.breaks) == 1 or found.breaks.diff().abs().max() < 1e-7  # 0.1 is rounded
    layer.bias.data = torch.tensor([-0.25, -0.5, 0.75])
    found = regions_along(nn.Sequential(layer, nn.ReLU()), torch.zeros(1), torch.ones(1))
    assert found.breaks.tolist() == [0.25]


def test_more_pieces_than_allowed_are_an_error():
    model, (a, b) = sawtooth_network(5), (torch.zeros(1), torch.ones(1))
    count = len(regions_along(model, a, b).maps)
    assert len(regions_along(model, a, b, max_regions=count).maps) == count
    with pytest.raises(ValueError, match=f"at most max_regions = {count - 1}; it has more"):
        regions_along(model, a, b, max_regions=count - 1)
    with pytest.raises(ValueError, match="max_regions must be"):
        regions_along(model, a, b, max_regions=0)


def test_too_many_pieces_are_told_before_later_layers_divide_them(monkeypatch):
    calls = []

    def counted(*given):
        calls.append(1)
        return split_by_lines(*given)

    monkeypatch.setattr(_walk, "split_by_lines", counted)
    first = nn.Linear(1, 8)
    with torch.no_grad():
        first.weight.fill_(1.0)
        first.bias.copy_(-torch.arange(1, 9) / 10)
    model = nn.Sequential(first, nn.ReLU(), nn.Linear(8, 8), nn.ReLU())
    a, b = torch.zeros(1), torch.ones(1)
    with pytest.raises(ValueError, match="at most max_regions = 8; it has more"):
        regions_along(model, a, b, max_regions=8)
    assert len(calls) == 1
    regions_along(model, a, b)
    assert len(calls) == 3


def test_laws_of_instruments():
    model, shape = MODELS["norm, dropout"]

    def along(model, data):
        return regions_along(model, data[0], data[1])

    check_instrument(along, [model.train(), model.eval()], torch.randn(2, *shape), outputs=None)


A = torch.zeros(2)
NET = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
ERRORS = [
    (NET, A, A.clone(), "a and b must differ"),
    (NET, A, torch.ones(3), r"b must have the shape of a, \(2,\), got \(3,\)"),
    (NET, A, A + math.inf, "b must be finite"),
    (NET, A.long(), A + 1, "a must be floating point"),
    (nn.Sequential(NET, nn.ELU()), A, A + 1, r"got submodule '1' \(ELU\)"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("model", "a", "b", "message"), ERRORS)
def test_errors(model, a, b, message):
    with pytest.raises(ValueError, match=message):
        regions_along(model, a, b)
