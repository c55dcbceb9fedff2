"""An examination in a process of its own, which is ended when its time is over.

The process tells what it finds line by line (see `_child`), so that whatever the network's code
does (a pass that never returns, a crash of the interpreter), all that was found before is kept. It
is started before anything large is imported here, so that no time is lost.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vademecum.errors import UsageError

if TYPE_CHECKING:
    from vademecum.examine.dossier import Dossier, Measurement, Section

__all__ = ["Question", "supervised"]

_LONGER = 0.05, 1.0  # of the budget, and seconds: what the process may take beyond it
_WRITING = 0.5  # seconds for the page, which are kept for it
_OVER = "the time was over before it came to its end"
_SPIN = {"GOMP_SPINCOUNT": "1000"}
"""Rounds that a thread waits awake for the others. By default it does so for milliseconds, and
where others want the processors, it takes them from those that it waits for. Observed for 128
images through ResNet-18 on two cores: 0.08 s in place of 1.0 s where three processes share them,
and no difference where they are idle."""


@dataclass(frozen=True)
class Question:
    """What to examine, in words."""

    network: str
    data: str
    test: str | None = None
    checkpoint: str | None = None
    sections: tuple[str, ...] | None = None
    task: str | None = None
    budget: float = 60.0
    seed: int = 0


@dataclass
class _Heard:
    """What the process has told so far."""

    environment: dict[str, Any] = field(default_factory=dict)
    claims: dict[str, list[str]] = field(default_factory=dict)
    """Those of all sections that were asked for, in their order."""
    ended: "dict[str, Section]" = field(default_factory=dict)
    items: "dict[str, dict[str, Measurement]]" = field(default_factory=dict)
    sentences: dict[str, str] = field(default_factory=dict)

    def take(self, line: dict[str, Any]) -> "Section | None":
        """Keep what a line tells; the section, if one has ended.

        Raises:
            UsageError: If the process refused, or the user's file is broken.
        """
        if "refused" in line:
            raise UsageError(line["refused"])
        if "broken" in line:
            raise UsageError(f"the user's code raised an error\n{line['broken']}")
        if "begun" in line:
            self.environment, self.claims = line["begun"], line["sections"]
            return None
        from vademecum.examine._json import as_measurement, as_section

        if "ended" in line:
            section = as_section(line["ended"])
            self.ended[section.name] = section
            return section
        if "item" in line:
            found = as_measurement(line["item"])
            self.items.setdefault(line["section"], {})[found.name] = found
        elif "sentence" in line:
            self.sentences[line["section"]] = line["sentence"]
        return None

    def dossier(self, why: str) -> "Dossier":
        """What was heard, with sections that did not end as far as they came."""
        from vademecum.examine.dossier import Dossier
        from vademecum.examine.findings import findings

        sections = tuple(self.ended.get(name) or self._cut(name, why) for name in self.claims)
        return Dossier(sections, findings(sections), self.environment)

    def _cut(self, name: str, why: str) -> "Section":
        from vademecum.examine.dossier import Section

        found = tuple(self.items.get(name, {}).values())
        status = "partly" if found else "failed" if why.startswith("its process") else "out of time"
        claims = tuple(self.claims[name])
        return Section(name, status, found, self.sentences.get(name, ""), claims, reason=why)


def supervised(
    question: Question,
    *,
    start: float | None = None,
    done: "Callable[[Section], None] | None" = None,
    stop: Callable[[], bool] = lambda: False,
) -> "Dossier":
    """Examine in a process of its own, and give what was found when its time is over.

    Args:
        question: What to examine.
        start: When its time began, by `time.monotonic`; now by default.
        done: Called with each section when it has ended.
        stop: Whether to end early.

    Raises:
        UsageError: If it cannot be examined; nothing was found then.
    """
    start = time.monotonic() if start is None else start
    limit = question.budget + max(_LONGER[0] * question.budget, _LONGER[1])
    process, lines, listener = _started(
        question, start + question.budget - time.monotonic() - _WRITING
    )
    heard, why = _Heard(), ""
    try:
        while not why:
            left = start + limit - time.monotonic()
            if left <= 0 or stop():
                why = "it was interrupted" if stop() else _OVER
                break
            try:
                line = lines.get(timeout=min(left, 0.1))
            except queue.Empty:
                continue
            if line is None:
                why = f"its process ended{_code(process)}"
                break
            section = heard.take(line)
            if section is not None and done is not None:
                done(section)
    finally:
        _end(process)
        listener.join()
    if not heard.claims:
        raise UsageError(f"nothing was examined: {_before_it_began(why, question.budget)}")
    return heard.dossier(why)


def _started(
    question: Question, left: float
) -> "tuple[subprocess.Popen[str], queue.Queue[dict[str, Any] | None], threading.Thread]":
    """The process, what it tells (None at its end), and who listens."""
    process = subprocess.Popen(
        [sys.executable, "-m", "vademecum.examine._child"], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True, encoding="utf-8", start_new_session=True,
        env=_environment(),
    )  # fmt: skip
    asked = vars(question) | {"deadline": time.time() + left}
    assert process.stdin is not None
    with process.stdin as pipe:
        json.dump(asked, pipe)
    told: queue.Queue[dict[str, Any] | None] = queue.Queue()

    def listen() -> None:
        assert process.stdout is not None
        with process.stdout as pipe, contextlib.suppress(json.JSONDecodeError):  # of half a line
            for line in pipe:
                told.put(json.loads(line))
        told.put(None)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    return process, told, listener


def _environment() -> dict[str, str]:
    """That of this process, and how threads wait unless it says so."""
    said = "OMP_WAIT_POLICY" in os.environ or "GOMP_SPINCOUNT" in os.environ
    return dict(os.environ) if said else os.environ | _SPIN


def _before_it_began(why: str, budget: float) -> str:
    """Why a process told nothing of its network."""
    if why == _OVER:
        return (
            f"after {budget:g} s the network, its data or its first pass was not done: give more"
            " with --budget, or find out where it hangs"
        )
    return f"{why} before the network and its data were there"


def _code(process: "subprocess.Popen[str]") -> str:
    """How a process ended, in words; nothing where all was well."""
    code = process.wait(timeout=10)
    return f" by itself with exit code {code}" if code else ""


def _end(process: "subprocess.Popen[str]") -> None:
    """End the process and what it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
