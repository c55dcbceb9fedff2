"""The pages, as HTML: made from the claims, the same for the server and for files."""

import importlib
import inspect
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

import vademecum
from vademecum.atlas.controls import controls
from vademecum.atlas.links import Links
from vademecum.atlas.network import Dossier
from vademecum.atlas.sources import parts_of, place_of, room_exports, source_text
from vademecum.atlas.verdicts import Verdicts
from vademecum.claims import Claim, Report
from vademecum.claims.evidence import short
from vademecum.figures import has_curves
from vademecum.typeset import in_words, typeset

__all__ = ["Pages"]

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
    """

    def __init__(self, verdicts: Verdicts, links: Links | None = None):
        self.verdicts = verdicts
        self.links = links or Links()
        rooms = {claim.room for claim in verdicts.claims.values()}
        self.rooms = [room for room in (*vademecum.ROOMS, *sorted(rooms)) if room in rooms]
        self.rooms = list(dict.fromkeys(self.rooms))

    def home(self) -> str:
        """The rooms, the search, the verdicts."""
        rooms = [self._card(room) for room in self.rooms]
        return self._render(
            "home.html", rooms=rooms, tally=self.verdicts.tally(), found=_index(self)
        )

    def room(self, room: str, stills: Sequence[Any] = ()) -> str:
        """A room: its introduction, its live pictures (or these still ones), its statements."""
        about = typeset((inspect.getdoc(_module(room)) or "").partition("\n")[2])
        statements = [self._statement(claim) for claim in self.claims(room)]
        return self._render(
            "room.html",
            room=room,
            about=about,
            live=False,
            stills=stills,
            statements=statements,
            tally=self.verdicts.tally(room),
            exports=[(name, place_of(thing)) for name, thing in _exports(room).items()],
        )

    def errata(self) -> str:
        """What the sheets print wrongly."""
        rows = []
        for room in self.rooms:
            for claim in self.claims(room):
                reports = self.verdicts.of(claim.id)
                for foil, found in claim.refutations(
                    reports[0] if reports else Report(claim.id, 0)
                ):
                    if foil.printed:
                        rows.append({"claim": claim, "foil": foil, "found": found, "room": room})
        rows.sort(key=lambda row: row["foil"].where)
        return self._render("errata.html", rows=rows, rooms=self.rooms)

    def network(self, dossier: Dossier | None) -> str:
        """A user's network, or how to name one."""
        return self._render("network.html", dossier=dossier)

    def source(self, module: str) -> str:
        """The source of one of our modules, with a target for every line."""
        style = HtmlFormatter(linenos="inline", linespans="L", anchorlinenos=True)
        code = highlight(source_text(module), PythonLexer(), style)
        code = _ANCHOR.sub(r'"\1L', _PLAIN.sub(r"\1", code))
        room = module.split(".")[1] if module.count(".") else ""
        room = room if room in self.rooms else ""
        return self._render("source.html", module=module, room=room, code=Markup(code))

    def missing(self, what: str) -> str:
        """What one sees who asks for a page that does not exist."""
        return self._render("missing.html", what=what)

    def outcome(self, claim: Claim, report: Report, figure: str) -> str:
        """What a run that was started in the browser found, as a fragment of a page."""
        return self._render("outcome.html", claim=claim, report=report, figure=Markup(figure))

    def claims(self, room: str) -> list[Claim]:
        """The claims of a room in the order of its sources: as a reader would meet them."""
        own = [claim for claim in self.verdicts.claims.values() if claim.room == room]
        lines = {claim.id: claim.check.__code__.co_firstlineno for claim in own}
        modules = list(dict.fromkeys(_modules(room)))
        return sorted(own, key=lambda c: (_rank(modules, c.check.__module__), lines[c.id]))

    def _card(self, room: str) -> dict[str, Any]:
        claims = self.claims(room)
        return {
            "name": room,
            "about": (inspect.getdoc(_module(room)) or "").partition("\n")[0],
            "claims": len(claims),
            "holds": self.verdicts.tally(room)["holds"],
            "errata": sum(len(claim.errata) for claim in claims),
            "exports": len(_exports(room)),
        }

    def _statement(self, claim: Claim) -> dict[str, Any]:
        reports = self.verdicts.of(claim.id)
        title, _, body = claim.statement.partition("\n")
        report = reports[0] if reports else Report(claim.id, 0)
        return {
            "claim": claim,
            "name": claim.id.partition(".")[2],
            "title": title,
            "body": body.strip("\n"),
            "verdict": self.verdicts.verdict(claim.id),
            "reports": reports,
            "figure": f"figures/{claim.id}.svg",
            "alt": _alternative(report),
            "curves": has_curves(report),
            "refutations": list(claim.refutations(report)),
            "place": place_of(claim.check),
            "parts": parts_of(claim),
            "controls": controls(claim),
        }

    def _render(self, template: str, **values: Any) -> str:
        return (
            _environment()
            .get_template(template)
            .render(link=self.links, version=vademecum.__version__, **values)
        )


def _alternative(report: Report) -> str:
    """What a figure of evidence shows, in words."""
    pieces = f"{len(report.evidence)} comparisons of something measured with its bound"
    tightest = f"; the tightest: {report.tightest}" if report.tightest else ""
    return f"{pieces}, and {len(report.counterexamples)} foils{tightest}"


def _index(pages: Pages) -> list[dict[str, str]]:
    """Everything that can be searched for."""
    found = []
    for room in pages.rooms:
        page = pages.links.page(f"rooms/{room}")
        for claim in pages.claims(room):
            name = claim.id.partition(".")[2]
            found.append(
                {"kind": "statement", "title": claim.title, "more": claim.id,
                 "text": f"{claim.id} {claim.statement}", "to": f"{page}#{name}"}
            )  # fmt: skip
            for foil in claim.errata:
                found.append(
                    {"kind": "erratum", "title": foil.printed, "more": f"{foil.where}, {claim.id}",
                     "text": f"{foil.where} {foil.printed} {foil.right} {foil.why}",
                     "to": f"{page}#{name}"}
                )  # fmt: skip
        for name, thing in _exports(room).items():
            about = (inspect.getdoc(thing) or "").partition("\n")[0]
            place = place_of(thing)
            to = f"{pages.links.page(f'source/{place.module}')}#L{place.line}" if place else page
            found.append(
                {"kind": "export", "title": f"`{name}`: {about}" if about else f"`{name}`",
                 "more": f"vademecum.{room}.{name}", "text": f"{room} {name} {about}", "to": to}
            )  # fmt: skip
    return found


def _exports(room: str) -> dict[str, Any]:
    return room_exports(room) if room in vademecum.ROOMS else {}


def _module(room: str) -> Any:
    return importlib.import_module(f"vademecum.{room}") if room in vademecum.ROOMS else None


def _modules(room: str) -> list[str]:
    """The claim modules of a room in the order in which its package lists them."""
    if room not in vademecum.ROOMS:
        return []
    package = importlib.import_module(f"vademecum.{room}.claims")
    return [f"{package.__name__}.{name}" for name in getattr(package, "__all__", [])]


def _rank(modules: list[str], module: str) -> int:
    return modules.index(module) if module in modules else len(modules)


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
        "line": lambda text: typeset(" ".join(text.split()), line=True),
        "words": in_words,
        "short": short,
        "plain": lambda text: re.sub(r"[$`\\{}]", "", " ".join(text.split())).lower(),
        "mark": lambda verdict: MARKS.get(verdict, "✗"),
        "count": _count,
        "slug": lambda verdict: verdict.replace(" ", "-"),
    }
    return made
