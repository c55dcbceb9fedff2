"""Figures as files: readable on light and dark ground alike, the same bytes each time.

Colours are of medium lightness on a transparent ground, and marks and lines differ in form as well.
Words and axes are grey, darker where the browser prefers a light page and lighter on a dark one: an
SVG image can ask. matplotlib's settings are global, so figures are drawn one at a time.
"""

import io
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from vademecum.errors import UsageError

__all__ = [
    "GREY",
    "checked_path",
    "legend_beside",
    "panels",
    "plain_numbers",
    "save",
    "styled",
    "svg",
]

GREY = "#7d8289"
"""Of words, axes and whatever else stands back."""
_STYLE: Any = {
    "axes.edgecolor": GREY,
    "axes.facecolor": "none",
    "axes.labelcolor": GREY,
    "axes.prop_cycle": cycler(color=["#2f7ed8", "#d9641e", "#2a9d63", "#b5539c", "#8a7a1f"]),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": GREY,
    "axes.titlesize": 10,
    "figure.facecolor": "none",
    "figure.titlesize": 10,
    "font.size": 10,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.title_fontsize": 8,
    "savefig.facecolor": "none",
    "svg.hashsalt": "vademecum",  # the same figure gives the same file
    "text.color": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
}
_RULE = '[style*="fill: {0}"]{{fill:{1}!important}}[style*="stroke: {0}"]{{stroke:{1}!important}}'
_RULES = _RULE.format(GREY, "#5c6269")
_RULES += f"@media(prefers-color-scheme:dark){{{_RULE.format(GREY, '#a4a9b0')}}}"
_COORDINATES = re.compile(rb' [dxy]="[^"]*"')
_DECIMALS = re.compile(rb"(\.\d\d)\d+")  # hundredths of a point are enough, here a sixth of a file
_LOCK = threading.Lock()


def styled(draw: Callable[[], Figure]) -> Figure:
    """The figure that a function draws, in the style of the house."""
    with _LOCK, matplotlib.rc_context(_STYLE):
        return draw()


def panels(
    size: tuple[float, float],
    rows: int = 1,
    columns: int = 1,
    *,
    margins: tuple[float, float, float, float] = (0.7, 0.2, 0.5, 0.3),
    gaps: tuple[float, float] = (0.6, 0.6),
    **options: Any,
) -> tuple[Figure, Any]:
    """A figure and its axes, at fixed places: nothing moves while a knob is turned.

    That also takes half the time of matplotlib's layouts, which measure every word twice.

    Args:
        size: Width and height of the figure in inches, as all lengths are.
        rows: How many axes there are below each other.
        columns: How many there are beside each other.
        margins: The room for words to the left, to the right, below and above.
        gaps: The room between columns and between rows.
        options: What else `Figure.subplots` takes.
    """
    (width, height), (left, right, bottom, top) = size, margins
    wide = (width - left - right - gaps[0] * (columns - 1)) / columns
    high = (height - bottom - top - gaps[1] * (rows - 1)) / rows
    edges = {"left": left / width, "right": 1 - right / width}
    edges |= {"bottom": bottom / height, "top": 1 - top / height}
    edges |= {"wspace": gaps[0] / wide, "hspace": gaps[1] / high}
    figure = Figure(size)
    return figure, figure.subplots(rows, columns, gridspec_kw=edges, **options)


def legend_beside(axes: Axes, **options: Any) -> None:
    """Explain lines and marks to the right of the axes, where they hide nothing."""
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), **options)


def plain_numbers(axis: Axis, form: str = "{x:g}") -> None:
    """Write 1000 and not a power of ten on a logarithmic axis, and leave out the minor ticks."""
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(form)


def svg(figure: Figure) -> bytes:
    """A figure as SVG.

    Example:
        >>> svg(Figure((1, 1)))[:5]
        b'<?xml'
    """
    file, dpi, canvas = io.BytesIO(), figure.dpi, figure.canvas
    with _LOCK, matplotlib.rc_context(_STYLE):
        # without `savefig`, which draws a figure twice if it has a layout to find
        FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None})
    figure.dpi = dpi  # which an SVG sets to 72
    figure.set_canvas(canvas)
    made = _COORDINATES.sub(lambda found: _DECIMALS.sub(rb"\1", found[0]), file.getvalue())
    return re.sub(rb"\n +", b"\n", made).replace(b"</style>", _RULES.encode() + b"</style>", 1)


def checked_path(path: str | Path) -> Path:
    """The path, if a figure can be written there.

    Raises:
        UsageError: If the ending is unknown, or there is no such folder.
    """
    path = Path(path)
    if path.suffix.lower() not in (".svg", ".png", ".pdf"):
        raise UsageError(f"{path} must end in one of .svg, .png, .pdf")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.absolute().parent}")
    return path


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure into a file whose ending says how: .svg, .png or .pdf.

    Raises:
        UsageError: If the ending is another one, or there is no such folder.
    """
    path = checked_path(path)
    if path.suffix.lower() == ".svg":
        path.write_bytes(svg(figure))
        return
    undated = {"CreationDate": None} if path.suffix.lower() == ".pdf" else None
    with _LOCK, matplotlib.rc_context(_STYLE):  # viewers show what is transparent as black
        figure.savefig(path, dpi=150, facecolor="white", metadata=undated)
