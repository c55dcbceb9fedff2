"""Sections that had too little time run once more; what they found before is not lost by it."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from vademecum.examine import Measurement, Section, examine, examining
from vademecum.examine import _supervised as supervising
from vademecum.examine._clock import Clock, OutOfTime
from vademecum.examine._json import measurement_as_json, section_as_json
from vademecum.examine._section import Drawing, run_section
from vademecum.examine._study import Study
from vademecum.examine.examining import run_sections


def test_a_section_that_had_too_little_time_runs_once_more_if_some_is_left(plans):
    """Half of the time is its share, then the other, which the second section does not need."""
    runs = []

    def greedy(study, clock):
        runs.append(clock.left())
        yield Measurement("first", 1.0)
        if len(runs) == 1:
            clock.cut = "1 of 2 parts"
            return
        yield Measurement("second", 2.0)

    plans("greedy", greedy, 1.0)
    plans("quick", lambda study, clock: iter([Measurement("number", 1.0)]), 1.0)
    section = examine(nn.Linear(2, 1), torch.rand(4, 2), budget=10.0)["greedy"]
    assert section.status == "measured"
    assert "second" in section
    assert 4 < runs[0] <= 5 < runs[1] <= 10


@pytest.mark.parametrize(("left", "again"), [(1.6, True), (1.4, False)])
def test_a_second_run_needs_half_as_much_again_as_the_first_took(plans, monkeypatch, left, again):
    now, runs = [0.0], []

    def short(study, clock):
        runs.append(0)
        yield Measurement("first", 1.0)
        now[0] += 100.0
        clock.cut = "1 of 2 parts"

    def timed(plan, *rest, **knobs):
        return replace(run_section(plan, *rest, **knobs), seconds=100.0)

    plans("short", short)
    monkeypatch.setattr(examining, "run_section", timed)
    study = Study(nn.Linear(2, 1), torch.rand(4, 2))
    run_sections(study, ["short"], Clock(100 * (1 + left), now=lambda: now[0]))
    assert len(runs) == (2 if again else 1)


def test_a_second_run_that_finds_less_does_not_count(plans):
    runs = []

    def worse(study, clock):
        runs.append(0)
        yield Measurement("first", 1.0)
        clock.cut = "1 of 2 parts"
        if len(runs) == 1:
            yield Measurement("second", 2.0)

    plans("worse", worse)
    section = examine(nn.Linear(2, 1), torch.rand(4, 2), budget=10.0)["worse"]
    assert len(runs) == 2
    assert "second" in section


def _drawing():
    from matplotlib.figure import Figure

    return Figure()


def _out_of_time():
    raise OutOfTime


def _fails():
    raise ZeroDivisionError


@pytest.mark.parametrize("end", [_out_of_time, _fails])
def test_a_second_run_that_does_not_come_to_its_picture_does_not_count(plans, end):
    runs, told = [], []

    def worse(study, clock):
        runs.append(0)
        yield Measurement("first", float(len(runs)))
        if len(runs) == 2:
            end()
        clock.cut = "1 of 2 parts"
        yield Drawing(_drawing)

    plans("worse", worse)
    study = Study(nn.Linear(2, 1), torch.rand(4, 2))
    (section,) = run_sections(study, ["worse"], Clock(10.0), done=told.append)
    assert len(runs) == 2
    assert section.first == 1.0
    assert section.figure is not None
    assert told == [section]


def test_a_section_cut_short_with_nothing_found_is_out_of_time(plans):
    def nothing(study, clock):
        clock.cut = "no part, of which one takes about 9 s"
        yield from ()

    plans("nothing", nothing)
    section = examine(nn.Linear(2, 1), torch.rand(4, 2), budget=10.0)["nothing"]
    assert section.status == "out of time"
    assert section.reason == "for want of time: no part, of which one takes about 9 s"


def test_what_a_process_told_before_its_second_run_was_cut_stays():
    heard = supervising._Heard()
    heard.take({"begun": {}, "sections": {"a": [], "b": []}})
    first, second = (
        Section(name, "partly", (Measurement("n", 1.0), Measurement("m", 2.0)), "Well.")
        for name in "ab"
    )
    for section in (first, second):
        heard.take({"ended": section_as_json(section)})
    heard.take({"item": measurement_as_json(Measurement("n", 5.0)), "section": "a"})
    better = Section("b", "measured", (*second.measurements, Measurement("l", 3.0)), "Better.")
    heard.take({"ended": section_as_json(better)})
    a, b = heard.dossier("the time was over while it ran").sections
    assert (a.n, a.m, a.sentence, a.status) == (1.0, 2.0, "Well.", "partly")
    assert (b.l, b.sentence, b.status) == (3.0, "Better.", "measured")
