"""The fonts of the sheet, cut down to the letters in use and written into the style sheet.

The text is set in STIX General, code and marks in DejaVu, which come with matplotlib; formulas in
the font of the atlas. They go in as TrueType, uncompressed: the bytes depend on no compressor, and
Chromium stretches fences of such fonts without fail.
"""

import base64
import re
from collections.abc import Iterable, Iterator
from html import unescape
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from vademecum.typeset import FONT
from vademecum.typeset._widths import italic

__all__ = ["faces", "letters_in"]

_MATHS = re.compile(r"<math.*?</math>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_CODE = re.compile(r"<code>(.*?)</code>", re.DOTALL)


class _Face(NamedTuple):
    family: str
    file: str
    style: str = "normal"
    weight: str = "400"


_TEXT = (
    _Face("Vademecum Text", "STIXGeneral.ttf"),
    _Face("Vademecum Text", "STIXGeneralBol.ttf", weight="700"),
    _Face("Vademecum Text", "STIXGeneralItalic.ttf", style="italic"),
)
_CODES = _Face("Vademecum Code", "DejaVuSansMono.ttf")
_MARKS = _Face("Vademecum Marks", "DejaVuSans.ttf")
_FORMULAS = _Face("Vademecum Maths", "maths.woff")


class Letters(NamedTuple):
    """The letters of a page: in its text, in its code and in its formulas."""

    text: frozenset[str]
    code: frozenset[str]
    maths: frozenset[str]


def letters_in(page: str) -> Letters:
    """The letters of a page, each where it is used."""
    maths = {c for found in _MATHS.findall(page) for c in unescape(_TAG.sub("", found))}
    maths |= {"√"} if "<msqrt" in page or "<mroot" in page else set()  # which no text has
    rest = _MATHS.sub("", page)
    code = {c for found in _CODE.findall(rest) for c in unescape(found)}
    text = set(unescape(_TAG.sub("", rest)))
    return Letters(frozenset(text), frozenset(code), frozenset(maths | {*map(italic, maths)}))


def faces(page: str, *, marks: Iterable[str]) -> str:
    """The rules `@font-face` for the letters of a page, with the fonts in them.

    Args:
        page: The HTML, without fonts.
        marks: The signs that stand before statements.
    """
    found, signs = letters_in(page), frozenset(marks)
    wanted = [(face, found.text - signs) for face in _TEXT]
    wanted += [(_CODES, found.code), (_MARKS, signs), (_FORMULAS, found.maths)]
    return "\n".join(_rule(face, letters) for face, letters in wanted if letters)


def _rule(face: _Face, letters: frozenset[str]) -> str:
    data = base64.b64encode(_cut(_path(face.file), letters)).decode()
    return (
        f'@font-face {{ font-family: "{face.family}"; font-style: {face.style};'
        f" font-weight: {face.weight}; font-display: block;"
        f' src: url("data:font/ttf;base64,{data}") format("truetype"); }}'
    )


def _path(file: str) -> Path:
    import matplotlib

    own = FONT / file
    return own if own.exists() else Path(matplotlib.get_data_path(), "fonts", "ttf", file)


def _cut(path: Path, letters: frozenset[str]) -> bytes:
    """The font with these letters alone, and with the shapes into which they grow."""
    from fontTools import subset

    options = subset.Options(hinting=False, layout_features=["ccmp", "kern", "ssty"])
    options.drop_tables += ["DSIG", "FFTM", "GPOS" if path.suffix == ".woff" else "DSIG"]
    options.name_IDs = [0, 1, 2, 13, 14]  # copyright and licence stay
    with subset.load_font(str(path), options) as font, BytesIO() as file:
        cutter = subset.Subsetter(options)
        cutter.populate(unicodes=sorted(map(ord, letters)))
        cutter.subset(font)
        font.flavor = None
        font.save(file, reorderTables=None)
        return file.getvalue()


def missing(page: str, *, marks: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Letters of a page that its fonts lack, with the name of the font."""
    from fontTools.ttLib import TTFont

    found, signs = letters_in(page), frozenset(marks)
    wanted = ((_TEXT[0], found.text - signs), (_CODES, found.code), (_MARKS, signs))
    for face, letters in (*wanted, (_FORMULAS, found.maths)):
        with TTFont(_path(face.file)) as font:
            known = font.getBestCmap() or {}
        yield from ((face.family, c) for c in sorted(letters) if ord(c) not in known and c != "\n")
