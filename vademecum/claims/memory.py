"""What is known of each claim, remembered between runs.

`vade check` and the atlas both add to one folder of the user's, with a file for each claim. A run
is a pure function of (claim, seed) and of the code and libraries behind it, so what is remembered
bears a digest of these: the sources of the claim's module and of every module of ours that it
imports, directly or not, and the versions of Python, torch and NumPy. Runs of the same digest add
up seed by seed; after any change what was remembered counts as absent. Of many seeds the verdicts
are kept, and the report of the lowest seed with each verdict. That a run was overdue says as much
of the machine as of the claim, and is not remembered.

It is a convenience: what cannot be read counts as absent, what cannot be written is forgotten.
"""

import contextlib
import hashlib
import json
import os
import platform
import re
import sys
import time
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import vademecum
from vademecum.claims.ledger import Claim
from vademecum.claims.report import VERDICTS, Report, from_json, to_json
from vademecum.files import write_atomically

__all__ = ["Known", "digest", "recall", "remember", "remembered_at"]

_IMPORT = re.compile(
    r"^[ \t]*(?:from (vademecum[\w.]*) import (\([^)]*\)|.*)|import (vademecum[\w.]*))",
    re.MULTILINE,
)
_DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


class Known(NamedTuple):
    """What is known of a claim: when it ran last, the verdict for each seed, some reports."""

    checked: str = ""
    verdicts: dict[int, str] = {}
    reports: tuple[Report, ...] = ()

    @property
    def verdict(self) -> str:
        """The worst verdict, or "not run"."""
        found = set(self.verdicts.values())
        return next((v for v in reversed(VERDICTS) if v in found), "not run")

    @property
    def report(self) -> Report | None:
        """The first report with that verdict."""
        return next((r for r in self.reports if r.verdict == self.verdict), None)

    def in_words(self) -> str:
        """Which seeds have which verdict.

        Example:
            >>> Known("", {0: "holds", 1: "holds", 2: "holds", 7: "blunt"}).in_words()
            'holds for seeds 0-2; blunt for seed 7'
        """
        said = []
        for verdict in VERDICTS:
            seeds = sorted(seed for seed, v in self.verdicts.items() if v == verdict)
            if seeds:
                said.append(f"{verdict} for seed{'s' * (len(seeds) > 1)} {_spans(seeds)}")
        return "; ".join(said) or "not run"

    def with_reports(self, reports: Iterable[Report]) -> "Known":
        """What is known after further runs of the same code; they go before what was known."""
        by_seed = {r.seed: r for r in self.reports} | {r.seed: r for r in reports}
        verdicts = self.verdicts | {r.seed: r.verdict for r in by_seed.values()}
        first: dict[str, Report] = {}
        for seed in sorted(by_seed):
            first.setdefault(by_seed[seed].verdict, by_seed[seed])
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return Known(now, dict(sorted(verdicts.items())), tuple(first.values()))


def _spans(seeds: list[int]) -> str:
    starts = [s for s in seeds if s - 1 not in seeds]
    ends = [s for s in seeds if s + 1 not in seeds]
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def remembered_at() -> Path:
    """The folder: below `$XDG_STATE_HOME`, or `~/.local/state` where that is not set."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "vademecum" / "checks"


def recall(claims: Iterable[Claim]) -> dict[str, Known]:
    """What is known of these claims as they are written now; those that never ran are left out."""
    found = {}
    for claim in claims:
        here = digest(claim.check.__module__)
        with contextlib.suppress(*_DAMAGE):
            text = (remembered_at() / f"{claim.id}.json").read_text(encoding="utf-8")
            content = json.loads(text)
            if content["digest"] == here:
                verdicts = {int(seed): verdict for seed, verdict in content["verdicts"].items()}
                reports = tuple(map(from_json, content["reports"]))
                found[claim.id] = Known(content["checked"], verdicts, reports)
    return found


def remember(claims: Iterable[Claim], reports: Iterable[Report]) -> None:
    """Add the reports of runs with the claims' own knobs to what is known."""
    by_claim: dict[str, list[Report]] = {}
    for report in reports:
        if not report.overdue:
            by_claim.setdefault(report.id, []).append(report)
    with contextlib.suppress(OSError), _alone():
        for claim in claims:
            if claim.id not in by_claim:
                continue
            before = recall([claim]).get(claim.id, Known())
            known = before.with_reports(by_claim[claim.id])
            content = known._asdict() | {
                "reports": [to_json(r) for r in known.reports],
                "digest": digest(claim.check.__module__),
            }
            path = remembered_at() / f"{claim.id}.json"
            write_atomically(path, json.dumps(content, allow_nan=False) + "\n")


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """No other process adds meanwhile, where files can be locked."""
    remembered_at().mkdir(parents=True, exist_ok=True)
    with (remembered_at() / ".lock").open("w") as lock:
        with contextlib.suppress(ImportError):
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@cache
def digest(module: str) -> str:
    """A digest of a module, of all modules of ours that it needs, and of the libraries below.

    It is taken once, so ask before a run: the sources may change while it lasts.

    Example:
        >>> digest("vademecum.errors") == digest("vademecum.files")
        False
    """
    import numpy
    import torch

    parts = [platform.python_version(), torch.__version__, numpy.__version__]
    needed, waiting = set(), [module]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += _source(name)[1]
    parts += [f"{name} {_source(name)[0]}" for name in sorted(needed)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@cache
def _source(module: str) -> tuple[str, tuple[str, ...]]:
    """The digest of a module's source, and the modules of ours that it imports."""
    path = _path(module)
    text = path.read_text(encoding="utf-8") if path else ""
    return hashlib.sha256(text.encode()).hexdigest(), tuple(dict.fromkeys(_imports(text)))


def _imports(text: str) -> Iterator[str]:
    """Every module of ours that a text may import; a line of a docstring does no harm.

    To parse all sources would take a second at each start.
    """
    for base, names, plain in _IMPORT.findall(text):
        for name in (plain, base, *(f"{base}.{n}" for n in re.findall(r"\w+", names))):
            if name.startswith("vademecum.") and _path(name):
                yield name


@cache
def _path(module: str) -> Path | None:
    """The file of a module of ours, or of one from elsewhere that states a claim."""
    top, _, rest = module.partition(".")
    if top != "vademecum":
        return Path(sys.modules[module].__file__ or "")
    stem = Path(vademecum.__file__).parent.joinpath(*rest.split("."))
    found = (stem.with_suffix(".py"), stem / "__init__.py")
    return next((path for path in found if path.is_file()), None)
