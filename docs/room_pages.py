"""The page of a room, made from the room: chapters, ideas, an entry for every export, pictures.

The room's docstring introduces it. Chapters are the purposes by which it groups its `__all__`; an
idea is a module, whose docstring opens its section; an entry has what autodoc finds, the claims
that check it and its source. `docs/rooms/ROOM.md` has the title and what else there is to say, at
the beginning or under the heading of a chapter.
"""

import functools
import html
import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from vademecum.atlas.sources import parts_of
from vademecum.canvas import svg
from vademecum.claims import select
from vademecum.pictures import Picture, pictures

__all__ = ["chapters", "room_page", "setup"]

FOLDER = "_static/pictures"
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
    title, _, more = introduction.partition("\n")
    _, about = _docstring(f"vademecum.{room}")
    drawn = [_picture(each) for each in pictures(f"{room}.*")]
    blocks = [title, about, more, *drawn[:1], _STATED.format(room=room)]
    for chapter, ideas in listed.items():
        blocks += [f"## {chapter}", said.get(chapter, "")]
        for module, names in ideas.items():
            heading, body = _docstring(module)
            blocks += [f"### {heading}", body, *(_entry(room, name) for name in names)]
    blocks += ["## More pictures", *drawn[1:]] if drawn[1:] else []
    return "\n\n".join(block.strip() for block in blocks if block.strip()) + "\n"


def _docstring(module: str) -> tuple[str, str]:
    """The first line of a module's docstring, without the full stop, and the rest: Markdown."""
    heading, _, body = inspect.cleandoc(sys.modules[module].__doc__ or module).partition("\n")
    return heading.removesuffix("."), body


def _picture(each: Picture) -> str:
    """A picture, what there is to see, and how to draw it with other knobs."""
    image = f'<img src="../{FOLDER}/{each.id}.svg" alt="{html.escape(each.in_words())}">'
    claims = f"Claims: {', '.join(f'`{claim}`' for claim in each.claims)}. " if each.claims else ""
    knobs = ", ".join(f"`--{name}`" for name in each.knobs)
    drawn = f"{claims}As a file: `vade draw {each.id}`, with {knobs}."
    return f"{image}\n\n**{each.title}.** {each.text}\n\n{drawn}"


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


def _read(app: Sphinx, page: str, source: list[str]) -> None:
    if page.startswith("rooms/"):
        app.env.note_reread()  # also when only the room has changed
        room = page.removeprefix("rooms/")
        source[0] = room_page(room, source[0])
        folder = Path(app.outdir) / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        for each in pictures(f"{room}.*"):
            (folder / f"{each.id}.svg").write_bytes(svg(each()))


def _checks(_: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if claims := checked_by().get(name):
        lines += ["", f":Checked by: {', '.join(f'``{claim}``' for claim in claims)}", ""]


def setup(app: Sphinx) -> dict[str, bool]:
    """Extend the pages of rooms as they are read, and docstrings after napoleon (500)."""
    app.connect("source-read", _read)
    app.connect("autodoc-process-docstring", _checks, priority=600)
    return {"parallel_read_safe": True}
