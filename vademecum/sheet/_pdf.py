"""PDF files without what differs from one printing to the next, and a fraction as large.

Chromium writes the time of printing into the file, and the structure by which it can be read aloud
as tens of thousands of small objects in plain text. Here the dates are replaced, the identifier is
a digest of the content, wrappers that say nothing are left out of the structure, and small objects
go into compressed streams (PDF 1.5; ISO 32000-1, 7.5.7 and 7.5.8).
"""

import hashlib
import re
import zlib

__all__ = ["tidied"]

_DATE = re.compile(rb"\(D:\d{14}[^)]*\)")
_TRAILER = re.compile(rb"trailer\s*<<(.*?)>>\s*startxref\s+(\d+)\s+%%EOF\s*$", re.DOTALL)
_HEAD = re.compile(rb"\s*(\d+) 0 obj\s*")
_ELEMENT = b"<</Type /StructElem"
_BARE = b"/S /NonStruct"
_WRAPPER = re.compile(rb"<</Type /StructElem\s+/S /NonStruct\s+/P (\d+) 0 R\s+/K (\d+) 0 R>>")
_PARENT, _KID = re.compile(rb"/P (\d+) 0 R"), re.compile(rb"(\d+) 0 R")
_PORTION = 1000  # objects in one compressed stream


def tidied(pdf: bytes, *, date: str = "") -> bytes:
    """The same document, with a date of ours.

    Args:
        pdf: As Chromium prints it: with a plain table of offsets, no object changed afterwards.
        date: When its content was made, as in 2026-01-31T12:00:00Z; the epoch by default.

    Raises:
        ValueError: If the file is built otherwise.
    """
    digits = (re.sub(r"\D", "", date) + "0" * 14)[:14] if date else "19700101000000"
    found = _TRAILER.search(pdf)
    if found is None:
        raise ValueError("the PDF must end with a plain table of offsets, and does not")
    objects = _objects(pdf, int(found[2]))
    now = f"(D:{digits}+00'00')".encode()
    plain = {n: body for n, body in objects.items() if not body.endswith(b"endstream")}
    info = int(_reference(b"Info", found[1]).split()[0])
    plain[info] = _DATE.sub(now, plain[info])
    ends = {name: _reference(name, found[1]) for name in (b"Root", b"Info")}
    streams = {n: body for n, body in objects.items() if n not in plain}
    return _written(streams, _without_wrappers(plain), ends)


def _objects(pdf: bytes, table: int) -> dict[int, bytes]:
    """The objects of a file by number, read by its table of offsets."""
    lines = pdf[table:].split(b"\n")
    count = int(lines[1].split()[1])
    entries = (line.split() for line in lines[3 : 2 + count])
    offsets = sorted(int(entry[0]) for entry in entries if entry[2] == b"n")
    found = {}
    for start, end in zip(offsets, [*offsets[1:], table], strict=True):
        head = _HEAD.match(pdf, start)
        if head is None:
            raise ValueError(f"the PDF must have an object at byte {start}, and has none")
        found[int(head[1])] = pdf[head.end() : pdf.rindex(b"endobj", start, end)].rstrip()
    return found


def _without_wrappers(objects: dict[int, bytes]) -> dict[int, bytes]:
    """The objects without elements of no meaning that hold one other such element.

    Nothing else refers to them: what is on a page refers to the element that holds it.
    """
    bare = {n: found for n, body in objects.items() if (found := _WRAPPER.fullmatch(body))}
    parents = {n: int(found[1]) for n, found in bare.items()}
    inside = {n: int(found[2]) for n, found in bare.items() if _BARE in objects[int(found[2])]}

    def above(found: re.Match[bytes]) -> bytes:
        n = int(found[1])
        while n in inside:
            n = parents[n]
        return b"/P %d 0 R" % n

    def below(found: re.Match[bytes]) -> bytes:
        n = int(found[1])
        while n in inside:
            n = inside[n]
        return b"%d 0 R" % n

    kept = {}
    for number, body in objects.items():
        if number not in inside:
            if body.startswith(_ELEMENT):
                head, key, rest = body.partition(b"/K ")
                body = _PARENT.sub(above, head) + key + _KID.sub(below, rest)
            kept[number] = body
    return kept


def _reference(name: bytes, trailer: bytes) -> bytes:
    found = re.search(rb"/" + name + rb"\s+(\d+ 0 R)", trailer)
    if found is None:
        raise ValueError(f"the PDF must name its /{name.decode()} at the end, and does not")
    return found[1]


def _written(streams: dict[int, bytes], plain: dict[int, bytes], ends: dict[bytes, bytes]) -> bytes:
    """A file of these objects, the plain ones compressed."""
    out = bytearray(b"%PDF-1.5\n%\xd3\xeb\xe9\xe1\n")
    size = max([*streams, *plain]) + 1
    places: dict[int, tuple[int, int, int]] = {0: (0, 0, 0)}
    for number in sorted(streams):
        places[number] = (1, len(out), 0)
        out += b"%d 0 obj\n%s\nendobj\n" % (number, streams[number])
    names = sorted(plain)
    for start in range(0, len(names), _PORTION):
        portion = names[start : start + _PORTION]
        places |= {number: (2, size, i) for i, number in enumerate(portion)}
        places[size] = (1, len(out), 0)
        out += _together(size, [(number, plain[number]) for number in portion])
        size += 1
    places[size] = (1, len(out), 0)
    digest = hashlib.sha256(out).hexdigest()[:32].encode()
    table = b"".join(
        kind.to_bytes(1) + place.to_bytes(4) + index.to_bytes(2)
        for kind, place, index in (places.get(n, (0, 0, 0)) for n in range(size + 1))
    )
    about = b"/Type /XRef /W [1 4 2] /Size %d /ID [<%s> <%s>]" % (size + 1, digest, digest)
    about += b"".join(b" /%s %s" % end for end in ends.items())
    start = len(out)
    out += _stream(size, about, table)
    return bytes(out) + b"startxref\n%d\n%%%%EOF\n" % start


def _together(number: int, objects: list[tuple[int, bytes]]) -> bytes:
    """Objects in one compressed stream, after a list of their numbers and places."""
    heads, at = [], 0
    for name, body in objects:
        heads.append(b"%d %d" % (name, at))
        at += len(body) + 1
    head = b" ".join(heads) + b"\n"
    about = b"/Type /ObjStm /N %d /First %d" % (len(objects), len(head))
    return _stream(number, about, head + b"\n".join(body for _, body in objects))


def _stream(number: int, about: bytes, content: bytes) -> bytes:
    packed = zlib.compress(content, 9)
    return b"%d 0 obj\n<<%s /Filter /FlateDecode /Length %d>>\nstream\n%s\nendstream\nendobj\n" % (
        number,
        about,
        len(packed),
        packed,
    )
