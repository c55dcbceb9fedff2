"""`vade sheet`: the course's formula sheet, corrected and checked, for print."""

import difflib
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from vademecum import ROOMS
from vademecum.errors import UsageError

if TYPE_CHECKING:
    from vademecum.claims import Checked, Claim

__all__ = ["sheet"]


def sheet(
    *,
    form: Literal["cheat", "full"] = "cheat",
    room: Sequence[str] = (),
    sheet: Literal["A", "B", "C", "D", "E"] | None = None,
    paper: Literal["a4", "letter"] = "a4",
    reports: Path | None = None,
    check: bool = False,
    out: Path | None = None,
) -> int:
    """Print the course's formula sheet: every statement with a mark for what its evidence is worth.

    Without --reports and --check nothing is marked as checked. Exits with 1 if a claim does not
    hold, and prints it as such. PDF is made by an installed Chromium.

    Args:
        form: cheat has a title and a line of maths for each statement, full has all that is said
            of it, with the errata of the sheets.
        room: Only these rooms.
        sheet: Only the statements of this sheet, in its own order.
        paper: The size of the paper.
        reports: Take the verdicts from this file, which `vade check --json` wrote.
        check: Run the claims now, with seed 0.
        out: The file to write, which ends in .html or .pdf; sheet-FORM.pdf by default.
    """
    out = out or Path(f"sheet-{form}.pdf")
    if out.suffix not in (".html", ".pdf"):
        raise UsageError(f"--out must end in .html or .pdf, got {out}")
    if reports is not None and check:
        raise UsageError("--reports takes verdicts from a file and --check runs claims: choose one")
    claims = _chosen(room, sheet)
    checked = _read(reports) if reports is not None else _run(claims) if check else None
    from vademecum.files import write_atomically

    page = _page(claims, form, paper, checked, sheet)
    if out.suffix == ".html":
        write_atomically(out, page)
    elif not _print(page, out):
        return 2
    print(f"sheet: {out}")
    return _verdict(claims, checked)


def _chosen(rooms: Sequence[str], letter: str | None) -> "list[Claim]":
    for name in rooms:
        if name not in ROOMS:
            near = difflib.get_close_matches(name, ROOMS, n=3) or ROOMS
            raise UsageError(f"--room must name a room, got {name!r}; there are {', '.join(near)}")
    from vademecum.claims import select

    claims = [claim for name in dict.fromkeys(rooms or ("*",)) for claim in select(f"{name}.*")]
    if letter is None:
        return claims
    return [claim for claim in claims if any(s.startswith(letter) for s in claim.sources)]


def _page(claims: "list[Claim]", form, paper, checked: "Checked | None", letter) -> str:
    try:
        from vademecum.sheet import sheet

        return sheet(claims, form=form, paper=paper, reports=checked, along_sheet=letter)
    except ModuleNotFoundError as error:
        raise UsageError(f"the sheet needs {error.name}: pip install 'vademecum[atlas]'") from None


def _read(path: Path) -> "Checked":
    from vademecum.claims import read_checked

    try:
        return read_checked(path)
    except ValueError as error:
        raise UsageError(f"--reports {error}") from None


def _run(claims: "list[Claim]") -> "Checked":
    """Run the claims with a progress bar, and remember what was found as `vade check` does."""
    from vademecum.claims import Checked, environment, recall, remember, run
    from vademecum.progress import ticking

    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    recall(claims)  # which takes the digests of their sources, as they are now
    reports = []
    with (
        closing(run(claims)) as running,
        ticking("claims", len(claims), progress=sys.stderr.isatty()) as tick,
    ):
        for report in running:
            reports.append(report)
            tick(1)
    remember(claims, reports)
    return Checked(started, environment(), tuple(sorted(reports, key=lambda r: r.id)))


def _print(page: str, out: Path) -> bool:
    """Write the PDF; where that cannot be, the HTML beside it, and say how to print it."""
    from vademecum.files import write_atomically
    from vademecum.sheet import PrinterMissing, print_pdf

    try:
        write_atomically(out, [print_pdf(page)])
    except PrinterMissing as error:
        kept = out.with_suffix(".html")
        write_atomically(kept, page)
        print(f"vade: {error}; open {kept} in Chrome and print it into a PDF", file=sys.stderr)
        return False
    return True


def _verdict(claims: "list[Claim]", checked: "Checked | None") -> int:
    verdicts = checked.verdicts() if checked else {}
    failed = [c.id for c in claims if verdicts.get(c.id, "holds") != "holds"]
    for name in sorted(failed):
        print(f"vade: {name} does not hold: {verdicts[name]}", file=sys.stderr)
    missing = sum(claim.id not in verdicts for claim in claims)
    if missing:
        hint = "" if checked else "; --check runs them, --reports FILE takes what was found"
        print(f"vade: {missing} of {len(claims)} claims are not checked{hint}", file=sys.stderr)
    return 1 if failed else 0
