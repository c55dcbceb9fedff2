"""The page of a room, made from the room: chapters, ideas, and an entry for every export.

Chapters are the purposes by which the room groups its `__all__`; an idea is a module, whose
docstring opens its section; an entry has what autodoc finds, the claims that check it and its
source. `docs/rooms/ROOM.md` says what else there is to say: an introduction, and a sentence or two
under the heading of a chapter.
"""

import functools
import importlib
import inspect
import re
import sys
from typing import Any

from sphinx.application import Sphinx

from vademecum.atlas.sources import parts_of
from vademecum.claims import select

__all__ = ["chapters", "room_page", "setup"]

_STATED = (
    "What the course states about these things, with the verdicts, is under"
    " [Claims](../claims.md#{room}); what the sheets misprint is under"
    " [Errata](../errata.md#{room})."
)


def chapters(room: str) -> dict[str, dict[str, list[str]]]:
    """The exports of a room by chapter and by the module that defines them.

    Example:
        >>> list(chapters("linear"))
        ['Regression', 'Classification', 'Components and linear networks']
        >>> chapters("linear")["Regression"]["vademecum.linear.lms"]
        ['LMS', 'lms_rate_bounds']
    """
    package = importlib.import_module(f"vademecum.{room}")
    listed = inspect.getsource(package).partition("__all__ = [")[2]
    found: dict[str, dict[str, list[str]]] = {}
    ideas: dict[str, list[str]] = {}  # of all chapters: a module has its place where it comes first
    for comment, name in re.findall(r'# (.+)|"(\w+)"', listed.partition("]")[0]):
        if comment:
            found[comment[0].upper() + comment[1:]] = {}
        else:
            module = getattr(package, name).__module__
            if module not in ideas:
                ideas[module] = found[next(reversed(found))][module] = []
            ideas[module].append(name)
    return found


def room_page(room: str, text: str) -> str:
    """What `ROOM.md` says, and the room itself under the headings of its chapters."""
    introduction, *rest = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    said = dict(zip(rest[::2], rest[1::2], strict=True))
    listed = chapters(room)
    if extra := said.keys() - listed.keys():
        raise ValueError(f"{room}.md has {sorted(extra)}, which are no chapters of the room")
    blocks = [introduction.strip(), _STATED.format(room=room)]
    for title, ideas in listed.items():
        blocks += [f"## {title}", said.get(title, "").strip()]
        for module, names in ideas.items():
            blocks += [_idea(module), *(_entry(room, name) for name in names)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _idea(module: str) -> str:
    """A module's docstring, which is Markdown, with its first line as the heading."""
    heading, _, body = inspect.cleandoc(sys.modules[module].__doc__ or module).partition("\n")
    return f"### {heading.removesuffix('.')}\n\n{body.strip()}".strip()


def _entry(room: str, name: str) -> str:
    thing = getattr(sys.modules[f"vademecum.{room}"], name)
    kind, options = ("class", "\n   :members:") if inspect.isclass(thing) else ("function", "")
    return f"```{{eval-rst}}\n.. auto{kind}:: vademecum.{room}.{name}{options}\n```"


@functools.cache
def checked_by() -> dict[str, list[str]]:
    """The ids of the claims that call an export, by its full name."""
    found: dict[str, list[str]] = {}
    for claim in select():
        for part in parts_of(claim):
            room = part.module.split(".")[1]
            found.setdefault(f"vademecum.{room}.{part.name}", []).append(claim.id)
    return found


def _read(_: Sphinx, page: str, source: list[str]) -> None:
    if page.startswith("rooms/"):
        source[0] = room_page(page.removeprefix("rooms/"), source[0])


def _checks(_: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if claims := checked_by().get(name):
        lines += ["", f":Checked by: {', '.join(f'``{claim}``' for claim in claims)}", ""]


def setup(app: Sphinx) -> dict[str, bool]:
    """Extend the pages of rooms as they are read, and docstrings after napoleon (500)."""
    app.connect("source-read", _read)
    app.connect("autodoc-process-docstring", _checks, priority=600)
    return {"parallel_read_safe": True}
