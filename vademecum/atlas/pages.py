"""The pages, as HTML: made from the claims and pictures, the same for the server and for files."""

import base64
import importlib
import inspect
import json
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

import vademecum
from vademecum.atlas.controls import controls
from vademecum.atlas.drawings import positions
from vademecum.atlas.links import Links
from vademecum.atlas.network import Dossier
from vademecum.atlas.search import entries
from vademecum.atlas.sources import parts_of, place_of, room_exports, source_text
from vademecum.atlas.statements import GRADES, Statement, compared, grouped
from vademecum.atlas.training_run import RunView
from vademecum.atlas.verdicts import Verdicts
from vademecum.claims import Checked, Claim, Report, environment
from vademecum.claims.chapters import Chapter, chapters, prerequisites, sheets
from vademecum.claims.evidence import short
from vademecum.pictures import Picture, pictures
from vademecum.sheet import Form, sheet
from vademecum.typeset import in_words, typeset

__all__ = ["Pages"]

FLAGSHIP, EXAMPLE = "approximation.regions_while_training", "connectionism.novikov_bound"
"""The picture and the statement that the home page shows."""
MARKS = {"holds": "✓", "not run": "○"}
"""Verdicts are told apart by sign and word; every other one is a cross."""
_ANCHOR = re.compile(r'"(#?)L-(?=\d+")')  # quotes within a source are escaped
_PLAIN = re.compile(r'<span class="(?!(?:linenos|k|kn|ow|s1|s2|sd|sa|c1)")\w+">([^<]*)</span>')
"""What the style sheet does not colour; half of a page otherwise."""


