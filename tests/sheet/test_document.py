"""The sheet as HTML: what stands on it, in which order, with which marks."""

import re
from html import unescape
from typing import Any

import pytest

import vademecum
from tests.sheet.conftest import VERSIONS, report
from vademecum.claims import Checked, Claim, equals, select
from vademecum.errors import UsageError
from vademecum.sheet import _document, sheet
from vademecum.sheet._fonts import letters_in, missing
from vademecum.sheet._marks import MARKS, letters, mark
from vademecum.sheet._order import LOST, Place, along

SHEETS = "ABCDE"
SIGN = re.compile(r'role="img" aria-label="([^"]+)">(.)<')


@pytest.fixture
def _no_fonts(monkeypatch):
    """Pages without fonts, which take a second to cut."""
    monkeypatch.setattr(_document, "faces", lambda page, marks: "")


def toy(statement: str = "", **options) -> Claim:
    def two(total: int = 4):
        yield equals("two and two", 2 + 2, total)

    two.__doc__ = statement or "Two and two is four.\n\nFor all $n$."
    two.__module__ = "vademecum.tooling.claims.arrays"
    made = {"by": "identity", "sources": ("B-001",), "short": "2 + 2 = 4"} | options
    return Claim("tooling.two", two, **made)


@pytest.mark.usefixtures("_no_fonts")
@pytest.mark.parametrize("form", ["cheat", "full"])
@pytest.mark.parametrize("room", vademecum.ROOMS)
def test_every_room(room, form, checked):
    claims = select(f"{room}.*")
    page = sheet(claims, form=form, reports=checked)
    printed = [claim for claim in claims if claim.short or form == "full"]
    assert len(SIGN.findall(page)) == len(printed)
    assert f'<p class="about">{len(printed)} statements.' in page
    assert f"<h2>{room}</h2>" in page
    if form == "full":
        assert page.count('class="erratum"') == sum(len(claim.errata) for claim in claims)
        assert all(f"<code>{claim.id}</code>" in page for claim in claims)
    whole(page)


def whole(page: str) -> None:
    """One file, which asks nobody for anything."""
    assert not re.search(r"<script|<link|<img|https?:|@import", page)
    opened = re.findall(r"<(p|article|span|h\d|main|b)\b", page)
    assert len(opened) == len(re.findall(r"</(p|article|span|h\d|main|b)>", page))


@pytest.mark.usefixtures("_no_fonts")
@pytest.mark.parametrize("form", ["cheat", "full"])
@pytest.mark.parametrize("letter", SHEETS)
def test_every_sheet_in_its_own_order(letter, form, checked, claims):
    page = sheet(claims, form=form, reports=checked, along_sheet=letter)
    numbers = re.findall(r'class="number">([A-E]-\d{3})', page)
    assert {number[0] for number in numbers} == {letter}
    assert numbers == sorted(numbers)
    assert ('<p class="lost">' in page) == (letter in LOST)
    whole(page)


def test_a_statement_that_returns_names_its_first_number(claims):
    flow = [part for part in along(claims, "B") if isinstance(part, Place)]
    first: dict[str, str] = {}
    for place in flow:
        assert place.again == first.get(place.claim.id, "")
        first.setdefault(place.claim.id, place.numbers.partition(" ")[0])
    printed = {n for claim in claims for n in claim.sources if n.startswith("B")}
    spans = [re.findall(r"B-\d{3}", place.numbers) for place in flow]
    assert printed <= {f"B-{i:03}" for s in spans for i in range(int(s[0][2:]), int(s[-1][2:]) + 1)}


@pytest.mark.parametrize(
    ("by", "sign"),
    [("witness", "●"), ("exhaustion", "●"), ("identity", "◐"), ("sampling", "○"), ("fit", "○"),
     ("training", "○")],
)  # fmt: skip
def test_marks(by, sign):
    claim = toy(by=by)
    assert mark(claim, "holds").sign == sign
    assert mark(claim, None).sign == "◌"
    assert {mark(claim, verdict).sign for verdict in ("refuted", "blunt", "overdue")} == {"✗"}
    assert len({one.sign for one in MARKS}) == len({one.words for one in MARKS}) == 5


