"""Live pictures where nobody answers: each control is a strip of a few positions, drawn beforehand.

A room's pictures are those cells of its notebook that are named `_show_...`. A control is moved
while the others stand as they do when the notebook opens, so that the number of files is the sum
over the controls and not the product.
"""

import base64
import html
import json
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import marimo

from vademecum.atlas.pages import notebook_of

__all__ = ["Position", "Still", "Strip", "draw_still", "split_image", "stills_of"]

POSITIONS = 4


class Position(NamedTuple):
    """Where a control can stand, the values of all controls then, and the picture's file."""

    words: str
    path: str
    knobs: dict[str, Any]
    first: bool
    alt: str = ""


class Strip(NamedTuple):
    """The positions of one control."""

    label: str
    positions: tuple[Position, ...]


class Still(NamedTuple):
    """A picture as it stands when the notebook opens, and the strips that change it."""

    cell: str
    heading: str
    path: str
    image: str
    strips: tuple[Strip, ...]
    alt: str = ""


def stills_of(room: str) -> list[Still]:
    """The pictures of a room's notebook, none if it has no notebook.

    Example:
        >>> (still,) = stills_of("tooling")
        >>> [strip.label for strip in still.strips]
        ['numbers added', 'decimals of each', 'seed']
        >>> [position.words for position in still.strips[1].positions]
        ['1', '2', '3']
    """
    notebook = notebook_of(room)
    if notebook is None:
        return []
    outputs, values = notebook.app.run()
    texts = [getattr(output, "text", "") for output in outputs]
    cells = [c for c in vars(notebook).values() if isinstance(c, marimo.Cell)]
    cells = iter([cell for cell in cells if cell.name.startswith("_show_")])
    heading, found = "", []
    for text in texts:
        if re.match(r"<span [^>]*><h", text):
            heading = text
        elif text.startswith("<img "):
            cell = next(cells)
            path = f"pictures/{room}{cell.name}"
            used = {name: values[name] for name in values if name in cell.refs}
            strips = tuple(_strips(_in_order(used, texts), path))
            found.append(Still(cell.name, heading, f"{path}.svg", text, strips))
    return found


def draw_still(room: str, cell: str, knobs: dict[str, Any]) -> str:
    """The image, as HTML, that a cell shows with its controls set so."""
    chosen = {name: SimpleNamespace(value=value) for name, value in knobs.items()}
    return getattr(notebook_of(room), cell).run(**chosen)[0].text


def split_image(image: str) -> tuple[bytes, str]:
    """The SVG within an image's HTML, and its words.

    Example:
        >>> split_image('<img src="data:image/svg+xml;base64,PHN2Zy8+" alt="a &amp; b">')
        (b'<svg/>', 'a & b')
    """
    found = re.fullmatch(r'<img src="[^,]+,([^"]+)" alt="([^"]*)">', image)
    if found is None:
        raise ValueError(f"image must be made by as_image, got {image[:60]!r}")
    return base64.b64decode(found[1]), html.unescape(found[2])


def _in_order(used: dict[str, Any], texts: list[str]) -> dict[str, Any]:
    """The controls among what a cell uses, as they stand on the page."""
    kinds = marimo.ui.slider | marimo.ui.dropdown
    page = "".join(texts)
    shown = {name: page.find(c.text) for name, c in used.items() if isinstance(c, kinds)}
    return {name: used[name] for name in sorted(shown, key=lambda name: shown[name])}


def _strips(controls: dict[str, Any], path: str) -> Iterator[Strip]:
    at_first = {name: control.value for name, control in controls.items()}
    for name, control in controls.items():
        values = _positions(control)
        made = []
        for number, value in enumerate(values):
            first = value == control.value
            words = value if isinstance(value, str) else f"{value:g}".replace("-", "−")
            file = f"{path}.svg" if first else f"{path}-{name}-{number}.svg"
            made.append(Position(words, file, at_first | {name: value}, first))
        yield Strip(_label(control), tuple(made))


def _positions(control: Any) -> list[Any]:
    """A few values of a control, evenly spaced, among them the one that it has."""
    if isinstance(control, marimo.ui.dropdown):
        return list(control.options.values())
    values = list(control.steps or ())
    if not values:
        count = round((control.stop - control.start) / control.step) + 1
        values = [round(control.start + k * control.step, 9) for k in range(count)]
    last, own = len(values) - 1, min(values, key=lambda value: abs(value - control.value))
    few = {round(k * last / (POSITIONS - 1)) for k in range(POSITIONS)}
    here = values.index(own)
    if here not in few and last > POSITIONS - 1:
        few -= {min(few - {0, last}, key=lambda k: abs(k - here))}
    return [control.value if k == here else values[k] for k in sorted(few | {here})]


def _label(control: Any) -> str:
    found = re.search(r"data-label='([^']*)'", control.text)
    label = json.loads(html.unescape(found[1])) if found else ""
    return html.unescape(re.sub(r"<[^>]+>", "", label or "")).strip()