class Pages:
    """All pages of a site.

    Args:
        verdicts: The claims and what is known about them.
        links: How pages refer to each other.
        drawings: Has `svg(picture, knobs)`, for a drawing that stands in a page when it arrives;
            None if pages are files.
        follows_run: Whether there is a page on a training run.
    """

    def __init__(
        self, verdicts: Verdicts, links: Links, drawings: Any, *, follows_run: bool = False
    ):
        self.verdicts, self.links, self.drawings = verdicts, links, drawings
        self.follows_run = follows_run
        known = {claim.room for claim in verdicts.claims.values()}
        self.rooms = [room for room in vademecum.ROOMS if room in known]
        self.rooms += sorted(known - {*self.rooms})
        self.pictures = [picture for picture in pictures() if picture.room in self.rooms]

    def home(self) -> str:
        """A picture, how to read a claim, the rooms, the verdicts."""
        shown = [p for p in self.pictures if p.id == FLAGSHIP] or self.pictures
        claims = self.verdicts.claims
        example = claims.get(EXAMPLE) or next(iter(claims.values()))
        return self._render(
            "home.html",
            flagship=self._picture(shown[0], embedded=True) if shown else None,
            example=self._statement(example),
            rooms=[self._card(room) for room in self.rooms],
            tally=self.verdicts.tally(),
            checked=max((self.verdicts.known(claim).checked for claim in claims), default=""),
        )

    def room(self, room: str) -> str:
        """A room: its introduction, its chapters with their pictures and statements."""
        own = [p for p in self.pictures if p.room == room]
        found = self.chapters(room)
        place = {claim.id: chapter.name for chapter in found for claim in chapter.claims}
        beside: dict[str, list[Any]] = {}
        for picture in own[1:]:
            chapter = next((place[c] for c in picture.claims if c in place), found[-1].name)
            beside.setdefault(chapter, []).append(self._picture(picture))
        at = self.rooms.index(room)
        return self._render(
            "room.html",
            room=room,
            about=inspect.getdoc(_module(room)) or "",
            needs=[other for other in prerequisites(room) if other in self.rooms],
            first=self._picture(own[0], embedded=True) if own else None,
            beside=beside,
            pictures=own,
            chapters=found,
            statements={claim.id: self._statement(claim) for c in found for claim in c.claims},
            tally=self.verdicts.tally(room),
            exports=[(name, place_of(thing)) for name, thing in room_exports(room).items()],
            before=self.rooms[at - 1] if at else "",
            after=self.rooms[at + 1] if at + 1 < len(self.rooms) else "",
        )

    def statement(self, claim: Claim) -> str:
        """A statement alone, with all of its evidence and the code of its check."""
        found = self.chapters(claim.room)
        (chapter,) = [c for c in found if claim in c.claims]
        order = [c for chapter in found for c in chapter.claims]
        at = order.index(claim)
        return self._render(
            "statement.html",
            s=self._statement(claim),
            chapter=chapter,
            pictures=[p for p in self.pictures if claim.id in p.claims],
            code=_highlighted(inspect.getsource(inspect.unwrap(claim.check))),
            before=order[at - 1] if at else None,
            after=order[at + 1] if at + 1 < len(order) else None,
        )

    def picture(self, picture: Picture, knobs: Mapping[str, Any]) -> str:
        """A picture alone."""
        shown = self._picture(picture, knobs, embedded=True)
        beside = [self.verdicts.claims[c] for c in picture.claims if c in self.verdicts.claims]
        return self._render("picture.html", shown=shown, picture=picture, claims=beside)

    def errata(self) -> str:
        """What the sheets print wrongly."""
        found = [
            (s, foil, counterexample)
            for s in map(self._statement, self._in_order())
            for _, foil, counterexample in s.foils
            if foil.printed
        ]
        found.sort(key=lambda entry: entry[1].where)
        letters = sorted({foil.where[0] for _, foil, _ in found})
        return self._render("errata.html", errata=found, rooms=self.rooms, sheets=letters)

    def course(self) -> str:
        """The paths through the course, by room and by sheet."""
        by_room = [(room, _about(room), self.chapters(room)) for room in self.rooms]
        return self._render("course.html", rooms=by_room, sheets=sheets(self._in_order()))

    def sheet(self, form: Form) -> str:
        """The formula sheet for print, with what is known of the claims."""
        found = [known for known in map(self.verdicts.known, self.verdicts.claims) if known.report]
        reports = tuple(known.report for known in found if known.report)
        started = max((known.checked for known in found), default="")
        checked = Checked(started, environment(), reports) if found else None
        return sheet(self.verdicts.claims.values(), form=form, reports=checked)

    def network(self, dossier: Dossier | None) -> str:
        """A user's network, or how to name one."""
        return self._render("network.html", dossier=dossier)

    def run(self, view: RunView) -> str:
        """A training run, as far as it has got."""
        return self._render("run.html", view=view, curves=view.curves and _embedded(view.curves))

    def source(self, module: str) -> str:
        """The source of one of our modules, with a target for every line."""
        room = module.split(".")[1] if module.count(".") else ""
        room = room if room in self.rooms else ""
        code = _highlighted(source_text(module), lines=True)
        return self._render("source.html", module=module, room=room, code=code)

    def search(self) -> list[dict[str, str]]:
        """All that can be found, for the search on every page."""
        links = self.links._replace(root="")
        return list(entries(self.rooms, self._in_order(), self.pictures, links))

    def missing(self, what: str) -> str:
        """What one sees who asks for a page that does not exist."""
        return self._render("missing.html", what=what)

    def outcome(self, claim: Claim, report: Report, figure: bytes = b"") -> str:
        """What a run that was started in the browser found, as a fragment of a page."""
        shown = {"rows": grouped(report.evidence), "figure": figure and _embedded(figure)}
        return self._render("outcome.html", claim=claim, report=report, **shown)

    def broken(self, claim: Claim, index: int, report: Report, wrong: Report) -> str:
        """The claim and one of its foils side by side, as a fragment of a page."""
        foil = claim.foils[index]
        rows, refuting = compared(report, wrong), foil.counterexample(iter(wrong.evidence))
        return self._render(
            "broken.html", foil=foil, report=report, wrong=wrong, rows=rows, refuting=refuting
        )

    def chapters(self, room: str) -> list[Chapter]:
        """The chapters of a room with the claims in question."""
        return chapters(room, self.verdicts.claims.values())

    def _in_order(self) -> list[Claim]:
        return [c for room in self.rooms for chapter in self.chapters(room) for c in chapter.claims]

    def _card(self, room: str) -> dict[str, Any]:
        claims = [claim for claim in self.verdicts.claims.values() if claim.room == room]
        own = [p for p in self.pictures if p.room == room]
        return {
            "name": room,
            "about": _about(room),
            "claims": len(claims),
            "holds": self.verdicts.tally(room)["holds"],
            "errata": sum(len(claim.errata) for claim in claims),
            "thumbnail": self.links.drawing(own[0]) if own else "",
        }

    def _statement(self, claim: Claim) -> Statement:
        return Statement(claim, self.verdicts.known(claim.id))

    def _picture(
        self, picture: Picture, knobs: Mapping[str, Any] | None = None, *, embedded: bool = False
    ) -> dict[str, Any]:
        at = picture.at(knobs or {})
        address = self.links.drawing(picture, at)
        source = address
        if embedded and not self.links.static:
            source = _embedded(self.drawings.svg(picture, at))
        files = []
        if self.links.static:
            files = [(k, self.links.drawing(picture, k)) for k in positions(picture)]
        return {
            "picture": picture,
            "controls": controls(picture, at),
            "source": source,
            "address": address,
            "words": picture.in_words(**at),
            "python": picture.as_python(**at),
            "files": json.dumps(files, default=str) if files else "",
        }

    def _render(self, template: str, **values: Any) -> str:
        page = _environment().get_template(template)
        known = {"link": self.links, "version": vademecum.__version__, "follows": self.follows_run}
        return page.render(**known, **values)


def _embedded(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


def _module(room: str) -> Any:
    return importlib.import_module(f"vademecum.{room}") if room in vademecum.ROOMS else None


def _about(room: str) -> str:
    return (inspect.getdoc(_module(room)) or "").partition("\n")[0]


@lru_cache(500)
def _highlighted(code: str, *, lines: bool = False) -> Markup:
    style = HtmlFormatter(linenos="inline" if lines else False, linespans="L" if lines else "",
                          anchorlinenos=lines)  # fmt: skip
    made = highlight(code, PythonLexer(), style)
    return Markup(_ANCHOR.sub(r'"\1L', _PLAIN.sub(r"\1", made)))


def _count(number: int, verdict: str) -> str:
    """So many claims with a verdict, as in "39 hold"."""
    return f"{number} {'hold' if verdict == 'holds' and number != 1 else verdict}"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("vademecum.atlas"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "typeset": typeset,
        "title": lambda claim: typeset(claim.title.rstrip("."), line=True),
        "line": lambda text: typeset(" ".join(text.split()), line=True),
        "short": short,
        "words": in_words,
        "mark": lambda verdict: MARKS.get(verdict, "✗"),
        "count": _count,
        "slug": lambda verdict: verdict.replace(" ", "-"),
    }
    made.globals |= {
        "grades": GRADES, "controls": controls, "place_of": place_of, "parts_of": parts_of,
    }  # fmt: skip
    return made
