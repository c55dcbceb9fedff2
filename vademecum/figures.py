"""The figure of a claim is a projection of its evidence: measured against bound, at each place."""

import math
from typing import TYPE_CHECKING

from vademecum.claims.evidence import Evidence
from vademecum.claims.report import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw"]


def draw(report: Report) -> "Figure":
    """Draw what was measured (dots) against its bound (bars), and the refuted foils (crosses).

    The horizontal axis is the first coordinate of the evidence if it is a number, and else the
    running number of the comparison. matplotlib is imported here, when somebody wants a picture.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    evidence = list(report.evidence)
    foils = [e for e in report.counterexamples if e is not None]
    axis = _axis(evidence)
    for rows, mark, name in ((evidence, "o", "measured"), (foils, "x", "foil, measured")):
        places = [_place(e, axis, i) for i, e in enumerate(rows)]
        if rows:
            axes.plot(places, [_value(e.bound) for e in rows], "_", color="0.35", ms=16, mew=2)
            axes.plot(places, [_value(e.measured) for e in rows], mark, label=name)
    axes.plot([], [], "_", color="0.35", ms=16, mew=2, label="bound")
    _scale(axes, [*evidence, *foils])
    axes.set_xlabel(axis or "comparison")
    axes.set_title(f"{report.id}: {report.verdict}", fontsize="medium")
    axes.legend(frameon=False, fontsize="small")
    return figure


def _axis(evidence: list[Evidence]) -> str:
    name = next(iter(evidence[0].at), "") if evidence else ""
    numeric = all(isinstance(e.at.get(name), int | float) for e in evidence)
    return name if numeric else ""


def _place(evidence: Evidence, axis: str, number: int) -> float:
    place = evidence.at.get(axis, number)
    return place if isinstance(place, int | float) else number


def _value(number: float) -> float:
    return float(number) if abs(number) < 1e300 else math.nan


def _scale(axes, evidence: list[Evidence]) -> None:
    values = [v for e in evidence for v in (_value(e.measured), _value(e.bound)) if v == v]
    if values and min(values) > 0 and max(values) > 1e3 * min(values):
        axes.set_yscale("log")