def test_letters_of_corrected_statements():
    claim = toy()
    assert letters(claim) == []
    told: dict[str, Any] = {"printed": "5", "right": "4", "why": "so"}
    claim.erratum("D-002", **told, weight="scan", total=5)
    claim.erratum("B-001", **told, weight="soft", total=5)
    claim.erratum("B-003", **told, total=6)
    assert letters(claim) == ["[B]", "(D)"]
    page = sheet([claim], form="full")
    assert '<span class="hard">B</span> <span class="loose">(D)</span>' in page
    claim.erratum("E-004", printed=r"\sqrt 5", right="$4$", why="so", total=7)
    page = sheet([claim], form="full")
    assert page.count("<msqrt>") == 1
    assert "<b>D-002</b> (scan) <i>printed:</i> 5 <i>right:</i> 4 <i>why:</i> so" in page


def test_what_does_not_hold_is_printed_as_such():
    claim = toy()
    run = Checked("2026-01-31T12:00:00Z", VERSIONS, (report(claim.id, holds=False),))
    for form in ("cheat", "full"):
        page = sheet([claim], form=form, reports=run)
        assert "does not hold (refuted)" in page
        assert SIGN.findall(page) == [("does not hold", "✗")]


def test_of_many_seeds_the_worst_counts():
    both = (report("a.b", holds=False), report("a.b"))
    assert Checked("", {}, both).verdicts() == {"a.b": "refuted"}
    assert Checked("", {}, both[::-1]).verdicts() == {"a.b": "refuted"}


def test_versions_and_the_date_are_those_of_the_reports(checked):
    page = sheet([toy()], reports=checked)
    footer = "Vademecum 0.1.0, torch 2.13.0, NumPy 2.4.1, Python 3.11.2  ·  checked 2026-01-31  ·  "
    assert f'content: "{footer}" counter(page) " of " counter(pages)' in page
    assert "not checked  ·" in sheet([toy()])
    assert SIGN.findall(sheet([toy()])) == [("not checked", "◌")]


def test_the_same_bytes_in_any_order_zone_and_language(checked, monkeypatch):
    claims = select("bayes.*")
    first = sheet(claims, reports=checked)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert sheet(claims[::-1], reports=checked) == first


@pytest.mark.parametrize("form", ["cheat", "full"])
def test_fonts_have_every_letter(claims, form, monkeypatch):
    monkeypatch.setattr(_document, "faces", lambda page, marks: "")
    page = sheet(claims, form=form)
    body = page[page.index("<body>") :]
    assert list(missing(body, marks=[one.sign for one in MARKS])) == []
    assert "√" in letters_in(body).maths  # which no formula spells
    assert {"𝜖", "ℎ"} <= letters_in(body).maths


@pytest.mark.parametrize(
    ("options", "form", "complaint"),
    [
        ({"short": r"\wrong x"}, "cheat", r"tooling.two cannot .* unknown command .wrong"),
        ({"statement": "Two.\n\nFor $\\wrong$."}, "full", "tooling.two cannot be typeset"),
        ({"statement": "$\\wrong$ and two."}, "cheat", "tooling.two cannot be typeset"),
        ({"short": rf"\sqrt{{{'xyz' * 25}}}"}, "cheat", "tooling.two .* em wide, where a column"),
        ({"short": ""}, "cheat", "no claim is left to print"),
    ],
)
def test_what_cannot_be_set_ends_with_the_id(options, form, complaint):
    with pytest.raises(UsageError, match=complaint):
        sheet([toy(**options)], form=form)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"form": "long"}, "form must be one of cheat, full, got 'long'"),
        ({"paper": "a5"}, "paper must be one of a4, letter, got 'a5'"),
        ({"along_sheet": "F"}, "along_sheet must be one of A, B, C, D, E, got 'F'"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_wrong_arguments(options, complaint):
    with pytest.raises(UsageError, match=complaint):
        sheet([toy()], **options)


def test_a_heading_with_nothing_below_is_left_out():
    silent = toy(short="")
    silent.id = "tooling.silent"
    told = toy()
    told.check.__module__ = "vademecum.tooling.claims.decompositions"
    page = unescape(sheet([silent, told]))
    assert page.count("<h3>") == 1


def test_errata_are_words_with_formulas_between_dollars(claims):
    for claim in claims:
        for foil in claim.errata:
            for text in (foil.printed, foil.right, foil.why):
                words = re.sub(r"\$.*?\$|`.*?`", "", text, flags=re.DOTALL)
                assert not re.search(r"[\\^$]", words), (claim.id, text)
