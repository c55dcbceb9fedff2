"""The figure of a claim is a projection of its evidence: measured against bound, at each place."""

import math
from typing import TYPE_CHECKING

from vademecum.claims.evidence import Evidence
from vademecum.claims.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw"]


def draw(report: Report) -> "Figure":
    """Draw what was measured (dots) against its bound (bars), and the refuted foils (crosses).

    The horizontal axis is the first coordinate of the evidence, if all of it has that one and it is
    a number, and else the running number of the comparison, with the foils behind a dotted line.
    matplotlib is imported here, when somebody wants a picture.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    evidence = list(report.evidence)
    foils = [e for e in report.counterexamples if e is not None]
    axis = _axis(evidence + foils)
    behind = len(evidence) + 0.5  # where the foils begin, if places are running numbers
    bar = {"marker": "_", "ls": "", "color": "0.5", "ms": 11, "mew": 2}
    for rows, first, mark, name in (
        (evidence, 0, "o", "measured"),
        (foils, behind + 0.5, "x", "foil, measured"),
    ):
        if rows:
            places = [e.at[axis] if axis else first + i for i, e in enumerate(rows)]
            axes.plot(places, [_value(e.bound) for e in rows], **bar)
            axes.plot(places, [_value(e.measured) for e in rows], mark, ms=5, label=name)
    if foils and not axis:
        axes.axvline(behind, ls=":", color="0.6")
    axes.plot([], [], **bar, label="bound")
    _scale(axes, [*evidence, *foils], axis)
    axes.set_xlabel(axis or "comparison")
    axes.set_title(f"{report.id}: {report.verdict}", fontsize="medium")
    axes.legend(frameon=False, fontsize="small")
    return figure


def _axis(evidence: list[Evidence]) -> str:
    name = next(iter(evidence[0].at), "") if evidence else ""
    numeric = all(isinstance(e.at.get(name), int | float) for e in evidence)
    return name if numeric else ""


def _value(number: float) -> float:
    return float(number) if abs(number) < 1e300 else math.nan


def _scale(axes: "Axes", evidence: list[Evidence], axis: str) -> None:
    """Logarithms where numbers of different magnitude would hide each other."""
    values = [v for e in evidence for v in (_value(e.measured), _value(e.bound)) if v == v]
    if _wide(values):
        axes.set_yscale("log" if min(values) > 0 else "symlog")
    places = [e.at[axis] for e in evidence] if axis else []
    if _wide(places) and min(places) > 0:
        axes.set_xscale("log")


def _wide(numbers: list[float]) -> bool:
    sizes = [abs(v) for v in numbers if abs(v) > 1e-6]  # the rest is zero or rounding
    return bool(sizes) and max(sizes) > 1e3 * min(sizes)
