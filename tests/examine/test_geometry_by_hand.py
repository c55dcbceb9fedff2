"""Numbers and pictures of the geometry section that are known beforehand."""

import math
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

from vademecum.approximation import Segments
from vademecum.canvas import svg
from vademecum.examine._clock import Clock
from vademecum.examine._section import Drawing
from vademecum.examine._study import Study
from vademecum.examine.sections import geometry
from vademecum.examine.sections._symmetries import applicable, measured
from vademecum.foundations import clopper_pearson
from vademecum.geometry import EquivarianceError


class TwoPixels(nn.Module):
    """Scores of three classes: two pixels, and a number."""

    def forward(self, x):
        first = x[:, 0, 0, :2]
        return torch.cat([first, torch.full_like(first[:, :1], 4.5)], 1)


def test_answers_that_a_shift_changes_are_counted():
    rows = torch.tensor([[9.0, 5, 6], [9.0, 5, 6], [9.0, 5, 20], [5.0, 9, 6]])
    x = rows[:, None, None]  # after a shift: the second class, the same, the first, the first
    study = Study(TwoPixels(), x, torch.zeros(4).long())
    shift = applicable(study, x[:2], study.outputs()[:2])[0]
    found = geometry._changed_answers(study, shift, x)
    assert found.each == (1.0, 1.0, 0.0, 1.0)
    assert found.value == 0.75
    assert found.error == pytest.approx(tuple(clopper_pearson(3, 4)))
    items = geometry._moved(study, shift, 4)
    assert "shift_changes_answers" in [getattr(each, "name", "") for each in items]


class Ends(nn.Module):
    """Two classes: the sums of the first and of the last row."""

    def forward(self, x):
        rows = x.sum(3)[:, 0]
        return torch.stack([rows[:, 0], rows[:, -1].square()], 1)


def images(model: nn.Module, side: int) -> Study:
    return Study(model, torch.rand(10, 1, side, side), torch.arange(10) % 2)


def test_answers_of_two_classes_are_answers():
    items = geometry._moved(images(Ends(), 5), applicable_to(images(Ends(), 5))[0], 8)
    assert "shift_changes_answers" in [getattr(each, "name", "") for each in items]


def applicable_to(study: Study) -> Any:
    return applicable(study, study.take(2)[0], study.outputs()[:2])


def test_the_picture_shows_the_orbit_that_is_missed_most_and_fits(monkeypatch):
    """Twelve shifts do not fit, so it is a quarter turn or a mirror image."""
    shown: list[Any] = []
    monkeypatch.setattr(geometry, "pieces", lambda *_: ())
    monkeypatch.setattr(geometry, "_drawn", lambda known, worst: shown.append(worst))
    study = images(nn.Sequential(nn.Flatten(), nn.Linear(144, 3)), 12)
    for item in geometry.geometry(study, Clock(math.inf)):
        if isinstance(item, Drawing):
            item.draw()
    every = [e for each in applicable_to(study) for e in geometry._moved(study, each, 10)]
    errors = {len(e.elements): e.error for e in every if isinstance(e, EquivarianceError)}
    assert sorted(errors) == [2, 4, 12]
    assert shown[-1].error == pytest.approx(max(errors[2], errors[4]))
    assert errors[2] != errors[4]


def test_time_that_one_symmetry_leaves_is_for_the_next_ones(monkeypatch):
    left: list[float] = []

    def noted(self, first, last, **_):
        left.append(self.left())
        return iter(())

    monkeypatch.setattr(Clock, "portions", noted)
    monkeypatch.setattr(geometry, "pieces", lambda *_: ())
    list(geometry.geometry(images(Ends(), 5), Clock(1000.0, now=lambda: 0.0)))
    assert left == pytest.approx([400 / 3, 400 / 2, 400])


