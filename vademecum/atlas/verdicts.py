"""The verdicts that the pages show: remembered ones, and those of runs started in the browser.

All checks run in worker processes, so that one that hangs or crashes gets its verdict and the pages
stay up.
"""

import importlib
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any

from vademecum.atlas.controls import knobs_from
from vademecum.claims import VERDICTS, Claim, Report, Workers, recall, remember, run
from vademecum.claims.ledger import LEDGER

__all__ = ["Verdicts"]


class Verdicts:
    """What is known about the claims, and the means to find out.

    Args:
        claims: The claims in question.
        limit: Seconds after which a run is killed and counts as overdue.
        jobs: How many worker processes a run gets.
    """

    def __init__(self, claims: Iterable[Claim], *, limit: float = 60.0, jobs: int = 1):
        self.claims = {claim.id: claim for claim in claims}
        self._limit, self._jobs = limit, jobs
        self._reports: dict[str, list[Report]] = {}
        self._note(recall())
        self._workers = Workers(2, limit=limit)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._fresh: list[Report] = []
        self._chosen: list[str] = []
        self._crew: Workers | None = None

    def of(self, claim: str) -> list[Report]:
        """The reports of a claim's latest run, none if it never ran."""
        return self._reports.get(claim, [])

    def verdict(self, claim: str) -> str:
        """The worst verdict over the seeds of a claim's latest run, or "not run"."""
        found = {report.verdict for report in self.of(claim)}
        return next((v for v in reversed(VERDICTS) if v in found), "not run")

    def missing(self) -> list[str]:
        """The claims that never ran."""
        return [name for name in self.claims if not self.of(name)]

    def tally(self, room: str | None = None) -> Counter[str]:
        """How many claims have which verdict."""
        names = (n for n, claim in self.claims.items() if room in (None, claim.room))
        return Counter(self.verdict(name) for name in names)

    def start(self, names: Iterable[str] | None = None) -> bool:
        """Begin to run claims, by default all, in the background; False if a run is under way."""
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return False
            self._stop.clear()
            self._fresh = []
            self._chosen = list(self.claims) if names is None else list(names)
            self._crew = Workers(self._jobs, limit=self._limit)
            self._thread = threading.Thread(target=self._run, args=(self._crew,), daemon=True)
            self._thread.start()
            return True

    def stop(self) -> None:
        """End the run under way; what was finished is kept."""
        self._stop.set()
        if self._crew is not None:
            self._crew.shutdown(wait=False, cancel_futures=True)

    def progress(self) -> dict[str, Any]:
        """How far the latest run is."""
        fresh = list(self._fresh)
        return {
            "running": self._thread is not None and self._thread.is_alive(),
            "done": len(fresh),
            "total": len(self._chosen),
            "tally": Counter(report.verdict for report in fresh),
            "failed": sorted(report.id for report in fresh if not report),
        }

    def wait(self) -> None:
        """Block until the run has ended."""
        if self._thread is not None:
            self._thread.join()

    def trial(self, claim: Claim, seed: int, form: Mapping[str, str]) -> Report:
        """Run one claim with the knobs of a form, and keep the report if these are the defaults.

        Raises:
            UsageError: If the form sets a knob to what it cannot be.
        """
        changed = any(value != claim.knobs[name] for name, value in knobs_from(claim, form).items())
        task = self._workers.submit(_trial, claim.check.__module__, claim.id, seed, dict(form))
        try:
            report = task.result()
        except (TimeoutError, ChildProcessError) as error:
            overdue = isinstance(error, TimeoutError)
            message = f"{type(error).__name__}: {error}"
            report = Report(claim.id, seed, error=message, overdue=overdue)
        if not changed:
            self._note([report])
            remember([report])
        return report

    def close(self) -> None:
        """Kill what is under way."""
        self.stop()
        self._workers.shutdown(cancel_futures=True)
        self.wait()

    def _run(self, crew: Workers) -> None:
        chosen = [self.claims[name] for name in self._chosen]
        try:
            with closing(run(chosen, executor=crew)) as running:
                for report in running:
                    if self._stop.is_set():  # this one was killed
                        break
                    self._fresh.append(report)
                    self._note([report])
        except RuntimeError:  # of a crew that was sent home before it had its work
            if not self._stop.is_set():
                raise
        crew.shutdown(cancel_futures=True)
        remember(self._fresh)

    def _note(self, reports: Iterable[Report]) -> None:
        new: dict[str, list[Report]] = {}
        for report in reports:
            if report.id in self.claims:
                new.setdefault(report.id, []).append(report)
        self._reports |= new


def _trial(module: str, name: str, seed: int, form: dict[str, str]) -> Report:
    importlib.import_module(module)
    return LEDGER[name].run(seed, **knobs_from(LEDGER[name], form))
