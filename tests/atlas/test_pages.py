"""What the pages say, without a browser."""

import html
import inspect
import re
from html.parser import HTMLParser

import pytest

import vademecum
from vademecum.atlas.links import Links
from vademecum.atlas.pages import Pages, notebook_of
from vademecum.atlas.sources import our_modules, parts_of, place_of, source_text
from vademecum.atlas.verdicts import Verdicts
from vademecum.claims import Report, select
from vademecum.connectionism import perceptron_path


class Outline(HTMLParser):
    """The ids, links and images of a page, and whether its elements are closed in order."""

    def __init__(self, text: str):
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.images: list[dict] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = {name: value or "" for name, value in attrs}
        self.ids += [values["id"]] if "id" in values else []
        self.links += [values["href"]] if tag == "a" and "href" in values else []
        self.images += [values] if tag == "img" else []
        if tag not in ("meta", "link", "img", "input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def every_page(pages: Pages) -> dict[str, str]:
    rooms = {f"rooms/{room}": pages.room(room) for room in pages.rooms}
    return {"": pages.home(), "errata": pages.errata(), "network": pages.network(None)} | rooms


def test_every_page_is_whole_and_its_links_lead_somewhere():
    verdicts = Verdicts(select())
    try:
        pages = every_page(Pages(verdicts))
    finally:
        verdicts.close()
    assert set(pages) == {"", "errata", "network", *(f"rooms/{r}" for r in vademecum.ROOMS)}
    outlines = {path: Outline(text) for path, text in pages.items()}
    titles = [re.findall(r"<title>(.+?)</title>", text) for text in pages.values()]
    assert len({title for (title,) in titles}) == len(pages)
    for outline in outlines.values():
        assert not outline.open
        assert len(set(outline.ids)) == len(outline.ids)
        assert all(image["alt"] for image in outline.images)
        for link in outline.links:
            path, _, anchor = link.lstrip("/").partition("#")
            if path.startswith("source/"):
                module = path.removeprefix("source/")
                assert module in our_modules()
                assert 0 < int(anchor[1:]) <= len(source_text(module).splitlines())
            elif link.startswith("#"):
                assert anchor in outline.ids
            else:
                assert path in outlines
                assert not anchor or anchor in outlines[path].ids


@pytest.mark.parametrize("module", ["vademecum.linear.deep_linear", "vademecum.atlas.pages"])
def test_a_source_page_shows_the_source_as_it_is(verdicts, module):
    page = Pages(verdicts).source(module)
    code = re.search(r'<div class="source">(.*)</div>\s*</main>', page, re.DOTALL)
    assert code is not None
    plain = re.sub(r'<a href="#L\d+">.*?</a>', "", code[1])
    plain = html.unescape(re.sub(r"<[^>]+>", "", plain))
    assert plain.strip("\n") == source_text(module).strip("\n")
    assert 'id="L3"' in page


def test_a_room_page_tells_what_a_run_found(fakes):
    known = Verdicts(fakes.values())
    known._note([fakes["true"].run(), fakes["false"].run(), fakes["raises"].run()])
    try:
        page = Pages(known).room("fake_claims")
    finally:
        known.close()
    true, false, raises, hangs = (
        re.search(rf'<article id="{name}".*?</article>', page, re.DOTALL)[0]  # type: ignore[index]
        for name in ("true", "false", "raises", "hangs")
    )
    assert "✓ holds" in true
    assert "<td>minus the square</td>" in true  # nothing runs in it, so there is no figure
    assert 'src="/figures/' not in true
    assert "erratum A-001, hard" in true
    assert "the sign is wrong: minus the square at n = 10: " in true
    assert "knob-factor" in true
    assert "What the square is multiplied by." in true
    assert 'name="knob-factor" value="1.0"' in true
    assert "✗ refuted" in false
    assert "out of chalk" in raises
    assert "○ not run" in hangs
    assert "Not run yet." in hangs


def test_claims_lead_to_the_parts_they_test():
    (novikov,) = select("connectionism.novikov_bound")
    assert place_of(perceptron_path) in parts_of(novikov)
    tested = [claim.id for claim in select("connectionism.*") if parts_of(claim)]
    assert len(tested) > 30


def test_verdicts_of_several_seeds_count_as_the_worst(verdicts):
    name = "connectionism.novikov_bound"
    verdicts._note([Report(name, 0, error="x"), select(name)[0].run(1)])
    assert verdicts.verdict(name) == "broken"
    assert verdicts.tally()["broken"] == 1


def test_static_links_are_relative(verdicts):
    page = Pages(verdicts, Links("../", ".html")).room("connectionism")
    assert not re.search(r'(href|src|action)="/', page)
    assert "<form" not in page


@pytest.mark.parametrize("room", vademecum.ROOMS)
def test_every_room_has_a_notebook_with_an_introduction(room):
    notebook = notebook_of(room)
    assert notebook is not None
    assert len((inspect.getdoc(notebook) or "").split()) > 30
