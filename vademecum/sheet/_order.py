"""What stands where: statements by room and chapter, or along one of the five sheets."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from vademecum import ROOMS
from vademecum.claims import Claim
from vademecum.claims.chapters import chapters

__all__ = ["LOST", "Heading", "Place", "along", "by_room"]

LOST = {
    "D": "sections 7 to 10, 11.1, 15.1 and parts of 14 and 19",
    "E": "sections 7 to 12 and most of 13 to 17",
}
"""What the scan of a sheet lacks, so that nothing here can stand beside it."""
_GROUP = 50  # numbers of a sheet under one heading


class Heading(NamedTuple):
    """A heading: its level, 2 for rooms, and its words."""

    level: int
    text: str


class Place(NamedTuple):
    """A statement where it stands; beside a sheet, with the numbers that it has there."""

    claim: Claim
    level: int
    numbers: str = ""
    again: str = ""
    """The number under which it stood before, if it did."""


def by_room(claims: Iterable[Claim]) -> Iterator[Heading | Place]:
    """All statements, room by room and chapter by chapter."""
    claims = list(claims)
    rooms = {claim.room: None for claim in claims}
    for room in sorted(rooms, key=lambda r: ROOMS.index(r) if r in ROOMS else len(ROOMS)):
        yield Heading(2, room)
        for chapter in chapters(room, claims):
            yield Heading(3, chapter.title)
            for section in chapter.sections:
                deeper = len(chapter.sections) > 1 and section.title != chapter.title
                if deeper:
                    yield Heading(4, section.title)
                yield from (Place(claim, 4 + deeper) for claim in section.claims)


def along(claims: Iterable[Claim], letter: str) -> Iterator[Heading | Place]:
    """The statements of one sheet by their numbers; where one returns, the number it had before."""
    found: dict[str, list[Claim]] = {}
    for claim in claims:
        for number in claim.sources:
            if number.startswith(letter):
                found.setdefault(number, []).append(claim)
    first: dict[str, str] = {}
    shown = -1
    for numbers, here in _runs(found):
        start = numbers[0]
        if (group := (_digits(start) - 1) // _GROUP) != shown:
            shown = group
            yield Heading(
                2, f"{letter}-{group * _GROUP + 1:03} to {letter}-{(group + 1) * _GROUP:03}"
            )
        label = start if len(numbers) == 1 else f"{start} to {numbers[-1]}"
        for claim in here:
            yield Place(claim, 3, label, first.get(claim.id, ""))
            first.setdefault(claim.id, start)


def _runs(found: dict[str, list[Claim]]) -> list[tuple[list[str], list[Claim]]]:
    """Neighbouring numbers that have the same statements, together."""
    runs: list[tuple[list[str], list[Claim]]] = []
    for number in sorted(found):
        here = sorted(found[number], key=lambda claim: claim.id)
        if runs and runs[-1][1] == here:
            runs[-1][0].append(number)
        else:
            runs.append(([number], here))
    return runs


def _digits(number: str) -> int:
    return int(number.partition("-")[2])
