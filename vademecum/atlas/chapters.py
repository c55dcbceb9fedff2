"""The order of reading: a room's claims by chapter, and the sheets' statements by number.

A chapter is a module of claims; the first line of its docstring is its title, a colon, and a
sentence on it.
"""

import importlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from vademecum import ROOMS
from vademecum.claims import Claim

__all__ = ["Chapter", "chapters", "prerequisites", "sheets"]


class Chapter(NamedTuple):
    """Claims that belong together."""

    name: str
    title: str
    about: str
    claims: tuple[Claim, ...]


def chapters(room: str, claims: Iterable[Claim]) -> list[Chapter]:
    """The chapters of a room in the order in which its package lists them.

    Example:
        >>> from vademecum.claims import select
        >>> [chapter.name for chapter in chapters("tooling", select("tooling.*"))][:2]
        ['arrays', 'decompositions']
    """
    listed: list[str] = []
    if room in ROOMS:
        package = importlib.import_module(f"vademecum.{room}.claims")
        listed = [f"{package.__name__}.{name}" for name in package.__all__]
    by_module: dict[str, list[Claim]] = {name: [] for name in listed}
    for claim in claims:
        if claim.room == room:
            by_module.setdefault(claim.check.__module__, []).append(claim)
    return [_chapter(module, found) for module, found in by_module.items() if found]


def _chapter(module: str, claims: list[Claim]) -> Chapter:
    first = (importlib.import_module(module).__doc__ or module).partition("\n")[0]
    title, _, about = first.partition(": ")
    ordered = sorted(claims, key=lambda claim: claim.check.__code__.co_firstlineno)
    about = about[:1].upper() + about[1:]
    return Chapter(module.rpartition(".")[2], title.rstrip("."), about, tuple(ordered))


@cache
def prerequisites(room: str) -> list[str]:
    """The rooms whose names a room imports.

    Example:
        >>> prerequisites("approximation")
        ['foundations', 'connectionism', 'linear']
    """
    if room not in ROOMS:
        return []
    (folder,) = importlib.import_module(f"vademecum.{room}").__path__
    text = "\n".join(path.read_text(encoding="utf-8") for path in Path(folder).rglob("*.py"))
    named = set(re.findall(r"^(?:from|import) vademecum\.(\w+)", text, re.MULTILINE))
    return [other for other in ROOMS if other in named and other != room]


def sheets(claims: Iterable[Claim]) -> dict[str, list[tuple[str, list[Claim]]]]:
    """By sheet: its numbers in order, neighbours with the same claims together, and those claims.

    Example:
        >>> from vademecum.claims import select
        >>> sheets(select("connectionism.novikov_bound"))["A"][0][0]
        'A-031 to A-032'
    """
    found: dict[str, list[Claim]] = {}
    for claim in claims:
        for number in claim.sources:
            found.setdefault(number, []).append(claim)
    by_sheet: dict[str, list[tuple[str, list[Claim]]]] = {}
    for number in sorted(found):
        entries = by_sheet.setdefault(number[0], [])
        if entries and entries[-1][1] == found[number]:
            first = entries.pop()[0].partition(" ")[0]
            entries.append((f"{first} to {number}", found[number]))
        else:
            entries.append((number, found[number]))
    return by_sheet
