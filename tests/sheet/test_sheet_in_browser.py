"""The sheet as Chromium sets and prints it: every box measured, every page counted."""

import re
import zlib

import pytest

from tests.conftest import BROWSER
from vademecum.claims import select
from vademecum.sheet import print_pdf, sheet

pytestmark = BROWSER
HEIGHTS = {"a4": 297 - 16, "letter": 279.4 - 16}  # millimetres of a page's columns
WIDTHS = {"a4": 210 - 14, "letter": 215.9 - 14}
MEASURE = """([width, height]) => {
  document.body.style.width = width + 'mm';
  const main = document.querySelector('main');
  const head = document.querySelector('.about').getBoundingClientRect().bottom;
  const top = main.getBoundingClientRect().top;
  main.style.height = `calc(${height}mm + ${head - top}px)`;  // columns as on pages, side by side
  const style = getComputedStyle(main), box = main.getBoundingClientRect();
  const gap = parseFloat(style.columnGap), step = (box.width + gap) / style.columnCount;
  const column = r => Math.floor((r.left - box.left + 1) / step);
  const over = r => r.right - (box.left + (column(r) + 1) * step - gap);
  const told = e => e.textContent.slice(0, 60);
  const wide = [...document.querySelectorAll('math, p:not(.about), li, h2, h3, h4, h5, code')]
    .filter(e => [...e.getClientRects()].some(r => over(r) > 0.5)).map(told);
  const small = [...document.querySelectorAll('math')]
    .filter(e => parseFloat(getComputedStyle(e).fontSize) < 4.99 / 0.75).map(told);
  const all = [...document.querySelectorAll('h2, h3, h4, h5, .entry, article > p')];
  const ends = all.slice(0, -1).filter((e, i) => /^H/.test(e.tagName) &&
    column([...e.getClientRects()].at(-1)) !== column(all[i + 1].getClientRects()[0])).map(told);
  return {wide, small, ends, columns: column(all.at(-1).getClientRects()[0]) + 1,
    formulas: document.querySelectorAll('math').length,
    fonts: [...document.fonts].map(f => f.status + ' ' + f.family)};
}"""


def measured(chromium, page: str, paper: str) -> dict:
    tab, asked = chromium.new_page(viewport={"width": 1200, "height": 1600}), []
    tab.on("request", lambda request: asked.append(request.url))
    tab.emulate_media(media="print")
    tab.set_content(page)
    tab.evaluate("document.fonts.ready")
    found = tab.evaluate(MEASURE, [WIDTHS[paper], HEIGHTS[paper]])
    tab.close()
    assert all(url.startswith("data:") for url in asked)
    return found


@pytest.mark.parametrize(
    ("form", "paper", "letter"),
    [
        *[(form, paper, None) for form in ("cheat", "full") for paper in ("a4", "letter")],
        *[(form, "a4", letter) for form in ("cheat", "full") for letter in "ABCDE"],
    ],
)
def test_no_formula_is_too_wide_or_small_and_no_heading_ends_a_column(
    chromium, claims, checked, form, paper, letter
):
    page = sheet(claims, form=form, paper=paper, reports=checked, along_sheet=letter)
    found = measured(chromium, page, paper)
    assert found["wide"] == found["small"] == found["ends"] == []
    assert found["formulas"] > 100
    assert {"loaded Vademecum Text", "loaded Vademecum Maths"} <= set(found["fonts"])
    assert {font.partition(" ")[0] for font in found["fonts"]} <= {"loaded", "unloaded"}
    if (form, letter) == ("cheat", None):
        assert 4 * 3 < found["columns"] <= 4 * 8
    assert len(page.encode()) < 5e6


def unpacked(pdf: bytes) -> bytes:
    """The file with its compressed objects in plain text."""
    found = re.finditer(rb"/Type /ObjStm.*?/Length (\d+)>>\nstream\n", pdf)
    parts = [zlib.decompress(pdf[f.end() : f.end() + int(f[1])]) for f in found]
    return b"\n".join([pdf, *parts])


def letters(pdf: bytes) -> list[int]:
    """How often each page shows letters; its margins alone some 250 times."""
    found = re.findall(rb"/Type /Page\b(?!s).*?/Contents (\d+) 0 R", unpacked(pdf), re.DOTALL)
    counts = []
    for number in found:
        start = pdf.index(b"\n%s 0 obj\n" % number)
        content = pdf[pdf.index(b"stream\n", start) + 7 : pdf.index(b"\nendstream", start)]
        counts.append(len(re.findall(rb"T[jJ]\b", zlib.decompress(content))))
    return counts


@pytest.mark.parametrize(("form", "pages"), [("cheat", range(4, 9)), ("full", range(40, 60))])
def test_the_whole_course_as_pdf(claims, checked, form, pages):
    pdf = print_pdf(sheet(claims, form=form, reports=checked))
    assert len(pdf) < 5e6
    text = unpacked(pdf)
    shown = letters(pdf)
    assert len(shown) == len(re.findall(rb"/Type /Page\b(?!s)", text))
    assert len(shown) in pages
    assert min(shown) > 400, "a page is blank"
    for what in (b"/StructTreeRoot", b"/Outlines", b"/MarkInfo", b"/Lang (en)"):
        assert what in text
    assert text.count(b"(D:20260131120000+00'00')") == 2
    names = set(re.findall(rb"/BaseFont /[A-Z]{6}\+([\w-]+)", text))
    assert names == {b"OTS-derived-font"}  # all of them ours: none of this machine
    fonts = text.count(b"/Subtype /Type0") + text.count(b"/Subtype /Type3")
    assert fonts == text.count(b"/ToUnicode")  # so text can be selected
    assert b"/JavaScript" not in text


def test_the_same_pdf_twice(checked):
    page = sheet(select("tooling.*"), form="full", reports=checked)
    first = print_pdf(page)
    assert print_pdf(page) == first


def test_margin_boxes_are_printed(checked):
    """With page numbers the file is another than without, which an old Chromium would ignore."""
    page = sheet(select("tooling.*"), reports=checked)
    bare = re.sub(r"@bottom-\w+ \{[^}]*\}", "", page)
    assert bare != page
    assert len(print_pdf(page)) - len(print_pdf(bare)) > 500  # bytes
