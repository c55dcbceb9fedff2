"""PDF files after printing: smaller, the same each time, and still whole."""

import re
import zlib

import pytest

from vademecum.sheet._pdf import tidied


def file(objects: dict[int, bytes], date: str = "20260131120000+01'00'") -> bytes:
    """A file as Chromium writes it."""
    info = {1: f"<</Title (T)\n/CreationDate (D:{date})\n/ModDate (D:{date})>>".encode()}
    out, offsets = bytearray(b"%PDF-1.4\n%\xd3\xeb\xe9\xe1\n"), {}
    for number, body in (info | objects).items():
        offsets[number] = len(out)
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    size, start = max(offsets) + 1, len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % size
    out += b"".join(b"%010d 00000 n \n" % offsets[n] for n in range(1, size))
    end = b"trailer\n<</Size %d\n/Root 2 0 R\n/Info 1 0 R>>\nstartxref\n%d\n%%%%EOF\n"
    return bytes(out) + end % (size, start)


def objects(pdf: bytes) -> dict[int, bytes]:
    """The objects of a tidied file, read as a viewer reads them: from its end."""
    start = int(first_group(rb"startxref\n(\d+)\n%%EOF\n$", pdf))
    about, table = stream(pdf, start)
    assert b"/W [1 4 2]" in about
    found = {}
    for n in range(len(table) // 7):
        kind, place = table[7 * n], int.from_bytes(table[7 * n + 1 : 7 * n + 5])
        index = int.from_bytes(table[7 * n + 5 : 7 * n + 7])
        if kind == 1:
            assert pdf[place:].startswith(b"%d 0 obj" % n)
            found[n] = pdf[place : pdf.index(b"\nendobj\n", place)].partition(b"obj\n")[2].rstrip()
        elif kind == 2:
            holder = int.from_bytes(table[7 * place + 1 : 7 * place + 5])
            about, content = stream(pdf, holder)
            first = int(first_group(rb"/First (\d+)", about))
            heads = list(map(int, content[:first].split()))
            assert heads[2 * index] == n
            ends = [*heads[1::2], len(content) - first + 1]
            found[n] = content[first + ends[index] : first + ends[index + 1] - 1]
    return found


def first_group(pattern: bytes, text: bytes) -> bytes:
    found = re.search(pattern, text)
    assert found is not None
    return found[1]


def stream(pdf: bytes, start: int) -> tuple[bytes, bytes]:
    about, _, rest = pdf[start:].partition(b"stream\n")
    length = int(first_group(rb"/Length (\d+)", about))
    return about, zlib.decompress(rest[:length])


PLAIN = {
    2: b"<</Type /Catalog\n/Pages 3 0 R>>",
    3: b"<</Type /Pages\n/Kids []>>",
    4: b"<</Length 15>>\nstream\nendo endobj end\nendstream",
}


def test_objects_are_the_same_and_dates_are_ours():
    made = objects(tidied(file(PLAIN), date="2026-02-03T04:05:06Z"))
    assert {n: made[n] for n in PLAIN} == PLAIN
    assert made[1].count(b"(D:20260203040506+00'00')") == 2
    assert b"D:19700101000000+00'00'" in objects(tidied(file(PLAIN)))[1]


def test_the_time_of_printing_changes_nothing():
    first = tidied(file(PLAIN))
    assert tidied(file(PLAIN, "20270131120000Z")) == first
    other = tidied(file(PLAIN | {3: b"<</Type /Pages\n/Kids [5]>>"}))
    ids = [first_group(rb"/ID \[<(\w{32})> <\1>\]", pdf) for pdf in (first, other)]
    assert ids[0] != ids[1]


def test_more_objects_than_one_stream_holds():
    many = {n: b"<</N %d>>" % n for n in range(5, 2500)}
    made = objects(tidied(file(PLAIN | many)))
    assert {n: made[n] for n in many} == many


def element(kind: str, parent: int, kids: str, more: str = "") -> bytes:
    return f"<</Type /StructElem\n/S /{kind}\n/P {parent} 0 R{more}\n/K {kids}>>".encode()


def test_wrappers_without_a_meaning_go_and_their_content_stays():
    tree = {
        5: element("P", 2, "[6 0 R 9 0 R]"),
        6: element("NonStruct", 5, "7 0 R"),
        7: element("NonStruct", 6, "8 0 R"),
        8: element("NonStruct", 7, "3", "\n/Pg 3 0 R"),
        9: element("NonStruct", 5, "10 0 R"),
        10: element("Code", 9, "4", "\n/Pg 3 0 R"),
    }
    made = objects(tidied(file(PLAIN | tree)))
    assert not {6, 7} & {*made}
    assert made[5] == element("P", 2, "[8 0 R 9 0 R]")
    assert made[8] == element("NonStruct", 5, "3", "\n/Pg 3 0 R")
    assert (made[9], made[10]) == (tree[9], tree[10])


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda pdf: pdf[:-40], "must end with a plain table of offsets"),
        (lambda pdf: pdf.replace(b"/Root", b"/Boot"), "must name its /Root"),
        (lambda pdf: pdf.replace(b"3 0 obj", b"3 0 abc"), "must have an object at byte"),
    ],
)
def test_foreign_files_are_refused(damage, complaint):
    with pytest.raises(ValueError, match=complaint):
        tidied(damage(file(PLAIN)))
