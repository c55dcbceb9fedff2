"""Figures of evidence: one panel a name, curves where a coordinate runs, words where none does."""

import numpy as np
import pytest
from matplotlib.lines import Line2D

from tests import fake_claims as fake
from vademecum.claims import Report, at_least, at_most, equals
from vademecum.figures import draw, has_curves

FATES = ("true", "false", "blunt", "vacuous", "not_a_number", "raises")


@pytest.mark.parametrize("name", FATES)
def test_every_report_can_be_drawn(name, tmp_path):
    figure = draw(getattr(fake, name).run())
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000


def points(line: Line2D) -> list[list[float]]:
    return np.asarray(line.get_xydata()).tolist()


def running() -> Report:
    mistakes = [at_most("mistakes", d, 2**d, d=d) for d in (3, 1, 2)]
    gaps = [at_least("gap", 1.0, 0.5 / n, n=n, rule=r) for n in (1, 1000) for r in ("a", "b")]
    still = equals(r"norm of $w$ in $\unknown{x}$", 1.0, 1.0, n=4)
    wrong = at_most("mistakes", 2, 1, d=2), at_least("gap", 1.0, 3.0, n=9, rule="a"), None
    return Report("room.claim", 0, (*mistakes, *gaps, still), wrong)


def test_a_panel_for_each_name_with_the_coordinate_that_runs():
    report = running()
    assert has_curves(report)
    mistakes, gap, words = draw(report).axes
    assert (mistakes.get_title(), mistakes.get_xlabel()) == ("mistakes", "d")
    assert (gap.get_title(), gap.get_xlabel(), gap.get_xscale()) == ("gap", "n", "log")
    measured, bound = mistakes.lines[0], mistakes.lines[1]
    assert points(measured) == [[1, 1], [2, 2], [3, 3]]
    assert points(bound) == [[1, 2], [2, 4], [3, 8]]
    labels = [line.get_label() for line in mistakes.lines]
    assert labels[0] == "measured"
    assert "upper bound" in labels
    assert points(mistakes.lines[labels.index("foils' bound")]) == [[2, 1]]
    assert "measured, rule = b" in [line.get_label() for line in gap.lines]
    assert [text.get_text() for text in words.texts] == [
        r"norm of \$w\$ in \$\unknown{x}\$: 1 == 1 at n = 4"
    ]


def test_formulas_that_matplotlib_cannot_set_stay_as_typed(tmp_path):
    places = (r"$|x - \frac12|$", r"$\unknown$")
    rows = [equals(r"$\frac12$ of it", n, n, n=n, f=f) for n in (1, 2) for f in places]
    draw(Report("room.claim", 0, tuple(rows))).savefig(tmp_path / "figure.svg")
    assert "frac12" in (tmp_path / "figure.svg").read_text()


def test_where_nothing_runs_there_are_words_only():
    report = Report("room.claim", 0, (equals("sum", 4, 4, n=2),), (equals("sum", 4, 5, n=2),))
    assert not has_curves(report)
    (words,) = draw(report).axes
    assert [text.get_text() for text in words.texts] == [
        "sum: 4 == 4 at n = 2", "foil refuted: sum: 4 != 5 at n = 2"
    ]  # fmt: skip
    assert not words.lines
