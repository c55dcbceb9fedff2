"""The last verdict on each claim, remembered between runs.

`vade check` and the atlas both add to one report file of the user's: the reports of a claim's
latest run replace those of earlier ones. It is a convenience: what cannot be read or was found by
another version counts as absent, and what cannot be written is forgotten.
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
    """The file: below `$XDG_STATE_HOME`, or `~/.local/state` where that is not set."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "vademecum" / "last-check.json"


def recall() -> list[Report]:
    """What the latest runs found, by this version of the library."""
    path = remembered_at()
    with contextlib.suppress(OSError, ValueError):
        if read_environment(path)["vademecum"] == __version__:
            return read_reports(path)
    return []


def remember(reports: Iterable[Report]) -> None:
    """Let the reports replace what is remembered of their claims."""
    new = list(reports)
    names = {report.id for report in new}
    kept = [report for report in recall() if report.id not in names]
    with contextlib.suppress(OSError):
        write_reports(remembered_at(), [*kept, *new], started=time.time())
