"""Counts of regions by linear programmes, on paper, and in the plane."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import nn

from vademecum.approximation.regions import (
    count_regions,
    montufar_bound,
    region_upper_bound,
    zaslavsky_count,
)
from vademecum.approximation.units import AbsUnit, Maxout


def by_programmes(w, b):
    """Feasible strict sign vectors: maximise t with s (w x + b) >= t, t <= 1."""
    count = 0
    for s in product((-1.0, 1.0), repeat=len(b)):
        s = np.array(s)
        a = np.concatenate([-s[:, None] * w, np.ones((len(b), 1))], 1)
        cost = np.append(np.zeros(w.shape[1]), -1.0)
        free = [(None, None)] * w.shape[1] + [(None, 1.0)]
        count += linprog(cost, a, s * b, bounds=free).x[-1] > 1e-7
    return count


@pytest.mark.parametrize(("m", "n"), [(1, 1), (4, 1), (4, 2), (5, 2), (3, 3), (5, 3)])
def test_general_position(m, n):
    layer = nn.Linear(n, m).double()
    model = nn.Sequential(layer, nn.ReLU(), nn.Linear(m, 2).double())
    w, b = (p.detach().numpy() for p in layer.parameters())
    assert count_regions(model) == by_programmes(w, b) == zaslavsky_count(m, n)


@pytest.mark.parametrize("trial", range(4))
def test_degenerate_arrangements(trial):
    w = np.random.default_rng(trial).integers(-1, 2, (5, 3)).astype(float)
    w[~w.any(1)] = 1.0
    b = np.random.default_rng(trial).integers(-1, 2, 5).astype(float)
    layer = nn.Linear(3, 5).double()
    layer.weight.data, layer.bias.data = torch.tensor(w), torch.tensor(b)
    assert count_regions(nn.Sequential(layer, nn.ReLU())) == by_programmes(w, b)


def test_by_hand():
    layer = nn.Linear(1, 2)
    layer.weight.data, layer.bias.data = torch.tensor([[1.0], [0.0]]), torch.tensor([0.5, 1.0])
    assert count_regions(nn.Sequential(layer, nn.ReLU())) == 2  # one unit is constant
    assert count_regions(nn.Sequential(layer, nn.Hardtanh())) == 3  # |x + 1/2| < 1
    assert count_regions(nn.Sequential(layer, AbsUnit())) == 2
    assert count_regions(nn.Sequential(nn.Linear(3, 1), nn.Flatten(0), nn.ReLU())) == 2
    assert count_regions(nn.ReLU(), 4) == 16
    assert count_regions(nn.ReLU(), [2, 3]) == 64
    norm = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.LeakyReLU())
    assert count_regions(norm) == zaslavsky_count(4, 3)
    assert count_regions(nn.Sequential(nn.Conv1d(1, 1, 2), nn.ReLU()), (1, 4)) == 8
    wide = nn.Sequential(nn.Linear(40, 6), nn.ReLU())
    assert count_regions(wide) == 64


def test_nearly_parallel_lines_are_told_apart():
    layer = nn.Linear(2, 3).double()
    tiny = 2.0**-50
    layer.weight.data = torch.tensor([[1.0, 0.0], [1.0, tiny], [1.0, 0.0]]).double()
    layer.bias.data = torch.tensor([0.0, 0.0, 1.0]).double()
    assert count_regions(nn.Sequential(layer, nn.ReLU())) == 6  # 7 less the parallel pair
    layer.weight.data[1, 1] = 0.0
    assert count_regions(nn.Sequential(layer, nn.ReLU())) == 3


def test_bounds_by_hand():
    assert [zaslavsky_count(m, 2) for m in range(5)] == [1, 2, 4, 7, 11]
    assert zaslavsky_count(5, 0) == 1
    assert montufar_bound(2, [4]) == zaslavsky_count(4, 2)
    assert montufar_bound(2, [5, 4]) == 2**2 * 11
    assert montufar_bound(1, [3, 2, 2]) == 3 * 2 * 3
    assert region_upper_bound(2, [4, 4]) == 11**2
    assert region_upper_bound(3, [1, 5]) == 2 * 6  # one unit leaves one dimension
    for n, m, depth in product((1, 2, 3), (3, 4, 7), (1, 2, 5)):
        assert montufar_bound(n, [m] * depth) <= region_upper_bound(n, [m] * depth)
    assert region_upper_bound(10, [100] * 10) == sum(math.comb(100, j) for j in range(11)) ** 10


DEEP = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2), nn.ReLU())
ERRORS = [
    (count_regions, (DEEP,), r"one layer of units with kinks, got submodule '1' \(ReLU\), sub"),
    (count_regions, (Maxout(2, 2), 2), "one layer of units with kinks, got max in the model"),
    (count_regions, (nn.Linear(2, 2),), "one layer of units with kinks, got none"),
    (count_regions, (nn.ReLU(),), "shape must be given for a model without a dense layer"),
    (
        count_regions,
        (nn.Sequential(nn.Linear(9, 99), nn.ReLU()),),
        "model must be smaller: 99 hyperplanes in 9 dimensions take",
    ),
    (count_regions, (nn.Sequential(nn.Linear(2, 2), nn.Tanh()),), r"'1' \(Tanh\)"),
    (zaslavsky_count, (-1, 2), "m must be >= 0"),
    (zaslavsky_count, (2, 1.5), "n must be an integer"),
    (montufar_bound, (3, [3, 2]), "widths must be >= n = 3, got 2"),
    (montufar_bound, (1, []), "widths must not be empty"),
    (montufar_bound, (0, [1]), "n must be >= 1"),
    (region_upper_bound, (1, [0]), "widths must be >= 1, got 0"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("function", "arguments", "message"), ERRORS)
def test_errors(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)
