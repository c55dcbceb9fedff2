"""The same pages as files: they open from a folder, without a server and without a network.

What needs an answer is left out (running checks) or was asked beforehand (live pictures, at a few
positions of each control); the verdicts are complete, since claims that never ran are run first.
Pictures are drawn in worker processes.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.progress import track

from vademecum.atlas.application import STATIC
from vademecum.atlas.links import Links
from vademecum.atlas.network import Dossier
from vademecum.atlas.pages import Pages
from vademecum.atlas.server import looking
from vademecum.atlas.sources import parts_of, place_of, room_exports
from vademecum.atlas.verdicts import Verdicts
from vademecum.canvas import styled, svg
from vademecum.claims import Report, Workers, select
from vademecum.errors import UsageError
from vademecum.figures import draw, has_curves
from vademecum.files import write_atomically

__all__ = ["export_site"]

_MARK = "index.html"
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
    known = verdicts or Verdicts(select())
    crew = Workers(_JOBS)
    try:
        if missing := known.missing():
            print(f"Running {len(missing)} claims first ...", flush=True)
            known.start(missing)
            known.wait()
        dossier = looking(network, shape)()
        files = list(_files(known, dossier, crew))
        for path, make in track(files, "Writing pages"):
            content = make()
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                target.write_bytes(content)
            else:
                write_atomically(target, content)
        shutil.copytree(STATIC, folder / "static", dirs_exist_ok=True)
    finally:
        crew.shutdown(cancel_futures=True)
        known.close()
    print(f"{len(files)} files; open {folder / _MARK}")


def _is_ours(folder: Path) -> bool:
    """Whether a folder may be written into: new, empty, or an earlier export."""
    if not folder.exists():
        return True
    if not folder.is_dir():
        return False
    if not any(folder.iterdir()):
        return True
    first = folder / _MARK
    return first.is_file() and "Vademecum" in first.read_text(encoding="utf-8")


def _files(known: Verdicts, dossier: Dossier | None, crew: Workers) -> Iterator[tuple[str, Any]]:
    """The path of each file, and the function that makes it or waits for it."""
    top, below = (Pages(known, Links(root, ".html")) for root in ("", "../"))
    for claim in known.claims.values():
        reports = known.of(claim.id)
        if reports and has_curves(reports[0]):
            yield f"figures/{claim.id}.svg", crew.submit(_figure, reports[0]).result
    yield "index.html", top.home
    yield "errata.html", top.errata
    yield "network.html", lambda: top.network(dossier)
    for room in top.rooms:
        yield f"rooms/{room}.html", lambda room=room: below.room(room)
    for module in sorted(_referred(top)):
        yield f"source/{module}.html", lambda module=module: below.source(module)


def _referred(pages: Pages) -> set[str]:
    claims = [claim for room in pages.rooms for claim in pages.claims(room)]
    exported = [thing for room in pages.rooms for thing in room_exports(room).values()]
    places = [place_of(thing) for thing in (*[c.check for c in claims], *exported)]
    places += [part for claim in claims for part in parts_of(claim)]
    return {place.module for place in places if place is not None}


def _figure(report: Report) -> bytes:
    return svg(styled(lambda: draw(report)))
