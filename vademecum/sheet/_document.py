"""The sheet as one HTML file: statements in columns, fonts inside, nothing asked of anybody."""

from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from string import Template
from typing import Literal, NamedTuple, get_args

from vademecum import __version__
from vademecum.claims import Checked, Claim
from vademecum.errors import UsageError
from vademecum.sheet._entries import Measures, brief, heading, whole
from vademecum.sheet._fonts import faces
from vademecum.sheet._marks import LEGEND, MARKS
from vademecum.sheet._order import LOST, Heading, Place, along, by_room
from vademecum.typeset import FONT

__all__ = ["Form", "Letter", "Paper", "sheet"]

Form = Literal["cheat", "full"]
"""A title and a line of maths for each statement, or all that is said of it."""
Paper = Literal["a4", "letter"]
"""The size of the paper."""
Letter = Literal["A", "B", "C", "D", "E"]
"""The sheets of the course."""

_MARGIN = 7.0  # millimetres, left and right
_LEAST = 5.0  # points: no formula is smaller
_POINTS = 72 / 25.4
_WIDTHS = {"a4": 210.0, "letter": 215.9}  # millimetres


class _Look(NamedTuple):
    """How a form is set: columns, the gap between them in millimetres, the size in points."""

    columns: int
    gap: float
    size: float
    leading: float

    def measures(self, paper: str) -> Measures:
        """What one of its columns can hold."""
        across = _WIDTHS[paper] - 2 * _MARGIN - (self.columns - 1) * self.gap
        return Measures(across / self.columns * _POINTS / self.size, _LEAST / self.size)


_LOOKS = {"cheat": _Look(4, 3.0, 6.0, 1.1), "full": _Look(3, 4.0, 7.0, 1.15)}


def sheet(
    claims: Iterable[Claim],
    *,
    form: Form = "cheat",
    paper: Paper = "a4",
    reports: Checked | None = None,
    along_sheet: Letter | None = None,
) -> str:
    """The formula sheet as HTML.

    The same claims and reports give the same text, wherever and whenever it is made.

    Args:
        claims: What stands on it, in the order of the course whatever theirs is.
        form: Whether each statement is a line, or is told in full with the errata.
        paper: The size of the paper.
        reports: What a run found of these claims; those that it lacks are marked as not checked.
        along_sheet: Only the statements of this sheet, in the order in which it prints them.

    Raises:
        UsageError: If a formula of a claim cannot be read or is too wide, with the claim's id; if
            no claim is left; if an argument is none of those named.

    Example:
        >>> from vademecum.claims import select
        >>> page = sheet(select("linear.ridge"))
        >>> page.count('class="entry"'), "<script" in page, "http" in page
        (1, False, False)
    """
    for name, given, known in (("form", form, Form), ("paper", paper, Paper)):
        _one_of(name, given, get_args(known))
    if along_sheet is not None:
        _one_of("along_sheet", along_sheet, get_args(Letter))
    flow = by_room(claims) if along_sheet is None else along(claims, along_sheet)
    verdicts = reports.verdicts() if reports is not None else {}
    measures = _LOOKS[form].measures(paper)
    shown = "\n".join(_shown(flow, verdicts, measures, form))
    if not shown:
        raise UsageError(
            "no claim is left to print: none has a line, or the sheet has none of them"
        )
    return _page(shown, form, paper, reports, along_sheet)


def _one_of(name: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise UsageError(f"{name} must be one of {', '.join(known)}, got {given!r}")


def _shown(
    flow: Iterator[Heading | Place], verdicts: dict, measures: Measures, form: Form
) -> Iterator[str]:
    """The flow as HTML; a heading with nothing below it is left out."""
    waiting: dict[int, Heading] = {}
    for part in flow:
        if isinstance(part, Heading):
            waiting = {level: h for level, h in waiting.items() if level < part.level}
            waiting[part.level] = part
            continue
        make = brief if form == "cheat" else whole
        made = make(part, verdicts.get(part.claim.id), measures)
        if made:
            chosen = [h for h in waiting.values() if form == "full" or h.level < 4]
            yield from (heading(h.level, h.text) for h in chosen)
            waiting = {}
            yield made


def _page(
    shown: str, form: Form, paper: Paper, reports: Checked | None, letter: Letter | None
) -> str:
    title = "The deep-learning course, checked" + (f": sheet {letter}" if letter else "")
    body = f'<h1>{title}</h1>\n<p class="about">{_about(shown, form, reports)}</p>\n'
    if letter in LOST:
        lost = f"The scan of sheet {letter} has lost {LOST[letter]}: what stood there is not here."
        body += f'<p class="lost">{lost}</p>\n'
    body += shown
    footer = _footer(reports)
    outside = escape(LEGEND + footer + "0123456789 page of ·")
    style = _style(form, paper, footer)
    fonts = faces(body + outside, marks=[mark.sign for mark in MARKS])
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{title}</title>\n{_date(reports)}<style>\n{fonts}\n{style}</style>\n</head>\n"
        f"<body><main>\n{body}\n</main></body>\n</html>\n"
    )


def _about(shown: str, form: Form, reports: Checked | None) -> str:
    count = shown.count("<article>" if form == "full" else 'role="img"')
    said = f"{count} statements" + (", none of them checked for this print" * (reports is None))
    return f'{said}.<span class="legend"> {LEGEND}.</span>'


def _footer(reports: Checked | None) -> str:
    if reports is None:
        return f"Vademecum {__version__}, not checked"
    known = reports.environment
    names = {"vademecum": "Vademecum", "torch": "torch", "numpy": "NumPy", "python": "Python"}
    versions = ", ".join(f"{names[name]} {known[name]}" for name in names if name in known)
    return f"{versions}  ·  checked {reports.started[:10]}"


def _date(reports: Checked | None) -> str:
    return "" if reports is None else f'<meta name="date" content="{escape(reports.started)}">\n'


def _style(form: Form, paper: Paper, footer: str) -> str:
    look = _LOOKS[form]
    maths = (FONT / "maths.css").read_text(encoding="utf-8").split("\n", 2)[2]
    own = Template((Path(__file__).parent / "sheet.css").read_text(encoding="utf-8"))
    return maths + own.substitute(
        paper=paper.capitalize() if paper == "a4" else paper,
        legend=LEGEND,
        footer=footer.replace("\\", "").replace('"', ""),
        size=f"{look.size:g}pt",
        leading=look.leading,
        columns=look.columns,
        gap=f"{look.gap:g}mm",
        width=f"{_WIDTHS[paper]:g}mm",
    )
