"""One statement as HTML: a title and a line of maths, or all that is said of it."""

from collections.abc import Callable
from functools import cache, partial
from html import escape
from typing import NamedTuple

from vademecum.claims import Claim, Foil
from vademecum.errors import UsageError
from vademecum.sheet._marks import letters, mark
from vademecum.sheet._order import Place
from vademecum.typeset import fitted, typeset

__all__ = ["Measures", "brief", "heading", "whole"]

_BORDER = 0.8  # em, of what stands beside an erratum
_INDENT = 0.9  # em, of a line of the brief form
_STOP = 1.0  # em, for a bracket and a full stop that stay with a formula


class Measures(NamedTuple):
    """What a column can hold: its width in em of the text, and the least size of a formula."""

    room: float
    least: float


def heading(level: int, text: str) -> str:
    """A heading in the flow."""
    return f"<h{level}>{typeset(text, line=True)}</h{level}>"


def brief(place: Place, verdict: str | None, measures: Measures) -> str:
    """The title and the line of maths; nothing for a claim without such a line."""
    claim = place.claim
    if not claim.short:
        return ""
    if place.again:
        return f'<p class="entry">{_numbers(place)}{_title(claim, measures)}, see {place.again}</p>'
    narrow = measures._replace(room=measures.room - _INDENT)
    maths = _read(claim, lambda: "".join(_formula(narrow)(claim.short, False)))
    head = f"{_mark(claim, verdict)} {_numbers(place)}<b>{_title(claim, measures)}</b>"
    head += _letters(claim) + _failure(verdict)
    return f'<p class="entry">{head} <span class="maths">{maths}</span></p>'


def whole(place: Place, verdict: str | None, measures: Measures) -> str:
    """The statement with its hypotheses, and what the sheets print wrongly of it."""
    claim, tag = place.claim, f"h{place.level}"
    if place.again:
        return f'<p class="entry">{_numbers(place)}{_title(claim, measures)}, see {place.again}</p>'
    head = f"{_mark(claim, verdict)} {_numbers(place)}{_title(claim, measures)}{_letters(claim)}"
    body = claim.statement.partition("\n")[2].strip("\n")
    text = _read(claim, lambda: str(typeset(body, formula=_formula(measures))))
    narrow = measures._replace(room=measures.room - _BORDER)
    errata = "".join(_erratum(claim, foil, narrow) for foil in claim.errata)
    facts = " · ".join([f"<code>{escape(claim.id)}</code>", *_sources(claim)])
    title = f'<{tag} class="title">' + f"{head}{_failure(verdict)}</{tag}>"
    return f'<article>{title}{text}{errata}<p class="facts">{facts}</p></article>'


def _mark(claim: Claim, verdict: str | None) -> str:
    found = mark(claim, verdict)
    return f'<span class="mark" role="img" aria-label="{found.words}">{found.sign}</span>'


def _letters(claim: Claim) -> str:
    return "".join(
        f' <span class="{"hard" if text[0] == "[" else "loose"}">{text.strip("[]")}</span>'
        for text in letters(claim)
    )


def _failure(verdict: str | None) -> str:
    if verdict in (None, "holds"):
        return ""
    return f' <strong class="failed">does not hold ({verdict})</strong>'


def _numbers(place: Place) -> str:
    return f'<span class="number">{place.numbers}</span> ' if place.numbers else ""


def _title(claim: Claim, measures: Measures) -> str:
    title = claim.title.rstrip(".")
    return _read(claim, lambda: str(typeset(title, line=True, formula=_formula(measures))))


def _sources(claim: Claim) -> list[str]:
    return [", ".join(claim.sources)] if claim.sources else []


def _erratum(claim: Claim, foil: Foil, measures: Measures) -> str:
    def line(text: str) -> str:
        text = " ".join(text.split())
        if "\\" in text and "$" not in text:  # a formula alone
            text = f"${text}$"
        return _read(claim, lambda: str(typeset(text, line=True, formula=_formula(measures))))

    return (
        f'<p class="erratum"><b>{foil.where}</b> ({foil.weight}) <i>printed:</i>'
        f" {line(foil.printed)} <i>right:</i> {line(foil.right)} <i>why:</i> {line(foil.why)}</p>"
    )


@cache
def _formula(measures: Measures) -> Callable[[str, bool], list[str]]:
    return partial(_fit, measures)


def _fit(measures: Measures, tex: str, block: bool) -> list[str]:
    room = measures.room - (0 if block else _STOP)
    made = fitted(tex, room=room, least=measures.least, block=block)
    if block and 'display="block"' not in made[0]:
        return [f'<span class="display">{"".join(made)}</span>']
    return made


def _read(claim: Claim, make: Callable[[], str]) -> str:
    """What is made of a claim's texts, or an error that says whose they are."""
    try:
        return make()
    except ValueError as error:
        raise UsageError(f"{claim.id} cannot be typeset: {error}") from None
