r"""Timing ours and the peers side by side.

A row names a workload, our call and the peers' calls. First all answers are compared; then the
calls take turns (ours, peer, ours, peer, ...), and each turn gives a ratio peer / ours. The median
of those ratios is robust against a machine whose speed drifts, since both sides of a ratio saw the
same moment. A ratio above 1 means that we are faster.

A short call is timed twice and the second time counts: it finds caches and memory as its own kind
leaves them, which is how it is used, and not as the other side did. Rows of short calls take more
turns than they ask for, as many as some seconds allow with the search for garbage before each call,
since the median of few of these still drifts by a tenth.

Rows whose data or peers are missing are skipped, with the line that installs these. A row whose
answers differ, or that breaks, is told with its reason where its numbers would stand, and the next
goes on.
"""

import ctypes
import gc
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from vademecum.data import DataNotFoundError

__all__ = ["Failed", "PeerNotFoundError", "Result", "Row", "Skipped", "in_turn", "measure"]

SHORT = 3.0  # seconds: hosts of virtual machines take freed memory back within two
STEADY, MOST = 5.0, 101  # seconds for turns at least, unless there are so many


class PeerNotFoundError(ModuleNotFoundError):
    """A peer with an environment of its own is missing; the message is the line that makes it."""


@dataclass
class Row:
    """One line of the table."""

    name: str
    ours: Callable[[], Any]
    peers: dict[str, Callable[[], Any]]
    agree: Callable[[Any, Any], None]  # raises if our answer and a peer's differ
    limit: str = ""  # the bound by arithmetic or bytes, where one is known
    rounds: int = 7


@dataclass
class Result:
    """What a row measured: median seconds, and ratios peer / ours."""

    row: str
    ours_s: float
    peer: str  # the fastest
    peer_s: float
    ratio: float
    memory_ratio: float | None
    ours_mb: float | None
    peer_mb: float | None
    limit: str
    peers: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass
class Skipped:
    """Rows that cannot be measured here, and the line that installs what they lack."""

    what: str
    hint: str


@dataclass
class Failed:
    """A row without numbers: its answers differed, or something broke."""

    row: str
    failed: str  # why, in one line


def in_turn(*groups: Iterable[Row | Skipped]) -> Iterator[Row | Skipped]:
    """The rows of all groups; where one lacks data or a peer, or breaks, the next goes on."""
    for group in groups:
        name = getattr(group, "__name__", "rows").strip("_")
        try:
            yield from group
        except (DataNotFoundError, ModuleNotFoundError) as error:
            yield Skipped(name, _hint(error))
        except Exception as error:  # of a peer, say: other rows are not to be lost
            yield Row(name, partial(_again, error), {}, lambda *_: None)


def _again(error: Exception) -> None:
    raise error


def _failed(name: str, error: Exception) -> Failed:
    traceback.print_exception(error, file=sys.stderr)
    words = str(error).strip().partition("\n")[0]
    return Failed(name, f"{type(error).__name__}{': ' if words else ''}{words}")


def _hint(error: DataNotFoundError | ModuleNotFoundError) -> str:
    """The line that installs what is missing, unless that is a part of ours."""
    if isinstance(error, DataNotFoundError | PeerNotFoundError):
        return str(error).partition("\n")[0]
    package = (error.name or "").partition(".")[0]
    if package in ("", "bench", "vademecum"):
        raise error
    outside = (Path(__file__).parent / "outside.txt").read_text()
    file = "outside.txt" if f"\n{package}==" in outside else "peers.txt"
    return f"{package} was not found: pip install --no-deps -r bench/{file}"


def measure(row: Row, *, budget: float = 60.0) -> Result | Skipped | Failed:
    """Check agreement, then time in turns: `row.rounds` or more, within the budget of seconds."""
    try:
        return _measure(row, budget)
    except (DataNotFoundError, ModuleNotFoundError) as error:
        return Skipped(row.name, _hint(error))
    except Exception as error:  # answers that differ among them
        return _failed(row.name, error)


def _measure(row: Row, budget: float) -> Result:
    calls = {"ours": row.ours, **row.peers}
    answers = {name: call() for name, call in calls.items()}  # also the warm-up
    for name in row.peers:
        row.agree(answers["ours"], answers[name])
    del answers
    memory = {name: _peak_megabytes(call) for name, call in calls.items()}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    start = time.perf_counter()
    while not _enough(len(seconds["ours"]), row.rounds, time.perf_counter() - start, budget):
        for name, call in calls.items():
            seconds[name].append(_seconds(call))
    return _result(row, seconds, memory)


def _enough(turns: int, rounds: int, spent: float, budget: float) -> bool:
    """Whether the turns taken so far are as many as there is need or time for."""
    if turns < min(rounds, 3):
        return False
    return spent > budget or turns >= MOST or (turns >= rounds and spent >= STEADY)


def _result(row: Row, seconds: dict[str, list[float]], memory: dict[str, float | None]) -> Result:
    median = {name: statistics.median(times) for name, times in seconds.items()}
    ratio = {
        name: statistics.median(p / o for p, o in zip(seconds[name], seconds["ours"], strict=True))
        for name in row.peers
    }
    best = min(row.peers, key=lambda name: median[name])
    ours_mb, peer_mb = memory["ours"], memory[best]
    return Result(
        row=row.name,
        ours_s=median["ours"],
        peer=best,
        peer_s=median[best],
        ratio=ratio[best],
        memory_ratio=_memory_ratio(ours_mb, peer_mb),
        ours_mb=ours_mb,
        peer_mb=peer_mb,
        limit=row.limit,
        peers={name: {"s": median[name], "ratio": ratio[name]} for name in row.peers},
    )


def _memory_ratio(ours: float | None, peer: float | None) -> float | None:
    """None where either is unknown, or both are too small to tell apart from noise."""
    if ours is None or peer is None or max(ours, peer) < 10:
        return None
    return max(peer, 1.0) / max(ours, 1.0)


def _seconds(call: Callable[[], Any]) -> float:
    gc.collect()
    once = _once(call)
    return _once(call) if once < SHORT else once


def _once(call: Callable[[], Any]) -> float:
    _synchronise()
    start = time.perf_counter()
    call()
    _synchronise()
    return time.perf_counter() - start


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _peak_megabytes(call: Callable[[], Any]) -> float | None:
    """The memory that a call takes on top of what was there: of the device, else resident."""
    gc.collect()
    elsewhere = getattr(call, "peak_megabytes", None)
    if elsewhere is not None:  # of a process of its own
        return elsewhere()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        _synchronise()
        return (torch.cuda.max_memory_allocated() - before) / 1e6
    try:
        _give_back()
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak (Linux)
        before = _resident("VmRSS")
        call()
        return max(_resident("VmHWM") - before, 0.0)
    except OSError:
        return None


def _give_back() -> None:
    """Give back freed memory that is still resident: what a call takes of it would not show."""
    with suppress(AttributeError, OSError):  # it is glibc's
        ctypes.CDLL(None).malloc_trim(0)


def _resident(field_name: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field_name):
            return int(line.split()[1]) * 1024 / 1e6
    raise OSError(f"no {field_name} in /proc/self/status")
