"""The verdicts that the pages show: remembered ones, and those of runs started in the browser.

All checks run in worker processes with limits, so that one that hangs, crashes or eats memory gets
its verdict and the pages stay up. A trial of one seed or other knobs is shown to who asked for it;
what is said of a claim elsewhere comes from runs with the claim's own knobs alone.
"""

import importlib
import math
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any

from vademecum.atlas.controls import knobs_from
from vademecum.canvas import styled, svg
from vademecum.claims import Claim, Report, Workers, recall, remember, run
from vademecum.claims.ledger import LEDGER
from vademecum.claims.memory import Known
from vademecum.claims.workers import Call
from vademecum.figures import draw, has_curves

__all__ = ["Verdicts", "figure"]

_MEMORY = 4 << 30  # bytes that a check may take


class Verdicts:
    """What is known about the claims, and the means to find out.

    Args:
        claims: The claims in question.
        limit: Seconds after which a trial is killed; of CPU time, those after which a run in the
            background counts as overdue, so that a busy machine changes no verdict.
        jobs: How many worker processes a run gets.
        nice: By how much other processes go before a run.
    """

    def __init__(
        self, claims: Iterable[Claim], *, limit: float = 60.0, jobs: int = 1, nice: int = 0
    ):
        self.claims = {claim.id: claim for claim in claims}
        limits: dict[str, Any] = {"limit": limit, "memory": _MEMORY, "forked": True}
        self._background = limits | {"limit": 10 * limit, "cpu": math.ceil(limit), "nice": nice}
        self._jobs = jobs
        self._known = recall(self.claims.values())
        self._workers = Workers(2, **limits)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._fresh: list[Report] = []
        self._chosen: list[str] = []
        self._crew: Workers | None = None

    def known(self, claim: str) -> Known:
        """All that is known of a claim."""
        return self._known.get(claim, Known())

    def learn(self, known: Mapping[str, Known]) -> None:
        """What was found out elsewhere."""
        self._known |= known

    def verdict(self, claim: str) -> str:
        """The worst verdict over the seeds of a claim, or "not run"."""
        return self.known(claim).verdict

    def missing(self) -> list[str]:
        """The claims that never ran as they are written now."""
        return [name for name in self.claims if name not in self._known]

    def tally(self, room: str | None = None) -> Counter[str]:
        """How many claims have which verdict."""
        names = (n for n, claim in self.claims.items() if room in (None, claim.room))
        return Counter(self.verdict(name) for name in names)

    def start(self, names: Iterable[str] | None = None) -> bool:
        """Begin to run claims, by default all, in the background; False if a run is under way."""
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return False
            self._stopped, self._fresh = False, []
            self._chosen = list(self.claims) if names is None else list(names)
            self._crew = Workers(self._jobs, **self._background)
            self._thread = threading.Thread(target=self._run, args=(self._crew,), daemon=True)
            self._thread.start()
            return True

    def stop(self) -> None:
        """End the run under way; what was finished is kept."""
        with self._lock:
            if self._thread is not None and self._thread.is_alive() and self._crew is not None:
                self._stopped = True
                self._crew.shutdown(wait=False, cancel_futures=True)

    def progress(self) -> dict[str, Any]:
        """How far the latest run is, or was when it was stopped."""
        fresh = list(self._fresh)
        return {
            "running": self._thread is not None and self._thread.is_alive(),
            "stopped": self._stopped and len(fresh) < len(self._chosen),
            "done": len(fresh),
            "total": len(self._chosen),
            "tally": Counter(report.verdict for report in fresh),
            "failed": sorted(report.id for report in fresh if not report),
        }

    def wait(self) -> None:
        """Block until the run has ended."""
        if self._thread is not None:
            self._thread.join()

    def trial(self, claim: Claim, seed: int, form: Mapping[str, str]) -> Call:
        """Run one claim with the knobs of a form: its report, and a figure if it has curves.

        Raises:
            UsageError: If the form sets a knob to what it cannot be.
        """
        claim.accept(knobs_from(claim, form))
        return self._workers.submit(_trial, claim.check.__module__, claim.id, seed, dict(form))

    def beside_foil(self, claim: Claim, index: int, seed: int) -> Call:
        """The reports of a claim and of one of its foils, from the same random numbers."""
        return self._workers.submit(_beside_foil, claim.check.__module__, claim.id, index, seed)

    def abandon(self, call: Call) -> None:
        """Nobody waits for this trial any more."""
        self._workers.stop(call)

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
                    if self._stopped:  # this one was killed
                        break
                    self._fresh.append(report)
                    self._known[report.id] = self.known(report.id).with_reports([report])
        except RuntimeError:  # of a crew that was sent home before it had its work
            if not self._stopped:
                raise
        crew.shutdown(cancel_futures=True)
        remember(chosen, self._fresh)


def figure(report: Report) -> bytes:
    """The evidence of a report as SVG; nothing where no coordinate runs."""
    return svg(styled(lambda: draw(report))) if has_curves(report) else b""


def _trial(module: str, name: str, seed: int, form: dict[str, str]) -> tuple[Report, bytes]:
    importlib.import_module(module)
    report = LEDGER[name].run(seed, **knobs_from(LEDGER[name], form))
    return report, figure(report)


def _beside_foil(module: str, name: str, index: int, seed: int) -> tuple[Report, Report]:
    importlib.import_module(module)
    return LEDGER[name].beside_foil(index, seed)
