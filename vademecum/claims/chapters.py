"""The order of reading: a room's claims by chapter, and the sheets' statements by number.

A chapter is a module of claims, or a package of such modules, which are its sections; the first
line of its docstring is its title, a colon, and a sentence on it.
"""

import importlib
import inspect
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from vademecum import ROOMS
from vademecum.claims import Claim

__all__ = ["Chapter", "Section", "chapters", "prerequisites", "sheets"]


class Section(NamedTuple):
    """The claims of one module."""

    title: str
    about: str
    claims: tuple[Claim, ...]


class Chapter(NamedTuple):
    """Claims that belong together."""

    name: str
    title: str
    about: str
    sections: tuple[Section, ...]

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The claims of all sections, in the order of reading."""
        return tuple(claim for section in self.sections for claim in section.claims)


def chapters(room: str, claims: Iterable[Claim]) -> list[Chapter]:
    """The chapters of a room in the order in which its package lists them.

    Example:
        >>> from vademecum.claims import select
        >>> [chapter.name for chapter in chapters("tooling", select("tooling.*"))][:2]
        ['arrays', 'decompositions']
    """
    by_module: dict[str, list[Claim]] = {}
    for claim in claims:
        if claim.room == room:
            by_module.setdefault(claim.check.__module__, []).append(claim)
    listed = _listed(f"vademecum.{room}.claims") if room in ROOMS else []
    inner = {chapter: _listed(chapter) or [chapter] for chapter in listed}
    known = {module for modules in inner.values() for module in modules}
    inner |= {module: [module] for module in by_module if module not in known}
    return [
        Chapter(chapter.rpartition(".")[2], *_title(chapter), sections)
        for chapter, modules in inner.items()
        if (sections := tuple(_section(m, by_module[m]) for m in modules if m in by_module))
    ]


def _section(module: str, claims: list[Claim]) -> Section:
    ordered = sorted(claims, key=lambda claim: (_line(claim), claim.id))
    return Section(*_title(module), tuple(ordered))


def _line(claim: Claim) -> int:
    return inspect.unwrap(claim.check).__code__.co_firstlineno


def _listed(package: str) -> list[str]:
    """What a package lists; nothing for a module."""
    module = importlib.import_module(package)
    return [f"{package}.{name}" for name in module.__all__] if hasattr(module, "__path__") else []


def _title(module: str) -> tuple[str, str]:
    first = (importlib.import_module(module).__doc__ or module).partition("\n")[0]
    title, _, about = first.partition(": ")
    return title.rstrip("."), about[:1].upper() + about[1:]


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
