r"""Formulas for a narrow column: broken at relations, at last within fences, or set smaller."""

import re
from itertools import pairwise
from xml.etree.ElementTree import Element, tostring

from vademecum.typeset._formulas import starts
from vademecum.typeset._reader import read
from vademecum.typeset._spacing import Row, element
from vademecum.typeset._widths import width

__all__ = ["fitted"]

_STEP = 100  # sizes are hundredths


def fitted(tex: str, *, room: float, least: float = 1.0, block: bool = False) -> list[str]:
    r"""The MathML of a formula in pieces none of which is wider than a column.

    Lines may end between pieces. A long formula is broken after relations, commas and signs; a
    piece that is too wide, at all of these, then within fences; then it is set smaller.

    Args:
        tex: The formula, without dollars.
        room: The width of the column, in em.
        least: By which factor a formula may be made smaller.
        block: Whether it stands on a line of its own.

    Raises:
        ValueError: If the formula cannot be read, or is wider than the column in the least size.

    Example:
        >>> [len(fitted(r"a + b + c = d", room=room)) for room in (20.0, 4.0, 2.0)]
        [1, 3, 4]
        >>> fitted(r"\frac{a + b + c}{d}", room=2.0, least=0.8)[0][:29]
        '<math style="font-size:.9em">'
    """
    row, words = _by_words(read(tex, block=block))
    if block and _span(row.elements, True) <= room:
        return [_math(row.elements, display="block")]
    parts = _parts(row, words, room, block)
    return [_sized(part, room, least, tex, block) for part in parts]


def _by_words(row: Row) -> tuple[Row, list[int]]:
    """The row with each word of its texts by itself, and where words begin or end."""
    elements: list[Element] = []
    places, new = [], []
    for part in row.elements:
        new.append(len(elements))
        if part.tag == "mtext":
            for word in re.findall("[^\u00a0]*\u00a0|[^\u00a0]+$", part.text or ""):
                places.append(len(elements))
                elements.append(element("mtext", word))
            places.append(len(elements))
        else:
            elements.append(part)
    breaks = [(new[at], kind) for at, kind in row.breaks]
    return Row(elements, breaks, [new[at] for at in row.inner]), places


def _parts(row: Row, words: list[int], room: float, block: bool) -> list[list[Element]]:
    """The elements of a row in portions that fit, as far as there are places to break."""
    chosen = {0} if block else set(starts(row))
    relations = [at for at, kind in row.breaks if kind == "rel"]
    others = [at for at, kind in row.breaks if kind != "rel"]
    for places in (relations, [*others, *words], row.inner):
        for start, end in _spans(chosen, len(row.elements)):
            if _span(row.elements[start:end], block) > room:
                chosen |= _needed(row, start, end, sorted({*places, *chosen}), room, block)
    return [row.elements[start:end] for start, end in _spans(chosen, len(row.elements))]


def _needed(
    row: Row, start: int, end: int, places: list[int], room: float, block: bool
) -> set[int]:
    """Breaks between two places, each as late as the column allows."""
    inside = [at for at in places if start < at < end]
    found, at = set(), start
    for i, here in enumerate(inside):
        after = inside[i + 1] if i + 1 < len(inside) else end
        if _span(row.elements[at:after], block) > room:
            found.add(here)
            at = here
    return found


def _spans(chosen: set[int], size: int) -> list[tuple[int, int]]:
    ends = sorted({*chosen, size})
    return list(pairwise(ends))


def _span(elements: list[Element], block: bool) -> float:
    return sum(width(part, display=block) for part in elements)


def _sized(part: list[Element], room: float, least: float, tex: str, block: bool) -> str:
    attributes = {"displaystyle": "true"} if block else {}
    whole = _span(part, block)
    if whole > room:
        size = int(_STEP * room / whole) / _STEP
        if size < least:
            raise ValueError(
                f"a piece of {tex!r} is {whole:.1f} em wide, where a column has {room:.1f}"
                f" and sizes go down to {least:.2f}"
            )
        attributes["style"] = f"font-size:{size:g}em".replace(":0.", ":.")
    return _math(part, **attributes)


def _math(elements: list[Element], **attributes: str) -> str:
    return tostring(element("math", *elements, **attributes), encoding="unicode")
