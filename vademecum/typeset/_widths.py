"""How wide a browser will set a formula, estimated from the font that it uses.

Widths are in em of the formula's own size. Letters and signs count as the font says, scripts and
fractions at the sizes that it demands, signs that grow by a share more. The sums err by a few
hundredths, as `tests/sheet` measures in a browser.
"""

import unicodedata
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from vademecum.typeset._symbols import FENCES

__all__ = ["FONT", "italic", "width"]

FONT = Path(__file__).parent / "font"
"""The folder with the font of the formulas, its style sheet and its licence."""
_SCALES = (1.0, 0.7, 0.55)  # of scripts, and of scripts of scripts
_GROWN = 1.4  # a fence around a fraction, or a sum on a line of its own
_NEVER = 0.6  # em, of a sign that the font lacks
_CELL = 0.8  # em between two columns of a matrix
_SPACES = {"punct": (0, 3), "bin": (4, 4), "rel": (5, 5)}  # eighteenths of an em
_SLANTED = dict(zip("hϵϑϰϕϱϖ∂∇ıȷ", "ℎ𝜖𝜗𝜘𝜙𝜚𝜛𝜕𝛻𝚤𝚥", strict=True))  # those of other names
_BINARY = frozenset("+−±∓×÷⋅∗∘∙∪∩∨∧∖⊕⊖⊗⊙⊎⊔⊓")


def width(part: Element, *, display: bool = False, level: int = 0) -> float:
    """The width of an element of MathML, or of a row of such, in em.

    Args:
        part: The element.
        display: Whether it stands on a line of its own, where fractions keep their size.
        level: 0 for what is set in full size, 1 in scripts, 2 in scripts of scripts.

    Example:
        >>> from vademecum.typeset._reader import read
        >>> [round(sum(map(width, read(tex).elements)), 2) for tex in ("x", "x^2", "x + x")]
        [0.56, 0.97, 2.28]
    """
    display = {"true": True, "false": False}.get(part.get("displaystyle", ""), display)
    level = min(level + int(part.get("scriptlevel", "0")), 2)
    inner = list(part)
    match part.tag:
        case "mi" | "mn" | "mtext" | "mo":
            return _text(part, display) * _SCALES[level]
        case "mspace":
            return float(part.get("width", "0em").removesuffix("em")) * _SCALES[level]
        case "mfrac":
            smaller = level if display else min(level + 1, 2)
            return max(width(child, level=smaller) for child in inner) + 0.15 * _SCALES[level]
        case "msqrt" | "mroot":
            degree = sum(width(child, level=2) for child in inner[1:])
            return degree + _advance("√") * _SCALES[level] + width(inner[0], level=level)
        case "msub" | "msup" | "msubsup" | "munder" | "mover" | "munderover":
            return _scripted(part, display, level)
        case "mtable":
            return _table(part, display, level)
    fenced = any(child.tag in ("mfrac", "mtable") for child in inner)
    grown = 0.5 * _SCALES[level] if fenced and inner[0].tag == "mo" else 0.0
    return sum(width(child, display=display, level=level) for child in inner) + grown


def _scripted(part: Element, display: bool, level: int) -> float:
    base, *scripts = part
    whole = width(base, display=display, level=level)
    if "accent" in part.attrib:
        return whole + 0.05
    beside = max(width(script, level=min(level + 1, 2)) for script in scripts)
    if part.tag.startswith("mu") or part.tag == "mover":
        return max(whole, beside)
    return whole + beside + 0.06 * _SCALES[level]


def _table(part: Element, display: bool, level: int) -> float:
    columns: dict[int, float] = {}
    for row in part:
        for i, cell in enumerate(row):
            columns[i] = max(columns.get(i, 0.0), width(cell, display=display, level=level))
    return sum(columns.values()) + _CELL * len(columns)


def _text(part: Element, display: bool) -> float:
    text = part.text or ""
    if part.tag == "mi" and len(text) == 1 and "mathvariant" not in part.attrib:
        text = italic(text)
    whole = sum(_advance(letter) for letter in text)
    if part.tag != "mo":
        return whole
    if text in ("∑", "∏", "∫", "⋃", "⋂", "⨁") and display:
        whole *= _GROWN
    if "minsize" in part.attrib:
        whole = 1.3 * whole + 0.15
    kind = "punct" if text in (",", ";") else "bin" if text in _BINARY else "rel"
    closed = text in FENCES and (text not in "|‖" or "form" in part.attrib)
    usual = (0, 0) if closed or text in "∑∏∫" else _SPACES[kind]
    sides = zip(("lspace", "rspace"), usual, strict=True)
    return whole + sum(
        float(part.get(side, f"{default / 18}em").removesuffix("em")) for side, default in sides
    )


@cache
def italic(letter: str) -> str:
    """The slanted letter that a browser shows for a lone one."""
    if letter in _SLANTED:
        return _SLANTED[letter]
    name = unicodedata.name(letter, "")
    name = name.replace("LATIN ", "").replace("GREEK ", "").replace("LETTER ", "")
    try:
        return unicodedata.lookup(f"MATHEMATICAL ITALIC {name}")
    except KeyError:
        return letter


@cache
def _advance(letter: str) -> float:
    names, metrics = _metrics()
    if ord(letter) not in names:
        return 0.0 if unicodedata.combining(letter) else _NEVER
    return metrics[names[ord(letter)]][0] / 1000


@cache
def _metrics() -> tuple[dict[int, str], Any]:
    from fontTools.ttLib import TTFont  # comes with matplotlib

    with TTFont(FONT / "maths.woff") as font:
        return font.getBestCmap() or {}, font["hmtx"].metrics