def test_outputs_of_one_input_are_drawn_as_they_are():
    """A tent: up with slope 2 and down again."""
    maps = torch.tensor([[[0.0, 2.0]], [[2.0, -2.0]]])
    axes = Figure().subplots()
    geometry._draw_segment(Segments(torch.tensor([0.5]), maps), axes)
    line = axes.lines[0]
    assert torch.as_tensor(line.get_xdata()).tolist() == [0.0, 0.5, 1.0]
    assert torch.as_tensor(line.get_ydata()).tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("value", "words"), [(9e-6, "nothing"), (2e-5, "2.0e-05"), (0.002, "0.2%"), (0.25, "25.0%")]
)
def test_shares_in_words(value, words):
    assert geometry._share(value) == words


def test_nothing_of_the_picture_of_pieces_beside_an_orbit_is_cut_off():
    """A figure is as large as it is saved, and all of its words lie within."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(25, 6), nn.ReLU(), nn.Linear(6, 2))
    items = list(geometry.geometry(images(model, 5), Clock(math.inf)))
    figure = [each.draw for each in items if isinstance(each, Drawing)][-1]()
    titles = [axes.get_title() for axes in figure.axes]
    assert len(titles) == 2
    svg(figure)
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert min(box.x0, box.y0, width - box.x1, height - box.y1) > -0.01


class Mixing(nn.Module):
    """Nodes that know their place."""

    def forward(self, x, edge_index):
        return x * torch.arange(1.0, len(x) + 1)[:, None]


def test_the_error_of_one_graph_is_over_its_moves():
    x, edges = torch.ones(9, 2), torch.tensor([[0, 1, 2], [1, 2, 3]])
    study = Study(Mixing(), (x, edges))
    (symmetry,) = applicable(study, study.data.x, study.outputs())
    told, found = list(geometry._moved(study, symmetry, 8))
    assert isinstance(told, geometry.Measurement)
    assert isinstance(found, EquivarianceError)
    moved = [i for i, g in enumerate(found.elements) if g != symmetry.group.identity]
    each = found.errors[moved].double()
    assert told.n == 1
    assert told.error == pytest.approx(float(each.std()) / math.sqrt(len(moved)))
    assert f"; one input, moved {len(moved)} times, error of their mean" in told.method


def test_moves_that_are_drawn_are_a_part_of_the_error():
    """Multiples of one signal are missed alike by a shift, but some shifts by more than others."""
    turn = 2 * torch.pi * torch.arange(40.0) / 40
    x = torch.arange(1.0, 13)[:, None, None] * turn.cos()
    layer = nn.Linear(40, 2, bias=False)
    layer.weight.data = torch.stack([turn.cos(), turn.sin()])
    model = nn.Sequential(nn.Conv1d(1, 1, 1, bias=False), nn.Flatten(), layer)
    # turned by an angle, outputs are off by the chord: in units of the outputs, and of turned ones
    chords = 2 * (turn[1:] / 2).sin()
    for seed in range(5):
        study = Study(model, x, torch.arange(12) % 2, seed=seed)
        shift = applicable(study, x[:2], study.outputs()[:2])[0]
        told, found = measured(study, shift, x)
        assert isinstance(told, geometry.Measurement)
        assert isinstance(found, EquivarianceError)
        assert isinstance(told.value, float)
        drawn = chords[[g - 1 for g in found.elements if g]]
        assert told.value == pytest.approx(float(drawn.mean()), rel=1e-4)
        spread = float(drawn.std()) / math.sqrt(len(drawn))
        assert told.error == pytest.approx(spread, rel=1e-3)
        assert abs(told.value - float(chords.mean())) < 4 * spread
        assert f"n examples, {len(drawn)} moves that were drawn, error" in told.method


def test_one_example_is_moved_at_least(monkeypatch):
    monkeypatch.setattr(geometry, "_ENTRIES", 2)
    assert geometry._most(Study(nn.Linear(4, 3), torch.rand(12, 4))) == 1
