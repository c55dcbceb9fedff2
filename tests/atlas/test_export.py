"""The pages as files: whole, with links that lead to files."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from vademecum.atlas import export
from vademecum.atlas.drawings import positions
from vademecum.atlas.export import export_site
from vademecum.atlas.verdicts import Verdicts
from vademecum.claims import select
from vademecum.cli import main


class References(HTMLParser):
    """The addresses in a page, and the ids that it has."""

    def __init__(self, text: str):
        super().__init__()
        self.addresses: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.addresses += [values[name] or "" for name in ("href", "src") if name in values]
        self.ids |= {values["id"] or ""} if "id" in values else set()
        self.addresses += [address for _, address in json.loads(values.get("data-files") or "[]")]


def broken(folder: Path) -> list[tuple[str, str]]:
    """Each address that leads nowhere, and the page that has it."""
    pages = {path: References(path.read_text()) for path in folder.rglob("*.html")}
    wrong = []
    for path, page in pages.items():
        for address in page.addresses:
            place, _, anchor = address.partition("#")
            target = (path.parent / unquote(place)).resolve() if place else path
            if place.startswith("data:"):
                continue
            if not target.is_file() or (anchor and target in pages and
                                        unquote(anchor) not in pages[target].ids):  # fmt: skip
                wrong.append((path.name, address))
    return wrong


@pytest.mark.slow
@pytest.mark.timeout(2000)
@pytest.mark.xdist_group("browser")
def test_every_link_of_an_export_leads_to_a_file(site):
    folder = site.folder
    assert f"open {folder / 'index.html'}" in site.said
    assert broken(folder) == []
    for claim in select():
        page = (folder / "rooms" / f"{claim.id.replace('.', '/')}.html").read_text()
        assert "holds" in page
        assert "<button>" not in page  # nobody would answer
    for path in folder.rglob("*.html"):
        assert not re.search(r'(href|src)="/', path.read_text()), path
    index = (folder / "search.js").read_text()
    found = json.loads(index.removeprefix("window.vademecumIndex = ").removesuffix(";\n"))
    assert {entry["kind"] for entry in found} >= {"statement", "export", "room"}
    for entry in found:
        assert (folder / entry["to"].partition("#")[0]).is_file(), entry


@pytest.mark.slow
def test_an_export_replaces_an_earlier_one(tmp_path, monkeypatch, capsys):
    """Of a few claims, to which alone its pages link; pictures are drawn at one position each."""
    monkeypatch.setattr(export, "positions", lambda picture: positions(picture)[:1])
    stale = tmp_path / "rooms" / "connectionism" / "novikov_bound.html"
    stale.parent.mkdir(parents=True)
    for path in (tmp_path / "index.html", stale):
        path.write_text("Vademecum, as it was")
    known = Verdicts(select("connectionism.novikov*"), jobs=2)
    export_site(tmp_path, verdicts=known)
    assert f"open {tmp_path / 'index.html'}" in capsys.readouterr().out
    assert "as it was" not in (tmp_path / "index.html").read_text()
    assert "holds" in stale.read_text()
    assert [a for _, a in broken(tmp_path) if not re.search(r"pictures/\w+/\w+/.*\.svg$", a)] == []


def test_export_spares_other_folders(capsys, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    assert main(["atlas", "--export", str(tmp_path)]) == 2
    assert "must be a new folder or an earlier export" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir() if path.name != "state"] == ["thesis.tex"]
