"""The figure of a claim is a projection of its evidence: one panel for each name.

Where a coordinate runs (n, d, a step), what was measured and its bound are curves over it, and the
counterexamples of foils stand beside them as crosses. Where nothing runs there is nothing to draw:
the comparison is written out.
"""

import math
from collections.abc import Iterable
from textwrap import shorten
from typing import TYPE_CHECKING, NamedTuple

from vademecum.claims.evidence import Evidence
from vademecum.claims.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw", "has_curves"]

_PANELS, _LINES, _SERIES = 6, 12, 4
"""Panels, lines of text and curves in a panel, at most: what a page has room for."""


class _Panel(NamedTuple):
    """All evidence of one name, the coordinate that runs through it, and the refuted foils."""

    name: str
    axis: str
    evidence: list[Evidence]
    foils: list[Evidence]


def has_curves(report: Report) -> bool:
    """Whether a coordinate runs through some of the evidence, so that there is something to see."""
    return any(panel.axis for panel in _panels(report))


def draw(report: Report) -> "Figure":
    """Draw what was measured (dots) against its bound (dashes), and the refuted foils (crosses).

    matplotlib is imported here, when somebody wants a picture.
    """
    from matplotlib.figure import Figure

    panels = _panels(report)
    curves = [panel for panel in panels if panel.axis][:_PANELS]
    words = _words(panel for panel in panels if not panel.axis)
    columns = 2 if len(curves) > 1 else 1
    rows = -(-len(curves) // columns)
    height = 2.9 * rows + 0.22 * len(words) + 0.5
    figure = Figure(figsize=(6.4 if columns == 1 else 8.4, max(height, 1.2)), layout="constrained")
    figure.suptitle(f"{report.id}: {report.verdict}", fontsize="medium")
    # the words have a row of their own below the panels
    heights = [2.9] * rows + ([0.22 * len(words)] if words else [])
    if heights:
        grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)
        for i, panel in enumerate(curves):
            _curves(figure.add_subplot(grid[i // columns, i % columns]), panel)
        if words:
            _write(figure.add_subplot(grid[rows, :]), words)
    return figure


def _panels(report: Report) -> list[_Panel]:
    """The evidence by name, in the order of its first appearance."""
    found = [e for e in report.counterexamples if e is not None]
    panels = []
    for name in dict.fromkeys(e.name for e in [*report.evidence, *found]):
        evidence = [e for e in report.evidence if e.name == name]
        foils = [e for e in found if e.name == name]
        panels.append(_Panel(name, _axis(evidence), evidence, foils))
    return panels


def _axis(evidence: list[Evidence]) -> str:
    """The first coordinate that is a number everywhere and not always the same."""
    for name in evidence[0].at if evidence else ():
        values = [e.at.get(name) for e in evidence]
        if all(isinstance(v, int | float) for v in values) and len(set(values)) > 1:
            return name
    return ""


def _curves(axes: "Axes", panel: _Panel) -> None:
    """Measured and bound over the coordinate that runs, a pair of curves for each of the others."""
    series: dict[str, list[Evidence]] = {}
    for e in panel.evidence:
        rest = ", ".join(f"{k} = {v}" for k, v in e.at.items() if k != panel.axis)
        series.setdefault(rest, []).append(e)
    if len(series) > _SERIES:  # too many to tell apart: dots
        series = {"": panel.evidence}
    for rest, entries in series.items():
        entries = sorted(entries, key=lambda e: e.at[panel.axis])
        x = [e.at[panel.axis] for e in entries]
        line = "-" if len(set(x)) == len(x) else ""
        label = _legible(f"measured, {rest}") if len(series) > 1 else "measured"
        (dots,) = axes.plot(x, [_value(e.measured) for e in entries], f"o{line}", ms=4, label=label)
        colour = dots.get_color() if len(series) > 1 else "0.5"
        axes.plot(x, [_value(e.bound) for e in entries], f"_{2 * line}", ms=10, color=colour)
    axes.plot([], [], "_--", color="0.5", label=_bound_label(panel.evidence))
    beside = [e for e in panel.foils if isinstance(e.at.get(panel.axis), int | float)]
    if beside:
        x = [e.at[panel.axis] for e in beside]
        axes.plot(x, [_value(e.bound) for e in beside], "x", color="#c03028", label="foils' bound")
    _scale(axes, [*panel.evidence, *beside], panel.axis)
    axes.set_xlabel(panel.axis)
    axes.set_title(_legible(shorten(panel.name, 70, placeholder=" ...")), fontsize="small")
    axes.legend(frameon=False, fontsize="x-small")


def _bound_label(evidence: list[Evidence]) -> str:
    words = {"<=": "upper bound", ">=": "lower bound", "==": "target"}
    kinds = dict.fromkeys(words[e.relation] for e in evidence)
    return ", ".join(kinds)


def _words(panels: Iterable[_Panel]) -> list[str]:
    lines = []
    for panel in panels:
        tightest = min(panel.evidence, key=lambda e: e.margin + e.tol, default=None)
        if tightest is not None:
            count = len(panel.evidence)
            lines.append(f"{tightest}" + (f"  (tightest of {count})" if count > 1 else ""))
        lines += [f"foil refuted: {e}" for e in panel.foils[:2]]
    if len(lines) > _LINES:
        lines = [*lines[: _LINES - 1], f"and {len(lines) - _LINES + 1} more"]
    return lines


def _write(axes: "Axes", lines: list[str]) -> None:
    axes.axis("off")
    for i, line in enumerate(lines):
        place = 1 - (i + 0.5) / len(lines)
        text = shorten(line, 110, placeholder=" ...")
        axes.text(0, place, _legible(text), fontsize="small", va="center")


def _legible(text: str) -> str:
    """The text, its formulas as they were typed where matplotlib cannot set them."""
    from matplotlib.mathtext import MathTextParser

    try:
        MathTextParser("path").parse(text)
    except ValueError:  # a command it does not know, or half a formula after a cut
        return text.replace("$", r"\$")
    return text


def _value(number: float) -> float:
    return float(number) if abs(number) < 1e300 else math.nan


def _scale(axes: "Axes", evidence: list[Evidence], axis: str) -> None:
    """Logarithms where numbers of different magnitude would hide each other."""
    values = [v for e in evidence for v in (_value(e.measured), _value(e.bound)) if v == v]
    if _wide(values):
        axes.set_yscale("log" if min(values) > 0 else "symlog")
    places = [e.at[axis] for e in evidence]
    if _wide(places, 50) and min(places) > 0:
        axes.set_xscale("log")


def _wide(numbers: list[float], ratio: float = 1e3) -> bool:
    sizes = [abs(v) for v in numbers if abs(v) > 1e-6]  # the rest is zero or rounding
    return bool(sizes) and max(sizes) > ratio * min(sizes)
