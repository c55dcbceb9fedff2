"""Linear pieces and symmetries of networks that are known to have them, or not."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.approximation import Segments, sawtooth_network
from vademecum.data import load
from vademecum.examine import examine
from vademecum.examine._clock import Clock, OutOfTime
from vademecum.examine._study import Study
from vademecum.examine.sections import _regions, geometry
from vademecum.geometry import GCN


def found(model, x, y=None, **options) -> Any:
    draw = torch.Generator().manual_seed(0)
    given = {"sections": ["geometry"], "budget": math.inf, "generator": draw} | options
    section = examine(model, x, y, **given)["geometry"]
    assert not section.traceback, section.traceback
    return section


@pytest.mark.parametrize("depth", [1, 3, 5])
def test_a_sawtooth_has_two_to_its_depth_pieces(depth):
    saw = sawtooth_network(depth)
    x = torch.linspace(0, 1, 20, dtype=next(saw.parameters()).dtype)[:, None]
    section = found(saw, x)
    assert section.status == "measured"
    assert section.linear_pieces == 2**depth
    assert "<svg" in section.figure


def padded(mode: Any) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        conv = nn.Conv2d(1, 4, 3, padding=1, padding_mode=mode)
        return nn.Sequential(
            conv, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
        )


def test_shifts_around_the_edge_by_padding():
    x, y = torch.rand(12, 1, 6, 6), torch.arange(12) % 3
    around, zeros = (found(padded(mode), x, y) for mode in ("circular", "zeros"))
    assert around.shift_error < 1e-6
    assert around.shift_changes_answers == 0
    assert zeros.shift_error > 1e-3
    assert zeros["shift_error"].n == 12
    assert {"flip_error", "turn_error", "linear_regions"} <= {m.name for m in zeros.measurements}


def test_feature_maps_move_along():
    x = torch.rand(6, 1, 8, 8)
    for mode, good in (("circular", True), ("zeros", False)):
        fully = nn.Sequential(*padded(mode)[:2], nn.AvgPool2d(2))
        section = found(fully, x)
        assert (section.shift_error < 1e-6) == good
        assert "move along" in section["shift_error"].method
        assert "shift_changes_answers" not in section


class Mirrored(nn.Module):
    """An answer that a mirror image does not change, and a quarter turn does."""

    def forward(self, x):
        rows = x.sum(3)[:, 0]
        return torch.stack([rows[:, 0], rows[:, -1]], 1)


def test_each_symmetry_is_one_of_its_own():
    section = found(Mirrored(), torch.rand(10, 1, 5, 5), torch.arange(10) % 2)
    assert section.flip_error < 1e-6
    assert section.shift_error < 1e-6  # along the rows, whose sums stay
    assert section.turn_error > 0.05


class OfPositions(nn.Module):
    def __init__(self, ordered: bool):
        super().__init__()
        self.ordered, self.embed = ordered, nn.Embedding(9, 5)

    def forward(self, x):
        h = self.embed(x)
        weight = torch.arange(1.0, h.shape[1] + 1) if self.ordered else torch.ones(h.shape[1])
        return (weight[:, None] * h).sum(1)


def test_permutations_of_positions():
    x = torch.randint(9, (8, 6))
    assert found(OfPositions(False), x).permutation_error < 1e-6
    assert found(OfPositions(True), x).permutation_error > 0.01


def test_permutations_of_nodes():
    club = load("karate")
    section = found(GCN(3, 4, 2, 2), (torch.randn(club.n, 3), club.edge_index), club.y)
    assert section.permutation_error < 1e-5


def test_regions_of_a_plane_are_counted_by_hand():
    model: Any = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(2))
        model[0].bias.zero_()
    x = torch.tensor([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    section = found(model, x, torch.zeros(4, 1))
    assert section.linear_regions == 4  # the quadrants
    assert section.plane_share == 1


def test_regions_alone_are_something(monkeypatch):
    """Where there is no time for the ways between examples, the plane is still there."""
    parts = _regions._longer_and_longer
    monkeypatch.setattr(_regions, "_longer_and_longer", lambda study, a, b, clock: (
        (0.5, way) for _, way in parts(study, a, (a + b) / 2, clock)))  # fmt: skip
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    section = found(model, torch.randn(10, 3))
    assert section.status == "measured"
    assert "pieces_between_examples" not in section
    assert f"{section.linear_regions} linear piece" in section.sentence
    assert "<svg" in section.figure


@pytest.mark.parametrize(
    ("of_a_call", "of_a_piece", "seconds", "whole"),
    [(0.01, 0, 1, True), (0.1, 1e-4, 5, True), (0.01, 1e-3, 3, False), (0.5, 1e-3, 1.5, False)],
)
def test_the_way_between_examples_as_far_as_time_allows(
    monkeypatch, of_a_call, of_a_piece, seconds, whole
):
    """Of 20,000 pieces; no call is begun that would not end in time."""
    now = [0.0]

    def along(network, a, b, **_):
        count = round(20_000 * float((b - a).double().norm() / math.sqrt(2)))
        now[0] += of_a_call + of_a_piece * count
        return Segments(torch.zeros(count - 1), torch.zeros(count, 1, 2))

    monkeypatch.setattr(_regions, "regions_along", along)
    ends, study = torch.eye(2) - torch.tensor([1.0, 0.0]), Study(nn.Linear(2, 2), torch.eye(2))
    clock = Clock(seconds, now=lambda: now[0])
    ways = list(_regions._longer_and_longer(study, ends[0], ends[1], clock))
    assert [part for part, _ in ways] == sorted({part for part, _ in ways})
    for part, way in ways:
        assert len(way.maps) == pytest.approx(20_000 * part, abs=1)
    part, takes = ways[-1][0], of_a_call / ways[-1][0] + 20_000 * of_a_piece
    assert (part == 1) == whole
    assert clock.left() > 0
    why = f"no pieces between examples, of which one pair takes about {takes:.0f} s"
    assert clock.cut == ("" if whole else why)


class Meeting(nn.Module):
    """Walls through a point and all over the plane: whatever is near it has many pieces."""

    def __init__(self, *place: float):
        super().__init__()
        angles = torch.linspace(0, math.pi, 400)
        self.layer, self.place = nn.Linear(2, 400), torch.tensor(place).double()
        with torch.no_grad():
            self.layer.weight.copy_(torch.stack((angles.cos(), angles.sin()), 1))
            self.layer.bias.zero_()

    def forward(self, x):
        return self.layer(x - self.place).relu().sum(1, keepdim=True)


def corners() -> torch.Tensor:
    return torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).double()


def test_walls_that_meet_at_an_example_do_not_hinder():
    """The plane is looked at in the middle between examples."""
    model = Meeting(0.0, 0.0).double()
    items: Any = list(_regions.pieces(Study(model, corners()), corners(), Clock(60.0)))
    assert not items[-1].why_not
    assert len(items[-1].regions.maps) > 10
    low, high = (torch.tensor(ends) for ends in items[-1].regions.plane[-2:])
    assert ((low + high) / 2).tolist() == pytest.approx([0.5, 0.5], abs=1e-6)


def test_walls_that_are_too_many_however_near_are_told_of(monkeypatch):
    monkeypatch.setattr(_regions, "_in_sight", lambda *_: math.inf)
    section = found(Meeting(0.0, 0.0).double(), corners(), torch.zeros(3, 1).double(), budget=20.0)
    assert "linear_regions" not in section
    assert "too many meet in the middle between three examples" in section.sentence


def test_far_more_polygons_than_were_in_sight_are_looked_for_on_less(monkeypatch):
    sides, real = [], _regions.linear_regions

    def too_many_on_all_of_it(network, plane, **knobs):
        sides.append(plane.high[0] - plane.low[0])
        if sides[-1] == max(sides):
            raise ValueError("there must be at most 2000 regions")
        return real(network, plane, **knobs)

    monkeypatch.setattr(_regions, "linear_regions", too_many_on_all_of_it)
    section = found(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(9, 3))
    assert section.status == "measured"
    assert sides[1] == pytest.approx(sides[0] / 8)
    assert section.plane_share == pytest.approx(1 / 64)


def test_a_plane_that_would_take_too_long_is_left_out(monkeypatch):
    monkeypatch.setattr(_regions, "_POLYGON", 1e9)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    study = Study(model, torch.randn(10, 3))
    clock = Clock(5.0)
    items = [_regions.Pieces(density=1.0, seconds=1.0)]
    monkeypatch.setattr(_regions, "_between", lambda *_: items)
    assert list(_regions.pieces(study, torch.randn(10, 3), clock)) == items
    assert clock.cut == "no linear regions on a plane, which take about 100000000000 s"


def test_pieces_that_no_time_was_found_for_are_no_reason_not_to_apply(monkeypatch):
    monkeypatch.setattr(_regions, "_POLYGON", 1e9)
    parts = _regions._longer_and_longer

    def half(study, a, b, clock):
        for _, way in parts(study, a, (a + b) / 2, clock):
            yield 0.5, way
        clock.cut = "no pieces between examples, of which one pair takes about 9 s"

    monkeypatch.setattr(_regions, "_longer_and_longer", half)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    section = found(model, torch.randn(10, 3), budget=20.0)
    assert section.status == "out of time"
    assert section.reason.startswith("for want of time: no pieces between examples, of which one")
    assert "no linear regions on a plane" in section.reason


def test_how_dense_pieces_are_is_not_guessed_from_one_of_them(monkeypatch):
    """Of 1000 pieces, 0.02 s each, in 4 s: the first ten-thousandth of the way holds one alone."""
    now = [0.0]

    def along(network, a, b, **_):
        count = max(1, round(1000 * float((b - a).double().norm() / math.sqrt(2))))
        now[0] += 0.01 + 0.02 * count
        return Segments(torch.zeros(count - 1), torch.zeros(count, 1, 2))

    monkeypatch.setattr(_regions, "regions_along", along)
    ends, clock = torch.eye(2), Clock(4.0, now=lambda: now[0])
    last: Any = list(_regions._between(Study(nn.Linear(2, 2), ends), ends, clock))[-1]
    assert last.between is None
    assert last.density == pytest.approx(1000 / math.sqrt(2), rel=0.1)


def test_symmetries_are_measured_where_pieces_take_all_the_time(monkeypatch):
    def endless(*_):
        raise OutOfTime
        yield

    monkeypatch.setattr(geometry, "pieces", endless)
    section = found(padded("zeros"), torch.rand(12, 1, 6, 6), torch.arange(12) % 3)
    assert section.status == "partly"
    assert {"shift_error", "flip_error", "turn_error"} <= {m.name for m in section.measurements}
    assert "mirror images are missed by" in section.sentence
    assert "<svg" in section.figure


def test_what_has_no_pieces_and_no_symmetry():
    smooth = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))
    section = found(smooth, torch.rand(10, 4), torch.arange(10) % 3)
    assert section.status == "not applicable"
    assert "GELU" in section.reason
    assert section.figure is None


def test_symmetries_that_are_cut_short_are_told_of(monkeypatch):
    now = [0.0]

    def slow(*_):
        now[0] += 100.0
        return ()

    monkeypatch.setattr(geometry, "_moved", slow)
    monkeypatch.setattr(geometry, "pieces", lambda *_: ())
    clock, moves = Clock(1000.0, now=lambda: now[0]), ["shifts", "mirror images", "quarter turns"]
    list(geometry.geometry(Study(padded("zeros"), torch.rand(12, 1, 6, 6)), clock))
    assert clock.cut.split(", ") == [f"8 of 12 examples for {each}" for each in moves]


def test_large_outputs_are_moved_for_fewer_examples(monkeypatch):
    monkeypatch.setattr(geometry, "_ENTRIES", 31)
    assert geometry._most(Study(nn.Linear(4, 3), torch.rand(12, 4))) == 10


def test_pieces_and_symmetries_are_told_and_drawn_together():
    study = Study(padded("zeros"), torch.rand(12, 1, 6, 6))
    items: Any = list(geometry.geometry(study, Clock(math.inf)))
    words = [each.text for each in items if hasattr(each, "text")][-1]
    figure = [each.draw for each in items if hasattr(each, "draw")][-1]()
    titles = "; ".join(axes.get_title() for axes in figure.axes)
    assert all(part in words for part in ("linear piece", "are missed by"))
    assert all(part in titles for part in ("linear pieces between three", "one example, moved"))
