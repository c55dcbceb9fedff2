"""The last verdict on each claim, remembered between runs.

`vade check` and the atlas both add to one folder of the user's, with a report file for each claim:
the reports of its latest run replace those of earlier ones, and nothing else is written again. It
is a convenience: what cannot be read or was found by another version counts as absent, and what
cannot be written is forgotten.
"""

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

from vademecum import __version__
from vademecum.claims.report import Report, read_environment, read_reports, write_reports

__all__ = ["recall", "remember", "remembered_at"]


def remembered_at() -> Path:
    """The folder: below `$XDG_STATE_HOME`, or `~/.local/state` where that is not set."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "vademecum" / "checks"


def recall() -> list[Report]:
    """What the latest runs found, by this version of the library."""
    found: list[Report] = []
    for path in sorted(remembered_at().glob("*.json")):
        with contextlib.suppress(OSError, ValueError):
            if read_environment(path)["vademecum"] == __version__:
                found += read_reports(path)
    return found


def remember(reports: Iterable[Report]) -> None:
    """Let the reports replace what is remembered of their claims."""
    by_claim: dict[str, list[Report]] = {}
    for report in reports:
        by_claim.setdefault(report.id, []).append(report)
    with contextlib.suppress(OSError):
        for name, found in by_claim.items():
            write_reports(remembered_at() / f"{name}.json", found, started=time.time())
