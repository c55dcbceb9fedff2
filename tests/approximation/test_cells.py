"""The geometry of cells by hand: cuts, centres, and how close lines are told apart."""

import math
from itertools import permutations

import pytest
import torch
from torch import nn

from vademecum.approximation.regions import certify_regions, input_plane, linear_regions
from vademecum.approximation.regions._cells import Cells, cut, split_by_lines, split_by_maxima
from vademecum.approximation.units import Maxout


def relu_layer(weight, bias):
    layer = nn.Linear(len(weight[0]), len(weight)).double()
    layer.weight.data, layer.bias.data = torch.tensor(weight).double(), torch.tensor(bias).double()
    return nn.Sequential(layer, nn.ReLU())


def maxout(weight, bias):
    unit = Maxout(2, 1, len(bias)).double()
    unit.linear.weight.data = torch.tensor(weight).double()
    unit.linear.bias.data = torch.tensor(bias).double()
    return unit


def test_cut_a_square_and_an_interval():
    square = Cells(torch.tensor([[[0.0, 0], [2, 0], [2, 2], [0, 2]]]), torch.tensor([4]))
    above, below = cut(square, square.corners[..., 0] - square.corners[..., 1])  # the diagonal
    assert above.corners[0].tolist() == [[0, 0], [2, 0], [2, 2]]
    assert below.corners[0].tolist() == [[0, 0], [2, 2], [0, 2]]
    above, below = cut(square, square.corners[..., 0] - 0.5)
    assert above.corners[0].tolist() == [[0.5, 0], [2, 0], [2, 2], [0.5, 2]]
    assert below.corners[0].tolist() == [[0, 0], [0.5, 0], [0.5, 2], [0, 2]]
    interval = Cells(torch.tensor([[[0.0], [3.0]]]), torch.tensor([2]))
    above, below = cut(interval, torch.tensor([[-1.0, 2.0]]))
    assert above.corners[0].tolist() == [[1.0], [3.0]]
    assert below.corners[0].tolist() == [[0.0], [1.0]]


def test_cuts_centres_and_joins_of_padded_cells():
    triangle = Cells(torch.tensor([[[0.0, 0], [3, 0], [0, 3], [0, 3]]]), torch.tensor([3]))
    assert triangle.centres.tolist() == [[1.0, 1.0]]
    right, left = cut(triangle, triangle.corners[..., 0] - 1)
    assert right.corners[0].tolist() == [[1, 0], [3, 0], [1, 2], [1, 2]]
    assert left.corners[0].tolist() == [[0, 0], [1, 0], [1, 2], [0, 3]]
    assert (right.sizes.tolist(), left.sizes.tolist()) == ([3], [4])
    interval = Cells(torch.tensor([[[1.0], [3.0]]]), torch.tensor([2]))
    wide = Cells(torch.tensor([[[5.0], [7.0], [7.0]]]), torch.tensor([2]))
    both = Cells.joined([interval, wide])
    assert both.corners.tolist() == [[[1.0], [3.0], [3.0]], [[5.0], [7.0], [7.0]]]
    assert both.centres.tolist() == [[2.0], [6.0]]
    other = both.replaced(torch.tensor([1]), interval)
    assert other.centres.tolist() == [[2.0], [2.0]]


def test_many_lines_through_one_point_and_lines_along_the_sides():
    spokes = torch.arange(6) * math.pi / 6
    layer = nn.Linear(2, 8, bias=True).double()
    layer.weight.data = torch.cat([torch.stack([spokes.cos(), spokes.sin()], 1), torch.eye(2)])
    layer.bias.data = torch.tensor([0.0] * 6 + [1.0, 1.0])  # the last two are sides of the square
    layer.double()
    assert len(linear_regions(nn.Sequential(layer, nn.ReLU()), input_plane()).maps) == 12


