"""`vade check`: run claims with a progress bar, and say which do not hold and why."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from vademecum.cli.choice import Kind, choose, parse_seeds
from vademecum.cli.interrupt import Interrupts
from vademecum.cli.screen import heading, table, terminal
from vademecum.errors import UsageError

if TYPE_CHECKING:
    from vademecum.claims import Claim, Report

__all__ = ["check"]

_SHOWN = 10  # pieces of evidence of one report


def check(
    pattern: str = "*",
    *,
    seeds: str = "0",
    jobs: int | None = None,
    by: Kind | None = None,
    budget: float = float("inf"),
    full: bool = False,
    limit: float | None = None,
    json: Path | None = None,
) -> int:
    """Run claims and say which hold.

    Exits with 0 if all hold and with 1 if some do not. Ctrl-C and SIGTERM keep what was finished.

    Args:
        pattern: A room, or a shell pattern of claims such as 'connectionism.hopfield*'.
        seeds: Run each claim with these: 3, 0-9 or 0,2,5-7.
        jobs: How many worker processes to start; as many as there are cores by default.
        by: Only claims with this kind of evidence.
        budget: As many claims, the cheapest first, as fit into these CPU seconds.
        full: Use the thorough knobs where a claim has them.
        limit: Seconds of wall time after which a run is killed and counts as overdue.
        json: Write the reports to this file, again and again while running.
    """
    numbers = parse_seeds(seeds)
    for name, value in (("jobs", jobs), ("limit", limit)):
        if value is not None and not value > 0:
            raise UsageError(f"--{name} must be positive, got {value:g}")
    claims = choose(pattern, by=by, budget=budget)
    from vademecum.claims import recall, remember, run

    reports: list[Report] = []
    total = len(claims) * len(numbers)
    save = _journal(json, full=full)
    save(reports, True)
    recall(claims)  # which takes the digests of their sources, as they are now
    with Interrupts() as interrupts, _progress(total) as advance:
        try:
            with closing(run(claims, numbers, jobs=jobs, limit=limit, full=full)) as running:
                for report in interrupts.until(running):
                    reports.append(report)
                    advance(report)
                    save(reports, False)
        finally:  # also if the terminal or the pipe has gone
            save(reports, True)
            if not full:  # whose knobs are others
                remember(claims, reports)
    _summarise(reports, {claim.id: claim for claim in claims})
    if len(reports) < total:
        kept = f", kept in {json}" if json else ""
        print(f"vade: interrupted: {len(reports)} of {total} finished{kept}", file=sys.stderr)
        return 128 + interrupts.signum
    return 0 if all(reports) else 1


def _journal(path: Path | None, *, full: bool) -> "Callable[[list[Report], bool], None]":
    """A function that writes the reports: now, or once it is worth its time."""
    from vademecum.claims import write_reports

    started, due = time.time(), 0.0

    def save(reports: "list[Report]", now: bool) -> None:
        nonlocal due
        begun = time.monotonic()
        if path is not None and (now or begun >= due):
            write_reports(path, reports, started=started, full=full)
            due = begun + max(1.0, 20 * (time.monotonic() - begun))

    return save


@contextmanager
def _progress(total: int) -> "Iterator[Callable[[Report], None]]":
    """A bar with a tally on a terminal, a line for each report elsewhere."""
    if not terminal():
        yield lambda report: print(_line(report), flush=True)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.text import Text

    from vademecum.claims import VERDICTS

    tally: Counter[str] = Counter()
    words = TextColumn("{task.description}", markup=False)
    with Progress(BarColumn(), MofNCompleteColumn(), words, TimeElapsedColumn()) as bar:
        task = bar.add_task("starting", total=total)

        def advance(report: "Report") -> None:
            tally[report.verdict] += 1
            counts = ", ".join(f"{tally[v]} {v}" for v in VERDICTS if tally[v])
            bar.update(task, advance=1, description=counts)
            if not report:
                bar.console.print(Text(_line(report), style="red"))

        yield advance


def _line(report: "Report") -> str:
    return str(report).partition("\n")[0]


def _summarise(reports: "list[Report]", claims: "dict[str, Claim]") -> None:
    from vademecum.claims import VERDICTS

    columns = ("room", "claims", *VERDICTS, "cases", "CPU s")
    rooms = dict.fromkeys(claim.room for claim in claims.values())
    rows = []
    for room in rooms:
        of_room = [r for r in reports if claims[r.id].room == room]
        verdicts = Counter(r.verdict for r in of_room)
        seconds = f"{sum(r.seconds for r in of_room):.2f}"
        cases = sum(r.cases for r in of_room)
        ids = len({r.id for r in of_room})
        rows.append((room, ids, *(verdicts[v] for v in VERDICTS), cases, seconds))
    table(columns, rows, right=columns[1:])
    for report in sorted(reports, key=lambda r: (r.id, r.seed)):
        if not report:
            heading(_line(report))
            print(_reasons(report, claims[report.id]))


def _reasons(report: "Report", claim: "Claim") -> str:
    """Why a report does not hold."""
    wrong = [e for e in report.evidence if not e.holds]
    lines = [f"evidence: {e}" for e in wrong[:_SHOWN]]
    if len(wrong) > _SHOWN:
        lines.append(f"and {len(wrong) - _SHOWN} more")
    lines += [
        f"a foil survived: {foil.why}"
        for foil, found in claim.refutations(report)
        if found is None and not report.error
    ]
    if not report.evidence and not report.error:
        lines.append("it yielded no evidence")
    lines += report.error.strip().splitlines()
    return "\n".join(f"  {line}" for line in lines)
