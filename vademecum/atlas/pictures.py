"""Drawing for the pages: figures that are readable on light and dark ground alike, with words.

Colours are of medium lightness on a transparent ground, and marks and lines differ in form as well.
Words and axes are grey, darker where the browser prefers a light page and lighter on a dark one: an
SVG image can ask. matplotlib's settings are global, so figures are drawn one at a time.
"""

import base64
import html
import io
import re
import threading
from collections.abc import Callable
from typing import Any

import matplotlib
from cycler import cycler
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

__all__ = ["as_image", "svg"]

_GREY = "#7d8289"
_STYLE: Any = {
    "axes.edgecolor": _GREY,
    "axes.facecolor": "none",
    "axes.labelcolor": _GREY,
    "axes.prop_cycle": cycler(color=["#2f7ed8", "#d9641e", "#2a9d63", "#b5539c", "#8a7a1f"]),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": _GREY,
    "figure.facecolor": "none",
    "font.size": 10,
    "legend.framealpha": 0.0,
    "savefig.facecolor": "none",
    "svg.hashsalt": "vademecum",  # the same figure gives the same file
    "text.color": _GREY,
    "xtick.color": _GREY,
    "ytick.color": _GREY,
}
_RULE = '[style*="fill: {0}"]{{fill:{1}!important}}[style*="stroke: {0}"]{{stroke:{1}!important}}'
_RULES = _RULE.format(_GREY, "#5c6269")
_RULES += f"@media(prefers-color-scheme:dark){{{_RULE.format(_GREY, '#a4a9b0')}}}"
_COORDINATES = re.compile(rb' [dxy]="[^"]*"')
_DECIMALS = re.compile(rb"(\.\d\d)\d+")  # hundredths of a point are enough, here a sixth of a file
_LOCK = threading.Lock()


def svg(draw: Callable[[], Figure]) -> bytes:
    """The SVG of the figure that a function draws.

    Example:
        >>> svg(lambda: Figure((1, 1)))[:5]
        b'<?xml'
    """
    file = io.BytesIO()
    with _LOCK, matplotlib.rc_context(_STYLE):
        # without `savefig`, which draws a figure twice if it has a layout to find
        FigureCanvasSVG(draw()).print_svg(file, metadata={"Date": None})
    made = _COORDINATES.sub(lambda found: _DECIMALS.sub(rb"\1", found[0]), file.getvalue())
    return re.sub(rb"\n +", b"\n", made).replace(b"</style>", _RULES.encode() + b"</style>", 1)


def as_image(draw: Callable[[], Figure], alt: str) -> str:
    """The HTML of an image that carries its figure within, and says what it shows.

    Args:
        draw: Draws the figure.
        alt: What there is to see, in words.
    """
    data = base64.b64encode(svg(draw)).decode()
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{html.escape(alt)}">'
