"""The same pages as files: they open from a folder, without a server and without a network.

What needs an answer is left out (running checks) or was asked beforehand (pictures, at a few
positions of each control); the verdicts are complete, since claims that never ran are run first.
Pages and pictures are made in worker processes.
"""

import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, as_completed
from functools import cache
from pathlib import Path
from typing import Any, get_args

from vademecum.atlas.application import STATIC
from vademecum.atlas.drawings import draw_picture, positions
from vademecum.atlas.links import Links
from vademecum.atlas.network import Dossier
from vademecum.atlas.pages import Pages
from vademecum.atlas.server import Looking, prepare
from vademecum.atlas.sources import parts_of, place_of, room_exports
from vademecum.atlas.verdicts import Verdicts, figure
from vademecum.claims import Workers, select
from vademecum.claims.memory import Known
from vademecum.errors import UsageError
from vademecum.figures import has_curves
from vademecum.pictures import find_picture
from vademecum.progress import ticking
from vademecum.sheet import Form
from vademecum.typeset import FONT

__all__ = ["export_site"]

_MARK = "index.html"
_OF_ALL = ("home", "errata", "sheet")  # pages that tell the verdicts of all claims
_JOBS = min(os.cpu_count() or 1, 8)


def export_site(
    folder: Path,
    *,
    network: str | None = None,
    shape: tuple[int, ...] | None = None,
    verdicts: Verdicts | None = None,
) -> None:
    """Write all pages into a folder.

    Args:
        folder: Made if missing; what an earlier export left there is replaced.
        network: The user's network, as FILE.py:OBJECT.
        shape: The shape of one of its examples.
        verdicts: The claims and what is known about them; all claims by default.

    Raises:
        UsageError: If the folder holds something else.
    """
    if not _is_ours(folder):
        raise UsageError(f"--export {folder} must be a new folder or an earlier export")
    prepare()
    known = verdicts or Verdicts(select(), jobs=_JOBS)
    crew = Workers(_JOBS, forked=True)
    try:
        if missing := known.missing():
            print(f"Running {len(missing)} claims first ...", flush=True)
            known.start(missing)
            known.wait()
        tasks = dict(_tasks(known, Looking(network, shape)(), crew))
        with ticking("files", len(tasks), progress=True) as tick:
            for task in as_completed(tasks):
                _write(folder / tasks[task], task.result())
                tick(1)
        shutil.copytree(STATIC, folder / "static", dirs_exist_ok=True)
        shutil.copytree(FONT, folder / "maths", dirs_exist_ok=True)
    finally:
        crew.shutdown(cancel_futures=True)
        known.close()
    print(f"{len(tasks)} files; open {folder / _MARK}")


def _is_ours(folder: Path) -> bool:
    """Whether a folder may be written into: new, empty, or an earlier export."""
    if not folder.exists():
        return True
    if not folder.is_dir():
        return False
    if not any(folder.iterdir()):
        return True
    first = folder / _MARK
    return first.is_file() and "Vademecum" in first.read_text(encoding="utf-8", errors="replace")


def _write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def _tasks(
    verdicts: Verdicts, dossier: Dossier | None, crew: Workers
) -> Iterator[tuple[Future, str]]:
    """What is to be made, and the path of its file; what takes longest first."""
    claims = tuple(verdicts.claims)
    pages = Pages(verdicts, Links("", ".html"), None)
    for picture in pages.pictures:
        for knobs in positions(picture):
            path = pages.links.drawing(picture, knobs)
            yield crew.ask(draw_picture, (picture.id, knobs), key=picture.id), path
    for name in claims:
        report = verdicts.known(name).report
        if report is not None and has_curves(report):
            yield crew.submit(figure, report), f"figures/{name}.svg"
    for path, kind, *words in _pages(pages, dossier):
        known = {n: verdicts.known(n) for n in claims if kind in _OF_ALL or n in words}
        if kind == "room":
            known = {n: verdicts.known(n) for n in claims if n.startswith(f"{words[0]}.")}
        yield crew.submit(_page, claims, known, path.count("/"), kind, *words), path


def _pages(pages: Pages, dossier: Dossier | None) -> Iterator[tuple[Any, ...]]:
    """The path of each page, the method that makes it and what this is given."""
    for room in pages.rooms:
        yield f"rooms/{room}.html", "room", room
    for path, kind in (("index.html", "home"), ("search.js", "search")):
        yield path, kind
    for kind in ("errata", "course"):
        yield f"{kind}.html", kind
    for form in get_args(Form):
        yield f"sheet-{form}.html", "sheet", form
    yield "network.html", "network", dossier
    for name in pages.verdicts.claims:
        yield f"rooms/{name.replace('.', '/')}.html", "statement", name
    for picture in pages.pictures:
        yield f"pictures/{picture.room}/{picture.name}.html", "picture", picture.id
    for module in sorted(_referred(pages)):
        yield f"source/{module}.html", "source", module


def _page(claims: tuple[str, ...], known: dict[str, Known], depth: int, kind: str, *words: Any):
    pages = _site(claims, depth)
    pages.verdicts.learn(known)
    if kind == "search":
        return f"window.vademecumIndex = {json.dumps(pages.search())};\n"
    if kind == "statement":
        return pages.statement(pages.verdicts.claims[words[0]])
    if kind == "picture":
        return pages.picture(find_picture(words[0]), {})
    return getattr(pages, kind)(*words)


@cache
def _site(claims: tuple[str, ...], depth: int) -> Pages:
    chosen = [claim for claim in select() if claim.id in claims]
    return Pages(Verdicts(chosen), Links("../" * depth, ".html"), None)


def _referred(pages: Pages) -> set[str]:
    claims = pages.verdicts.claims.values()
    exported = [thing for room in pages.rooms for thing in room_exports(room).values()]
    places = [place_of(thing) for thing in (*[c.check for c in claims], *exported)]
    places += [part for claim in claims for part in parts_of(claim)]
    return {place.module for place in places if place is not None}
