"""What the pages say, without a browser."""

import html
import json
import re
from html.parser import HTMLParser

import pytest

import vademecum
from vademecum.atlas.controls import controls, knobs_from
from vademecum.atlas.links import Links
from vademecum.atlas.pages import Pages
from vademecum.atlas.search import words
from vademecum.atlas.sources import our_modules, parts_of, place_of, source_text
from vademecum.atlas.statements import compared, grouped
from vademecum.atlas.verdicts import Verdicts
from vademecum.claims import Report, at_most, equals, select
from vademecum.claims.chapters import prerequisites, sheets
from vademecum.claims.memory import Known
from vademecum.connectionism import perceptron_path
from vademecum.pictures import find_picture, pictures

REGIONS = find_picture("approximation.regions_while_training")


class Blank:
    """Drawings that take no time."""

    def svg(self, picture, knobs):
        return b"<svg/>"


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
        assert not any(name == "style" or name.startswith("on") for name in values)  # the policy
        assert tag != "script" or values["src"].startswith("/static/")
        self.ids += [values["id"]] if "id" in values else []
        self.links += [values["href"]] if tag == "a" and "href" in values else []
        self.images += [values] if tag == "img" else []
        if tag not in ("meta", "link", "img", "input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture
def pages(verdicts):
    return Pages(verdicts, Links(), Blank())


@pytest.fixture(scope="module")
def everything():
    verdicts = Verdicts(select())
    yield Pages(verdicts, Links(), Blank())
    verdicts.close()


def every_page(pages: Pages) -> dict[str, str]:
    made = {"": pages.home(), "errata": pages.errata(), "course": pages.course()}
    made |= {"network": pages.network(None), "nowhere": pages.missing("Not here.")}
    made |= {f"rooms/{room}": pages.room(room) for room in pages.rooms}
    for claim in select("connectionism.*"):
        made[f"rooms/connectionism/{claim.id.partition('.')[2]}"] = pages.statement(claim)
    for picture in pages.pictures:
        made[f"pictures/{picture.room}/{picture.name}"] = pages.picture(picture, {})
    return made


def test_every_page_is_whole_and_its_links_lead_somewhere(everything):
    made = every_page(everything)
    assert {f"rooms/{r}" for r in vademecum.ROOMS} < set(made)
    outlines = {path: Outline(text) for path, text in made.items()}
    titles = [re.findall(r"<title>(.+?)</title>", text) for text in made.values()]
    assert len({title for (title,) in titles}) == len(made)
    statements = {f"rooms/{name.replace('.', '/')}" for name in everything.verdicts.claims}
    for outline in outlines.values():
        assert not outline.open
        assert len(set(outline.ids)) == len(outline.ids)
        assert all("alt" in image for image in outline.images)
        for link in outline.links:
            path, _, anchor = link.lstrip("/").partition("#")
            if path.startswith("source/"):
                module = path.removeprefix("source/")
                assert module in our_modules()
                assert 0 < int(anchor[1:]) <= len(source_text(module).splitlines())
            elif link.startswith("#"):
                assert anchor in outline.ids
            elif not path.endswith((".svg", ".pdf", ".html")):  # which are made when somebody asks
                assert path in outlines or path in statements
                assert not anchor or anchor in outlines[path].ids


@pytest.mark.parametrize("module", ["vademecum.linear.deep_linear", "vademecum.atlas.pages"])
def test_a_source_page_shows_the_source_as_it_is(pages, module):
    page = pages.source(module)
    code = re.search(r'<div class="source">(.*)</div>\s*</main>', page, re.DOTALL)
    assert code is not None
    plain = re.sub(r'<a href="#L\d+">.*?</a>', "", code[1])
    plain = html.unescape(re.sub(r"<[^>]+>", "", plain))
    assert plain.strip("\n") == source_text(module).strip("\n")
    assert 'id="L3"' in page


def test_a_room_page_tells_what_a_run_found(fakes):
    known = Verdicts(fakes.values())
    ran = [fakes[name] for name in ("true", "false", "raises")]
    known.learn({claim.id: Known().with_reports([claim.run()]) for claim in ran})
    try:
        page = Pages(known, Links(), Blank()).room("fake_claims")
    finally:
        known.close()
    parts = re.split(r'<details class="statement" id="(\w+)">', page)
    true, false, raises, hangs = (
        parts[parts.index(name) + 1] for name in ("true", "false", "raises", "hangs")
    )
    assert "holds for seed 0" in true
    assert "<td>minus the square <small>at n = 10</small></td>" in true
    assert 'src="/figures/' not in true  # nothing runs in it, so there is no figure
    assert "printed on sheet A-001, hard erratum" in true
    assert true.count("Break it</button>") == 2
    assert 'name="knob-factor"' in true
    assert "What the square is multiplied by." in true
    assert 'class="failed"' in false
    assert "out of chalk" in raises
    assert "not run · by" in hangs


def test_the_evidence_shown_has_the_verdict_shown(fakes):
    good, bad = Report("a.b", 0, (equals("x", 1, 1),)), Report("a.b", 3, (equals("x", 2, 1),))
    known = Known().with_reports([good, bad])
    assert known.verdict == "refuted"
    assert known.report is bad
    assert known.in_words() == "holds for seed 0; refuted for seed 3"
    assert Known().report is None


def test_evidence_is_grouped_by_name_and_what_refutes_comes_first():
    pieces = [equals("a", n, n, n=n) for n in range(300)]
    pieces += [equals("b", 1.0, 1.0), equals("b", 2.0, 1.0, n=4), equals("b", 1.5, 1.0)]
    b, a = grouped(pieces)
    assert (a.name, a.pieces, a.cases) == ("a", 300, 300)
    assert (b.tightest.at, b.pieces) == ({"n": 4}, 3)


def test_a_broken_claim_stands_beside_the_right_one(pages):
    (claim,) = select("connectionism.novikov_bound")
    right, wrong = claim.beside_foil(0)
    assert compared(right, right) == []
    ((ours, theirs), *_) = compared(right, wrong)
    assert ours is not None
    assert ours.tightest.holds
    assert theirs.tightest.refutes
    page = pages.broken(claim, 0, right, wrong)
    assert "where the formula demands" in page
    left, *_ = re.findall(r'<td>(.*?)</td>\s*<td class="failed">', page)
    assert "≤" in left  # and not its negation, which is another sign
    assert "It survived" in pages.broken(claim, 0, right, right)
    assert 'href="/pictures/connectionism/perceptron_learns"' in pages.statement(claim)


def test_a_statement_shows_the_tightest_first_and_is_broken_for_the_seed_shown(fakes):
    known, (claim, other) = Verdicts(fakes.values()), list(fakes.values())[:2]
    report = Report(claim.id, 7, (at_most("x", [1, 2, 3], 9, n=4), at_most("x", [1, 6], 7, n=5)))
    known.learn({other.id: Known("2025-02-03T04:05:06Z")})
    known.learn({claim.id: Known("2026-02-03T04:05:06Z", {7: report.verdict}, (report,))})
    pages = Pages(known, Links(), Blank())
    page, home = pages.statement(claim), pages.home()
    known.close()
    assert re.findall(r"<td>(n = \d)</td>", page) == ["n = 5", "n = 4"]
    assert "<td>5</td></tr>" in page  # cases of both
    assert 'name="seed" value="7"' in page
    assert "2026-02-03, 04:05:06 UTC" in home


def test_a_room_leads_to_its_neighbours(everything):
    for i, room in enumerate(everything.rooms):
        found = re.findall(r'<a rel="(prev|next)" href="/rooms/(\w+)"', everything.room(room))
        near = {"prev": everything.rooms[i - 1 : i], "next": everything.rooms[i + 1 : i + 2]}
        assert found == [(way, other) for way, others in near.items() for other in others]


def test_a_figure_in_an_answer_is_an_image(pages):
    (claim,) = select("connectionism.novikov_bound")
    page = pages.outcome(claim, claim.run(), b"<svg style='a'/>")
    assert 'src="data:image/svg+xml;base64,' in page
    assert "style=" not in page  # the policy would refuse it


def test_one_code_makes_the_controls_of_claims_and_of_pictures():
    data, _, width, step = controls(REGIONS, {"step": 0})
    assert (data.kind, data.value) == ("select", "spirals")
    assert (width.kind, width.place, width.default) == ("range", 8, "10")
    assert (step.kind, step.value, step.place) == ("range", "0", 0)
    assert step.default == str(REGIONS.knobs["step"].default)
    assert controls(REGIONS, {"step": 12})[-1].place == 3  # between two positions
    assert data.about == "The points to be told apart."
    (claim,) = select("connectionism.novikov_bound")
    power, start, *_ = controls(claim)
    assert (power.kind, power.value) == ("number", "2.0")
    assert knobs_from(claim, {"power": "1.0", start.name: start.value}) == {"power": 1.0}


@pytest.mark.parametrize("picture", pictures(), ids=lambda p: p.id)
def test_every_knob_has_a_control_that_stands_where_the_knob_does(picture):
    for control in controls(picture):
        default = picture.knobs[control.name].default
        if control.kind == "checkbox":
            assert control.value == ("True" if default else "")
        else:
            assert control.options[control.place][0] == control.default == str(default)


def test_a_picture_page_holds_its_state(pages):
    page = Pages(pages.verdicts, Links(), Blank()).picture(REGIONS, {"depth": 3})
    assert 'href="/pictures/approximation/regions_while_training.svg?depth=3"' in page
    assert "regions_while_training(depth=3)" in page
    assert 'alt="The linear regions of a network while it learns: data spirals, depth 3' in page


def test_a_picture_in_files_knows_what_was_drawn(pages):
    made = Pages(pages.verdicts, Links("../../", ".html"), None).picture(REGIONS, {})
    (listed,) = re.findall(r'data-files="(.+?)"', made)
    files = {address: knobs for knobs, address in json.loads(html.unescape(listed))}
    below = "../../pictures/approximation/regions_while_training"
    assert files[f"{below}/first.svg"] == REGIONS.at({})
    assert files[f"{below}/step-0.svg"] == REGIONS.at({"step": 0})


def test_prerequisites_stand_above():
    for i, room in enumerate(vademecum.ROOMS):
        assert set(prerequisites(room)) <= set(vademecum.ROOMS[:i])


def test_the_path_by_sheet_has_every_number_in_order(everything):
    named = {number for claim in select() for number in claim.sources}
    by_sheet = sheets(select())
    assert sum(len(claims) > 0 for entries in by_sheet.values() for _, claims in entries)
    page = everything.course()
    firsts = re.findall(r'<dt id="([A-E]-\d+)">', page)
    assert firsts == sorted(firsts)
    assert set(firsts) <= named


def test_search_knows_everything(everything):
    index = everything.search()
    kinds = {entry["kind"] for entry in index}
    assert kinds == {"room", "picture", "statement", "erratum", "export"}
    assert sum(entry["kind"] == "statement" for entry in index) == len(select())
    by_claim = {entry["more"]: entry["words"].split() for entry in index}
    for claim in select():
        assert {number.lower() for number in claim.sources} <= set(by_claim[claim.id])
    assert not any(entry["to"].startswith("/") for entry in index)
    assert words(r"$\Theta$, Θ and ϑ") == "theta and symbol"


def test_claims_lead_to_the_parts_they_test():
    (novikov,) = select("connectionism.novikov_bound")
    assert place_of(perceptron_path) in parts_of(novikov)
    tested = [claim.id for claim in select("connectionism.*") if parts_of(claim)]
    assert len(tested) > 30


def test_static_pages_are_relative_and_ask_nobody(verdicts):
    pages = Pages(verdicts, Links("../", ".html"), None)
    page = pages.room("connectionism")
    assert not re.search(r'(href|src|action)="/', page)
    assert "<button>Break it</button>" not in page
    assert 'data-index="../search.js"' in page
    assert all(entry["to"].split("#")[0].endswith(".html") for entry in pages.search())
