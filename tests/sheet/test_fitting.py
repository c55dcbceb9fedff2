"""Formulas cut into pieces for a column, and their widths, against the font and by hand."""

import re
from xml.etree.ElementTree import fromstring

import pytest
from fontTools.ttLib import TTFont

from tests.sheet.test_document import toy
from vademecum.sheet._order import Heading, along
from vademecum.typeset import FONT, fitted
from vademecum.typeset._reader import read
from vademecum.typeset._widths import width


def words(tex: str, room: float, **options) -> list[str]:
    """The letters of each piece."""
    made = fitted(tex, room=room, **options)
    return ["".join(fromstring(piece).itertext()).replace("\u00a0", " ") for piece in made]


def wide(tex: str, *, block: bool = False) -> float:
    return sum(width(part, display=block) for part in read(tex, block=block).elements)


def test_relations_come_before_commas_and_fences():
    assert words("a + b = c + d", 5.0) == ["a+b=", "c+d"]
    assert words("f(a + b + c + d) = e", 4.5)[-1] == "e"
    assert "".join(words("f(a + b + c + d)", 4.5)) == "f(a+b+c+d)"
    assert len(words("f(a + b + c + d)", 4.5)) > 1  # within the fence


def test_a_long_formula_may_end_a_line_although_it_would_fit():
    long = " + ".join(f"a_{{{n}}}" for n in range(30)) + " = b + c + d + e + f + g + h + i + k"
    assert len(words(long, 1000.0)) > 1
    assert len(words("a + b = c", 1000.0)) == len(words(long, 1000.0, block=True)) == 1


def test_places_stay_right_where_texts_are_cut_into_words():
    pieces = words(r"\text{if and only if } a = b", 3.5)
    assert "".join(pieces) == "if and only if a=b"
    assert pieces[-2:] == ["a=", "b"] or pieces[-1] == "a=b"
    assert not any(re.match("[=]", piece) for piece in pieces)


@pytest.mark.parametrize(("sign", "sides"), [("=", 10), ("+", 8), (r"\le", 10), (",", 3)])
def test_signs_have_the_space_of_their_kind(sign, sides):
    with TTFont(FONT / "maths.woff") as font:
        names, metrics = font.getBestCmap() or {}, font["hmtx"].metrics
        letter: str = "≤" if sign == r"\le" else sign
        advance = {c: metrics[names[ord(c)]][0] / 1000 for c in (letter, "𝑥")}
    assert wide(f"x {sign} x") == pytest.approx(2 * advance["𝑥"] + advance[letter] + sides / 18)


def test_a_narrow_limit_below_a_sum_adds_nothing():
    assert wide(r"\sum_i", block=True) == wide(r"\sum", block=True)
    assert wide(r"\sum_{i = 1, \dots, n}", block=True) > 1.5 * wide(r"\sum", block=True)
    assert wide(r"\sum_i") > wide(r"\sum")  # beside it in a line


def test_roots_matrices_and_large_sums():
    assert wide(r"\sqrt x") - wide("x") == pytest.approx(wide(r"\sqrt{x y}") - wide("x y"))
    assert wide(r"\sqrt x") - wide("x") > 0.7  # its advance is 0.79 em
    rows = [
        r"\begin{pmatrix} a b c \\ x \end{pmatrix}",
        r"\begin{pmatrix} x \\ a b c \end{pmatrix}",
    ]
    assert wide(rows[0]) == wide(rows[1]) > wide(r"\begin{pmatrix} x \\ x \end{pmatrix}")
    assert wide(r"\sum", block=True) > 1.3 * wide(r"\sum")


def test_fifty_numbers_of_a_sheet_stand_under_one_heading():
    claims = [toy(sources=(f"B-{n:03}",)) for n in (1, 50, 51, 100, 101)]
    for n, claim in enumerate(claims):
        claim.id = f"tooling.two_{n}"
    flow = [p.text if isinstance(p, Heading) else p.numbers for p in along(claims, "B")]
    assert flow == [
        *("B-001 to B-050", "B-001", "B-050", "B-051 to B-100", "B-051", "B-100"),
        *("B-101 to B-150", "B-101"),
    ]
