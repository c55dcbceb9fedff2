"""Ask instruments about subjects, and say of each answer what it is.

| outcome | what it means |
|---|---|
| right | the oracle says the same |
| refused | a refusal that is expected of this model, with its reason |
| unexpected | any other refusal |
| wrong | the oracle says otherwise |
| crash | an error that is no refusal: not a `ValueError` that the library itself raised |
| oracle | there is no telling, since the oracle itself fails |
| changed | the model, its data, torch's settings or a random state are not what they were |
"""

import re
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

import vademecum
from bench.outside.attacked import ATTACKED
from bench.outside.cases import EXAMPLES, KINKS, Case, Subject
from bench.outside.certified import CERTIFIED, UNKNOWN
from bench.outside.curvature import CURVATURE
from bench.outside.derivatives import DERIVATIVES
from bench.outside.landscapes import LANDSCAPES
from bench.outside.lazy import LAZY
from bench.outside.measures import MEASURES
from bench.outside.on_graphs import ON_GRAPHS
from bench.outside.oracles import Oracle
from bench.outside.pieces import PIECES
from bench.outside.posteriors import POSTERIORS
from bench.outside.scales import SCALES
from bench.outside.sensitive import SENSITIVE
from bench.outside.signals import SIGNALS
from bench.outside.state import can_be_saved, differences, own_output, state_of
from bench.outside.symmetries import SYMMETRIES
from bench.outside.tangents import TANGENTS
from bench.outside.texts import TEXTS
from bench.outside.widths import WIDTHS
from vademecum.models import SlowPathWarning

__all__ = ["AFTERWARDS", "INSTRUMENTS", "Cell", "ask", "cells"]

INSTRUMENTS = {
    **DERIVATIVES, **CURVATURE, **MEASURES, **LANDSCAPES, **PIECES, **SYMMETRIES, **ON_GRAPHS,
    **SIGNALS, **SCALES, **TEXTS, **POSTERIORS, **TANGENTS, **LAZY,
    **WIDTHS, **ATTACKED, **SENSITIVE, **CERTIFIED,
}  # fmt: skip
"""What asks each instrument, by its name."""
AFTERWARDS = "afterwards"
"""The column for what a model does when all instruments have asked it."""
_PACKAGE = str(Path(vademecum.__file__).parent)


@dataclass
class Cell:
    """One answer."""

    model: str
    instrument: str
    outcome: str
    why: str = ""
    slow: bool = False
    seconds: float = 0.0

    @property
    def bad(self) -> bool:
        """Whether it must not be."""
        return self.outcome not in ("right", "refused")


def cells(case: Case, instruments: list[str]) -> Iterator[Cell]:
    """The row of a case: every instrument that applies, then what the model itself does."""
    subject, oracle = case.subject(), Oracle(case)
    saved = can_be_saved(subject.model)
    for name in instruments:
        if case.not_asked(name, subject) is not None:
            continue
        cell = ask(case, name, subject, oracle)
        yield cell
        if cell.outcome == "changed":
            subject = case.subject()
    yield _afterwards(case, subject, saved)


def ask(case: Case, name: str, subject: Subject, oracle: Oracle) -> Cell:
    """Ask one instrument, and look whether all is as it was."""
    start, before = time.perf_counter(), state_of(subject)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        outcome, why = _outcome(case, name, subject, oracle)
    slow = any(issubclass(w.category, SlowPathWarning) for w in caught)
    changed = differences(before, state_of(subject))
    if changed and outcome in ("right", "refused", "unexpected"):
        outcome, why = "changed", _summary(changed)
    return Cell(case.name, name, outcome, why, slow, time.perf_counter() - start)


def _summary(changed: list[str]) -> str:
    """What changed, the same attribute of several modules once."""
    kinds = Counter(
        re.sub(r"(attribute|buffer|parameter) (.*\.)?", r"\1 ", name) for name in changed
    )
    return ", ".join(f"{kind} ({n} times)" if n > 1 else kind for kind, n in kinds.items())


def _outcome(case: Case, name: str, subject: Subject, oracle: Oracle) -> tuple[str, str]:
    try:
        complaints = [text for text in INSTRUMENTS[name](subject, oracle) if text]
    except Exception as error:
        return _failure(case, name, error) if _ours(error) else ("oracle", repr(error)[:200])
    return ("wrong", "; ".join(complaints[:3])) if complaints else ("right", "")


def _ours(error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return any(frame.filename.startswith(_PACKAGE) for frame in frames)


def _failure(case: Case, name: str, error: Exception) -> tuple[str, str]:
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = str(error).strip().partition("\n")[0]
    kinds = (ValueError, AttributeError) if name == "tape" else (ValueError,)
    if not isinstance(error, kinds) or not last.filename.startswith(_PACKAGE):
        where = f"{Path(last.filename).name}:{last.lineno}"
        return "crash", f"{type(error).__name__} in {where}: {text}"
    words = case.refusal(name)
    if words is None and name in KINKS and not case.kinks:
        words = "piecewise"
    if words is None and name in (*EXAMPLES, *ATTACKED, *SENSITIVE) and not case.separate:
        words = "example"
    if words is None and name == "infinite_width":
        words = "limit of infinite width is known|one vector for each example|layer with weights"
        words += "|traceable|one example at a time"
    if words is None and name in CERTIFIED:
        words = UNKNOWN
    if words is None and name == "tape":
        words = "tape"
    expected = words is not None and re.search(words, str(error)) is not None
    return ("refused" if expected else "unexpected"), text


def _afterwards(case: Case, subject: Subject, saved: bool) -> Cell:
    """Whether the model can be saved as before, and gives what an untouched twin gives."""
    why = [] if can_be_saved(subject.model) == saved else ["torch.save fails"]
    for mine, other in zip(own_output(subject), own_output(case.subject()), strict=True):
        if not torch.equal(mine.nan_to_num(), other.nan_to_num()):
            gap = float((mine - other).norm() / other.norm())
            why.append(f"its own output differs by {gap:.2g}")
    return Cell(case.name, AFTERWARDS, "changed" if why else "right", ", ".join(why))
