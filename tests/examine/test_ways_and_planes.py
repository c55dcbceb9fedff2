"""Which ways and planes linear pieces are counted on, what that takes, and how it is told."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from tests.examine.test_pieces_of_large_networks import Ruled
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


def sentence(known: _regions.Pieces) -> str:
    return geometry._sentence(known, {})


def test_pieces_are_named_whatever_was_counted():
    on_ways = _regions.Pieces(between=18.0)
    assert sentence(on_ways) == "The way from one example to another crosses 18 linear pieces."
    why = "no three of the first examples span a plane"
    words = sentence(on_ways._replace(why_not=why))
    assert words.endswith(f"; linear pieces on a plane were not counted: {why}.")
    assert sentence(_regions.Pieces(why_not=why)).startswith("Linear pieces were not counted: no")
    counted: Any = SimpleNamespace(maps=[0] * 1234)
    both = on_ways._replace(regions=counted, share=0.0157, why_not="too many")
    words = "On 1.6% of the rectangle around three examples it consists of 1,234 linear pieces; the"
    assert sentence(both) == f"{words} way from one example to another crosses 18 of them."
    assert "On 2.0e-08 of the rectangle" in sentence(both._replace(share=2e-8))
    assert "On the rectangle around three examples it" in sentence(both._replace(share=1.0))


def test_one_input_that_is_the_same_for_all_is_told_of():
    x = torch.full((9, 1), 0.3)
    study = Study(nn.Sequential(nn.Linear(1, 4), nn.ReLU(), nn.Linear(4, 2)), x)
    items: list[Any] = list(_regions.pieces(study, x, Clock(60.0)))
    assert [each.why_not for each in items] == ["all examples are equal"]
