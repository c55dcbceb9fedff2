"""Which ways and planes linear pieces are counted on, what that takes, and how it is told."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from tests.examine.test_pieces_of_large_networks import Ruled
from vademecum.approximation import Plane
from vademecum.examine._clock import Clock
from vademecum.examine._study import Study
from vademecum.examine.sections import _regions, geometry


@pytest.fixture
def slow(monkeypatch):
    """A clock on which a piece of a way takes a second."""
    now, real = [0.0], _regions.regions_along

    def along(*args, **knobs):
        way = real(*args, **knobs)
        now[0] += len(way.maps)
        return way

    monkeypatch.setattr(_regions, "regions_along", along)
    return lambda seconds: Clock(seconds, now=lambda: now[0])


def across(n: int) -> torch.Tensor:
    """Pairs of examples on both sides of all walls of `Ruled`."""
    x = torch.rand(n, 3).double()
    x[::2, 0], x[1::2, 0] = 0.0, 1.0
    return x


def test_a_plane_is_left_out_for_what_pieces_of_whole_ways_took(slow):
    """A piece took a second, so that a hundred polygons would take 400 s."""
    x, clock = across(8), slow(300.0)
    items: list[Any] = list(_regions.pieces(Study(Ruled(9), x), x, clock))
    assert items[-1].between == 10
    assert items[-1].seconds == pytest.approx(1.0)
    assert clock.cut == "no linear regions on a plane, which take about 400 s"


def test_ways_that_are_cut_short_are_told_of_where_there_is_no_plane(slow):
    x, clock = across(40), slow(200.0)
    x[:, 1:] = 0.0
    items: list[Any] = list(_regions.pieces(Study(Ruled(9), x), x, clock))
    assert items[-1].why_not == "no three of the first examples span a plane"
    assert clock.cut == "5 of 16 pairs of examples"  # of 80 s some went for looks at short parts


def test_ends_of_ways_among_examples_that_are_given_twice():
    a, b = torch.zeros(2), torch.ones(2)
    assert len(_regions._pairs(torch.stack([a, a, b, b, a, b]))) == 1
    ((start, end),) = _regions._pairs(torch.stack([a, a, b, b]))  # neighbours are equal
    assert (start.tolist(), end.tolist()) == ([0.0, 0.0], [1.0, 1.0])
    for same in (torch.ones(5, 2), torch.ones(5, 1)):
        with pytest.raises(ValueError, match="all examples are equal"):
            _regions._pairs(same)


def test_a_plane_is_found_behind_many_examples_that_are_equal():
    x = torch.zeros(40, 3)
    x[30], x[35] = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.0, 2.0, 0.0])
    plane = _regions._plane(x)
    assert plane is not None
    assert plane[1].tolist() == x[[0, 30, 35]].tolist()


def test_examples_on_a_line_span_no_plane_and_later_ones_may():
    x = torch.zeros(30, 3)
    x[:, 0] = torch.arange(30.0)
    assert _regions._plane(x) is None
    x[9, 1] = 1.0
    plane = _regions._plane(x)
    assert plane is not None
    assert plane[1].tolist() == x[[0, 1, 9]].tolist()


def sentence(known: _regions.Pieces) -> str:
    return geometry._sentence(known, {})


def test_pieces_are_named_whatever_was_counted():
    on_ways = _regions.Pieces(between=18.0)
    way = "way from one example to another crosses 18 linear pieces on average"
    assert sentence(on_ways) == f"The {way}."
    why = "no three of the first examples span a plane"
    words = sentence(on_ways._replace(why_not=why))
    assert words.endswith(f"; linear pieces on a plane were not counted: {why}.")
    assert sentence(_regions.Pieces(why_not=why)).startswith("Linear pieces were not counted: no")
    counted: Any = SimpleNamespace(maps=[0] * 1234)
    both = on_ways._replace(regions=counted, share=0.0157, why_not="too many")
    words = "On 1.6% of the rectangle around three examples it consists of 1,234 linear pieces; the"
    assert sentence(both) == f"{words} {way}."
    assert "On 2.0e-08 of the rectangle" in sentence(both._replace(share=2e-8))
    assert "On the rectangle around three examples it" in sentence(both._replace(share=1.0))


def test_one_piece_is_not_many():
    one = _regions.Pieces(between=1.0)
    assert sentence(one) == "The way from one example to another crosses 1 linear piece."
    segment: Any = SimpleNamespace()
    words = "From the least example to the largest it has 1 linear piece."
    assert sentence(one._replace(segment=segment)) == words
    words = "From the least example to the largest it has 2 linear pieces."
    assert sentence(one._replace(segment=segment, between=2.0)) == words


def test_one_input_that_is_the_same_for_all_is_told_of():
    x = torch.full((9, 1), 0.3)
    study = Study(nn.Sequential(nn.Linear(1, 4), nn.ReLU(), nn.Linear(4, 2)), x)
    items: list[Any] = list(_regions.pieces(study, x, Clock(60.0)))
    assert [each.why_not for each in items] == ["all examples are equal"]


@pytest.mark.parametrize(
    ("density", "in_sight", "sides"),
    [
        (8.0, [200], [1.5]),  # 8 times 5 pieces on a diagonal make 800 polygons, 4 times too many
        (8.0, [201, 10], [1.5, 1.2]),
        (8.0, [800, 10], [1.5, 0.75]),
        (8.0, [1e9, 10], [1.5, 1.5 / 8]),
        (1e-3, [10], [3.0]),
    ],
)
def test_how_much_of_a_plane_is_looked_at(monkeypatch, density, in_sight, sides):
    answers, seen = iter(in_sight), []

    def sighted(study, part, most):
        seen.append(part.high[0] - part.low[0])
        return next(answers)

    monkeypatch.setattr(_regions, "_in_sight", sighted)
    monkeypatch.setattr(_regions, "linear_regions", lambda *_, **__: "polygons")
    plane = Plane(torch.zeros(3), *torch.eye(3)[:2], low=(0.0, 0.0), high=(3.0, 4.0))
    study, known = Study(nn.Linear(3, 2), torch.rand(4, 3)), _regions.Pieces(density=density)
    found = _regions._on_plane(study, (plane, torch.rand(3, 3)), 200, known)
    assert found is not None
    assert seen == pytest.approx(sides)
    assert found.share == pytest.approx((sides[-1] / 3) ** 2)


def test_both_diagonals_of_a_plane_are_looked_at():
    """Eight walls across one of them, which the other runs along."""
    layer = nn.Linear(3, 8).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 1.0, 0.0]]).expand(8, 3))
        layer.bias.copy_(-(torch.arange(8) + 0.5) / 4)
    plane = Plane(torch.zeros(3), *torch.eye(3)[:2], low=(0.0, 0.0), high=(1.0, 1.0))
    study = Study(nn.Sequential(layer, nn.ReLU()), torch.rand(4, 3).double())
    assert _regions._in_sight(study, plane, 100) == 9 * 1 / 2
    assert _regions._in_sight(study, plane, 5) == 9 * 1 / 2  # not as many as a diagonal has pieces
    assert _regions._in_sight(study, plane, 4) == float("inf")


def test_some_times_as_many_polygons_as_were_in_sight_are_found(monkeypatch):
    """A grid of 31 x 31, of which 100 were in sight."""
    layer = nn.Linear(3, 60).double()
    with torch.no_grad():
        layer.weight.copy_(torch.eye(3)[:2].repeat_interleave(30, 0))
        layer.bias.copy_(-(torch.arange(60) % 30 + 0.5) / 30)
    plane = Plane(torch.zeros(3), *torch.eye(3)[:2], low=(0.0, 0.0), high=(1.0, 1.0))
    monkeypatch.setattr(_regions, "_in_sight", lambda *_: 100)
    study = Study(nn.Sequential(layer, nn.ReLU()), torch.rand(4, 3).double())
    found = _regions._on_plane(study, (plane, torch.rand(3, 3)), 100, _regions.Pieces(density=1.0))
    assert found is not None
    assert found.regions is not None
    assert (len(found.regions.maps), found.share) == (31 * 31, 1.0)