def test_a_single_threshold_that_is_not_zero():
    found = linear_regions(nn.Hardtanh(-0.5, math.inf), input_plane())
    assert sorted(found.areas.tolist()) == [0.25, 0.75, 0.75, 2.25]  # all corners are binary
    assert not found.maps[found.areas.argmin(), :, 1:].any()  # it is constant below -1 / 2


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_candidates_that_are_equal_one_after_the_other_lose_no_part(order):
    """With a tolerance of 0.0005, 0 equals 0.0004 and that 0.0008, but 0 does not equal 0.0008."""
    functions = torch.tensor([[0.0, 0.0], [0.0004, 0.0], [0.0008, 0.0], [-0.5, 1.0]])
    candidates = functions[list(order)].double().T[None, :, None]  # cells, columns, units, pieces
    interval = Cells(torch.tensor([[[0.0], [1.0]]]).double(), torch.tensor([2]))
    parts, owner = split_by_maxima(interval, candidates, 1e-3)
    ends = parts.corners[..., 0].sort(0).values
    assert owner.tolist() == [0, 0]
    assert (float(ends[0, 0]), float(ends[1, 1])) == (0.0, 1.0)
    assert float(ends[0, 1]) == float(ends[1, 0]) == pytest.approx(0.5, abs=1e-3)


CLOSE = [  # what lies on one side of the rounding, 1e-12 of the largest value, and on the other
    (lambda d: relu_layer([[1.0, 0.0], [0.0, d]], [0.0, 0.0]), 2, 4),
    (lambda d: relu_layer([[1.0, 0.0], [0.0, d]], [-3.0, 0.0]), 1, 2),
    (lambda d: relu_layer([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]], [0.0, 0.0, d]), 6, 7),
    (lambda d: maxout([[1.0, 0.0], [1.0, d]], [0.0, 0.0]), 1, 2),
    (lambda d: maxout([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], [0.0, 0.0, d]), 2, 3),
]


@pytest.mark.parametrize(("model", "few", "many"), CLOSE)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_lines_within_rounding_are_one(model, few, many, scale):
    for d, wanted in ((1e-13, few), (1e-11, many)):
        one = model(d).requires_grad_(False)
        for p in one.parameters():
            p.mul_(scale)
        assert len(linear_regions(one, input_plane()).maps) == wanted


@pytest.mark.parametrize("scale", [1e-3, 1e-13, 1e-40])
def test_each_threshold_has_a_tolerance_of_its_own(scale):
    """Activations far below a threshold are not held against the distance from it."""
    layer = nn.Linear(2, 6).double().requires_grad_(False)
    plane = input_plane(low=(-3.0, -3.0), high=(3.0, 3.0))
    for p in layer.parameters():
        p.mul_(scale)
    for few, many in ((nn.ReLU(), nn.ReLU6()), (nn.Softshrink(0.0), nn.Hardtanh(0.0, 1e9))):
        wanted = linear_regions(nn.Sequential(layer, few), plane)
        model = nn.Sequential(layer, many)
        found = linear_regions(model, plane)
        assert len(found.maps) == len(wanted.maps) > 6
        assert certify_regions(model, found).strays == 0


def test_of_equal_candidates_the_first_is_the_largest():
    model = maxout([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]], [0.0] * 4)
    found = linear_regions(model, input_plane())
    assert sorted(found.areas.tolist()) == [2.0, 2.0]
    assert certify_regions(model, found).patterns == 2


def test_each_line_cuts_once_however_small_the_cell():
    """Rounding of the new corners exceeds the tolerance, which goes with the values."""
    square = torch.tensor([[-1.0, -1], [1, -1], [1, 1], [-1, 1]]).double()
    slopes = torch.tensor([[1.0, 0.7], [-0.3, 1.0], [0.9, -0.4]]).double()
    middle = torch.tensor([0.3, 0.7]).double()
    lines = torch.cat([-(slopes @ middle)[:, None], slopes], 1).T[None]
    cells = Cells((middle + 1e-9 * square)[None], torch.tensor([4]))
    root = split_by_lines(cells, lines[:, :, None], 1e-12)[1]
    assert len(root) in (6, 7)  # three lines through one point, up to rounding
    assert not root.any()
