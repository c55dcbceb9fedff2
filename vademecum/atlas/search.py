r"""The index of the search: what can be found, by which words, and where it is.

Symbols are words: `theta` finds Θ and `\theta`. Addresses are below the root of the site.
"""

import inspect
import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any

from vademecum.atlas.links import Links
from vademecum.atlas.sources import place_of, room_exports
from vademecum.claims import Claim
from vademecum.pictures import Picture
from vademecum.typeset import in_words

__all__ = ["entries", "words"]

_WORD = re.compile(r"[a-e]-\d+|[^\W_]+")
_GREEK = re.compile("[\u0370-\u03ff]")


def words(text: str) -> str:
    r"""The distinct words of a text, small, in the order of their first appearance.

    Example:
        >>> words(r"$\Theta_i$ and Θ: see B-034, `cover_count`")
        'theta i and see b-034 cover count'
    """
    text = _GREEK.sub(lambda found: f" {unicodedata.name(found[0]).split()[-1]} ", text)
    return " ".join(dict.fromkeys(_WORD.findall(text.lower())))


def entries(
    rooms: Iterable[str], claims: Iterable[Claim], pictures: Iterable[Picture], links: Links
) -> Iterator[dict[str, str]]:
    """Everything that can be searched for: rooms, pictures, statements, errata, exports."""
    for room in rooms:
        yield _entry("room", room, "", links.page(f"rooms/{room}"))
    for picture in pictures:
        to = links.page(f"pictures/{picture.room}/{picture.name}")
        yield _entry("picture", picture.title, picture.id, to, picture.text)
    for claim in claims:
        to, sources = links.statement(claim), ", ".join(claim.sources)
        yield _entry("statement", claim.title, claim.id, to, claim.statement, sources, claim.short)
        for foil in claim.errata:
            about = f"{foil.where}, {foil.weight}; {claim.id}"
            yield _entry("erratum", foil.printed, about, to, foil.right, foil.why)
    for room in rooms:
        for name, thing in room_exports(room).items():
            yield _export(room, name, thing, links)


def _export(room: str, name: str, thing: Any, links: Links) -> dict[str, str]:
    about, place = (inspect.getdoc(thing) or "").partition("\n")[0], place_of(thing)
    to = (
        f"{links.page(f'source/{place.module}')}#L{place.line}"
        if place
        else links.page(f"rooms/{room}")
    )
    return _entry("export", f"{name}: {about}", f"vademecum.{room}.{name}", to, name)


def _entry(kind: str, title: str, more: str, to: str, *text: str) -> dict[str, str]:
    found = words(" ".join([title, more, *text, kind]))
    return {"kind": kind, "title": in_words(title), "more": more, "to": to, "words": found}
