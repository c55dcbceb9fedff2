"""What a run found: plain data, to cross processes and to be kept as JSON.

A report file is one JSON object with the environment of the run and its reports. It is written
atomically (a temporary file, then a rename), so that a reader sees the old file or the new one and
never half of one. Numbers that JSON lacks (NaN, infinities) are written as strings.
"""

import contextlib
import json
import math
import os
import platform
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from vademecum import __version__
from vademecum.claims.evidence import Evidence
from vademecum.files import write_atomically

__all__ = [
    "VERDICTS", "Checked", "Report", "environment", "from_json", "read_checked", "read_reports",
    "to_json", "write_reports",
]  # fmt: skip

FORMAT, VERSION = "vademecum-reports", 2
Verdict = Literal["holds", "refuted", "vacuous", "blunt", "broken", "overdue"]
VERDICTS: tuple[Verdict, ...] = ("holds", "blunt", "vacuous", "refuted", "overdue", "broken")
"""All verdicts, the worst last."""


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one run of one claim; equal reports found the same, however long it took."""

    id: str
    seed: int
    evidence: tuple[Evidence, ...] = ()
    counterexamples: tuple[Evidence | None, ...] = ()  # one for each foil; None if it survived
    error: str = ""  # the traceback, if the check raised
    overdue: bool = False
    seconds: float = field(default=0.0, compare=False)  # of CPU time; wall time is the machine's

    @property
    def verdict(self) -> Verdict:
        """What follows from the evidence, the foils and the way the run ended."""
        if self.overdue:
            return "overdue"
        if self.error:
            return "broken"
        if any(e.refutes for e in self.evidence):
            return "refuted"
        if not self.evidence or not all(e.holds for e in self.evidence):
            return "vacuous"
        return "blunt" if None in self.counterexamples else "holds"

    @property
    def cases(self) -> int:
        """How many comparisons were made."""
        return sum(e.cases for e in self.evidence)

    @property
    def tightest(self) -> Evidence | None:
        """The evidence with the least room left, the first thing to look at when in doubt."""
        return min(self.evidence, key=lambda e: e.margin + e.tol, default=None)

    def __bool__(self) -> bool:
        return self.verdict == "holds"

    def __str__(self) -> str:
        lines = [f"{self.id}[{self.seed}] {self.verdict}: {self.cases} cases, {self.seconds:.2f} s"]
        if self.tightest:
            lines.append(f"tightest: {self.tightest}")
        lines += [f"foil: {e or 'survived'}" for e in self.counterexamples]
        if self.error:
            lines.append(self.error.strip().replace("\n", "\n  "))
        return "\n  ".join(lines)


def environment() -> dict[str, Any]:
    """The versions and the machine that a run depended on."""
    import numpy
    import torch

    return {
        "vademecum": __version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def write_reports(
    path: str | Path, reports: Iterable[Report], *, started: float, full: bool = False
) -> None:
    """Write the reports of one run, with its environment, in one atomic step.

    Args:
        path: The file; an existing one is replaced, and stays whole if the writing fails.
        reports: What was finished so far.
        started: `time.time()` at the start of the run.
        full: Whether the claims ran with their thorough knobs.
    """
    content = {
        "format": FORMAT,
        "version": VERSION,
        "environment": environment(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "duration": round(time.time() - started, 3),
        "full": full,
        "reports": [to_json(r) for r in sorted(reports, key=lambda r: (r.id, r.seed))],
    }
    write_atomically(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


class Checked(NamedTuple):
    """A run as its file has it: when it began (UTC), with which versions, and what it found."""

    started: str
    environment: dict[str, Any]
    reports: tuple[Report, ...]

    def verdicts(self) -> dict[str, Verdict]:
        """The worst verdict on each claim."""
        found: dict[str, Verdict] = {}
        for report in self.reports:
            both = (report.verdict, found.get(report.id, report.verdict))
            found[report.id] = max(both, key=VERDICTS.index)
        return found


def read_reports(path: str | Path) -> list[Report]:
    """Read the reports of a file back.

    Raises:
        ValueError: If the file is truncated, not a report, or of an unknown version.
    """
    return list(read_checked(path).reports)


def read_checked(path: str | Path) -> Checked:
    """Read a report file back, with its date and versions; raises as `read_reports` does."""
    content = _content(path)
    try:
        reports = tuple(from_json(entry) for entry in content["reports"])
        return Checked(str(content["started"]), dict(content["environment"]), reports)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path} has a damaged report: {error!r}") from None


def _content(path: str | Path) -> dict[str, Any]:
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not whole JSON ({error}): truncated or foreign") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{path} is not a report file: its format is not {FORMAT!r}")
    if content.get("version") != VERSION:
        raise ValueError(
            f"{path} has version {content.get('version')!r} of the format, and this library reads"
            f" version {VERSION}, in which evidence is named: run `vade check --json` again"
        )
    return content


def to_json(report: Report) -> dict[str, Any]:
    """A report as JSON has it."""
    return {
        "id": report.id,
        "seed": report.seed,
        "verdict": report.verdict,
        "seconds": round(report.seconds, 4),
        "evidence": [_evidence_as_json(e) for e in report.evidence],
        "counterexamples": [e and _evidence_as_json(e) for e in report.counterexamples],
        "error": report.error,
        "overdue": report.overdue,
    }


def _evidence_as_json(e: Evidence) -> dict[str, Any]:
    return {
        "name": e.name,
        "relation": e.relation,
        "measured": _number(e.measured),
        "bound": _number(e.bound),
        "tol": _number(e.tol),
        "cases": e.cases,
        "at": {k: _number(v) if isinstance(v, int | float) else str(v) for k, v in e.at.items()},
        "sampled": e.sampled,
    }


def _number(value: float) -> float | str:
    return value if isinstance(value, int) or math.isfinite(value) else str(value)


def from_json(entry: dict[str, Any]) -> Report:
    """A report from JSON."""
    return Report(
        id=entry["id"],
        seed=entry["seed"],
        evidence=tuple(_evidence_from_json(e) for e in entry["evidence"]),
        counterexamples=tuple(e and _evidence_from_json(e) for e in entry["counterexamples"]),
        error=entry["error"],
        overdue=entry["overdue"],
        seconds=entry["seconds"],
    )


def _evidence_from_json(e: dict[str, Any]) -> Evidence:
    numbers = (v if isinstance(v, int) else float(v) for v in (e["measured"], e["bound"], e["tol"]))
    return Evidence(
        e["name"], e["relation"], *numbers, cases=e["cases"], at=e["at"], sampled=e["sampled"]
    )
