"""How many linear pieces are looked for in a network that takes much work."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.approximation import Plane
from vademecum.examine import Measurement
from vademecum.examine._clock import Clock
from vademecum.examine._study import Study
from vademecum.examine.sections import _regions


class Ruled(nn.Module):
    """Walls at equal distances along the first input."""

    def __init__(self, walls: int):
        super().__init__()
        self.layer = nn.Linear(3, walls).double()
        with torch.no_grad():
            self.layer.weight.copy_(torch.tensor([[1.0, 0.0, 0.0]]).expand(walls, 3))
            self.layer.bias.copy_(-(torch.arange(walls) + 0.5) / walls)

    def forward(self, x):
        return self.layer(x).relu().sum(1, keepdim=True)


@pytest.mark.parametrize("parts", [1, 2, 8])
def test_pieces_on_a_part_of_each_way_where_all_of_it_is_too_much(monkeypatch, parts):
    walls, ways, studied = 4000, 10, []
    x = torch.rand(2 * ways, 3).double()
    x[::2, 0], x[1::2, 0] = 0.0, 1.0
    real = _regions.regions_along

    def along(network, a, b, **knobs):
        studied.append(float((b - a)[0].abs()))
        return real(network, a, b, **knobs)

    monkeypatch.setattr(_regions, "regions_along", along)
    of_all = ways * walls * 2 * (3 * walls)  # which is guessed to within a tenth
    monkeypatch.setattr(_regions, "_WORK", of_all / (parts - 0.5))
    clock = Clock(math.inf)
    items: list[Any] = list(_regions.pieces(Study(Ruled(walls), x), x, clock))
    pieces = [each for each in items if isinstance(each, Measurement) and each.n][-1]
    assert not clock.cut
    assert pieces.value == pytest.approx(walls + 1, abs=parts)  # a part has a wall more or less
    assert {count % parts for count in pieces.each} == {1 % parts}  # as many walls in each, and 1
    lengths = (x[1::2] - x[::2]).norm(dim=1)
    density = [each.density for each in items if getattr(each, "between", None)][-1]
    assert density == pytest.approx(sum(pieces.each) / float(lengths.sum()))
    assert pieces.n == ways
    words = "on segments" if parts == 1 else f"on a part in {parts}, drawn at random, of segments"
    assert f"counted exactly {words} between pairs of examples" in pieces.method
    assert sum(1 for side in studied if side == pytest.approx(1 / parts)) >= ways


def test_parts_are_drawn_from_all_over_the_way():
    """Each with the same chance, so that the count is right in the mean."""
    study = Study(nn.Linear(1, 1), torch.rand(9, 1))
    a, b = torch.tensor([2.0]).double(), torch.tensor([6.0]).double()
    found = _regions._drawn_parts(study, [(a, b)] * 4000, 4)
    starts = torch.stack([start for start, _ in found])[:, 0]
    assert all(float(end - start) == pytest.approx(1.0) for start, end in found)
    counts = torch.stack([(starts == place).sum() for place in (2.0, 3.0, 4.0, 5.0)])
    assert int(counts.sum()) == 4000
    assert float((counts - 1000).abs().max()) < 5 * math.sqrt(4000 * 0.25 * 0.75)


def test_fewer_polygons_are_looked_for_where_each_is_much_work(monkeypatch):
    looked, real = [], _regions._on_plane

    def noted(study, plane, most, known):
        looked.append(most)
        return real(study, plane, most, known)

    monkeypatch.setattr(_regions, "_on_plane", noted)
    monkeypatch.setattr(_regions, "_WORK", 200.5 * 4.0 * 2 * (3 * 40 + 40 * 2))
    model = nn.Sequential(nn.Linear(3, 40), nn.ReLU(), nn.Linear(40, 2))
    x, clock = 3 * torch.randn(30, 3), Clock(math.inf)
    list(_regions.pieces(Study(model, x), x, clock))
    assert looked[-1] == 200
    assert not clock.cut


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_parts_of_a_way_are_no_points_in_half_precision(dtype):
    """A ten-thousandth of it is less than a unit in the last place of its beginning."""
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).to(dtype)
    x = (2 + torch.randn(30, 3)).to(dtype)
    items: list[Any] = list(_regions.pieces(Study(model, x), x, Clock(60.0)))
    assert "pieces_between_examples" in [getattr(each, "name", "") for each in items]


def drawn(walls: int, work: float, monkeypatch) -> tuple[int, list[int]]:
    """Into how many parts ways are divided, and how many pieces were looked at for that."""
    looked, real = [], _regions.regions_along

    def along(*args, **knobs):
        way = real(*args, **knobs)
        looked.append(len(way.maps))
        return way

    monkeypatch.setattr(_regions, "regions_along", along)
    monkeypatch.setattr(_regions, "_WORK", work)
    x = torch.rand(20, 3).double()
    x[::2, 0], x[1::2, 0] = 0.0, 1.0
    study = Study(Ruled(walls), x)
    return _regions._parts(study, _regions._pairs(x), Clock(math.inf)), looked


def test_a_way_has_no_more_parts_than_pieces(monkeypatch):
    """Of more most have no wall, and ten of them that have none would be a count without error."""
    parts, _ = drawn(100, 1.0, monkeypatch)
    assert 80 < parts <= 120
    parts, _ = drawn(1, 1.0, monkeypatch)
    assert parts <= 3  # on four tenths of the way there is no wall


def test_what_the_whole_takes_is_seen_from_few_pieces(monkeypatch):
    """Each of them is much work, and near the first 14 only some more."""
    _, looked = drawn(12_000, 1.0, monkeypatch)
    assert looked[-1] >= math.sqrt(200)
    assert sum(looked) < 60


def test_small_parts_of_a_plane_are_no_points_in_half_precision():
    x = torch.tensor([[9.0, 0, 0], [11.0, 0, 0], [9.0, 2.0, 0]])
    plane = _regions._plane(x.bfloat16())
    assert plane is not None
    middle = _regions._middle(plane[0], 1e-4)  # whose sides are less than the spacing of numbers
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1)).bfloat16()
    assert _regions._in_sight(Study(model, x.bfloat16()), middle, 100) < 100


def test_the_error_of_a_count_is_that_of_a_mean_over_ways():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, x = nn.Sequential(nn.Linear(3, 30), nn.ReLU(), nn.Linear(30, 2)), torch.randn(18, 3)
    counts = torch.tensor(
        [float(((model[0](a) > 0) != (model[0](b) > 0)).sum()) for a, b in x.view(9, 2, 3)]
    )  # a line meets each wall once, between examples on its two sides
    items: list[Any] = list(_regions.pieces(Study(model, x), x, Clock(math.inf)))
    found = [each for each in items if isinstance(each, Measurement) and each.n][-1]
    assert found.value == pytest.approx(float(counts.mean()) + 1)
    assert found.error == pytest.approx(float(counts.std()) / 3)


def test_a_smaller_rectangle_has_the_same_middle_and_shape():
    whole = Plane(torch.zeros(3), *torch.eye(3)[:2], low=(1.0, 2.0), high=(5.0, 3.0))
    part = _regions._middle(whole, 0.5)
    assert (part.low, part.high) == ((2.0, 2.25), (4.0, 2.75))


def test_polygons_in_sight_are_half_the_product_of_pieces_on_the_diagonals():
    plane = Plane(torch.zeros(3), *torch.eye(3)[:2], low=(0.0, 0.0), high=(1.0, 1.0))
    study = Study(Ruled(9), torch.rand(4, 3).double())
    assert _regions._in_sight(study, plane, 100) == 10 * 10 / 2
    assert _regions._in_sight(study, plane, 4) == math.inf


@pytest.mark.parametrize(("holds", "words"), [(True, "which agree with"), (False, "NOT all of")])
def test_polygons_that_the_network_does_not_have_are_told_of(monkeypatch, holds, words):
    if not holds:
        monkeypatch.setattr(_regions, "certify_regions", lambda *_, **__: SimpleNamespace(holds=0))
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    x = torch.randn(6, 3)
    items: list[Any] = list(_regions.pieces(Study(model, x), x, Clock(math.inf)))
    found = [each for each in items if getattr(each, "name", "") == "linear_regions"]
    assert words in found[-1].method


def test_pieces_are_not_looked_for_beyond_the_end_of_a_way(monkeypatch):
    """Ten wherever one looks: of lengths that grow by the same factor the last would be too far."""
    ends: list[float] = []

    def along(network, a, b, **knobs):
        ends.append(float((b - a)[0]))
        return SimpleNamespace(maps=[0] * 10)

    monkeypatch.setattr(_regions, "regions_along", along)
    x = torch.zeros(4, 3).double()
    x[1::2, 0] = 1.0
    study = Study(nn.Linear(3, 2).double(), x)
    monkeypatch.setattr(_regions, "_WORK", 1.0)
    parts = _regions._parts(study, _regions._pairs(x), Clock(math.inf))
    factor = 2 * math.sqrt(200) / 10
    assert ends == pytest.approx([1e-4 * factor**i for i in range(9)])
    assert 0.5 / factor < ends[-1] <= 1
    assert parts == math.ceil(10 / ends[-1])  # no more than pieces
