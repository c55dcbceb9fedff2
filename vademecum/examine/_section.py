"""Running a section: what it found is kept, whatever ends it.

A section is a generator of measurements, a sentence and a drawing. What it has yielded before time
ran out or an error came stays; a measurement that comes again replaces the one before it, as an
accurate one does a rough one.
"""

import importlib
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from vademecum.examine._clock import Clock, OutOfTime
from vademecum.examine._study import Study, named_seed
from vademecum.examine.dossier import Measurement, Section, Status
from vademecum.models import out_of_memory
from vademecum.randomness import own_randomness

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "Drawing",
    "Item",
    "NotApplicable",
    "Plan",
    "Sentence",
    "optional",
    "run_section",
    "wants_time",
]

_NOTES = 5  # warnings that are told, at most
_OVER = "the time was over before it came to its end"
_SMALLER = "for want of time"
_REENTRANT = "When use_reentrant=True"  # as torch begins what it says of such checkpoints
_REENTRANT_WORDS = (
    "because it uses checkpoints with use_reentrant=True, through which torch takes no gradients"
    " of a few tensors: set it to False"
)


class NotApplicable(Exception):
    """The section does not apply to such a network or such data, because of what is said."""


@contextmanager
def optional(what: str) -> Iterator[None]:
    """Go on without a part that an instrument refuses, and note why.

    Args:
        what: The part, in words.
    """
    try:
        yield
    except (ValueError, RuntimeError) as error:
        if not isinstance(error, ValueError) and not _refusal(error):
            raise
        warnings.warn(f"{what} was left out: {_line(error)}", stacklevel=3)


class Sentence(NamedTuple):
    """What a section means for the user of this network, in one sentence or two."""

    text: str


class Drawing(NamedTuple):
    """A picture, drawn when the section has ended: a function without arguments."""

    draw: "Callable[[], Figure]"


Item = Measurement | Sentence | Drawing
"""What a section yields."""


Run = Callable[[Study, Clock], Iterator[Item]]
"""A section: a generator function."""


class Plan:
    """A section to be run.

    Args:
        name: Its name.
        run: The section; by default the function of its name in `sections`, loaded when needed.
        cost: What it takes, relative to others, where there is time enough for all.
        claims: Claims of the course that stand behind it; by default those that its module names.
        least: Seconds that it has at least, if there are so many left for all.
    """

    def __init__(
        self,
        name: str,
        run: Run | None = None,
        cost: float = 1.0,
        claims: tuple[str, ...] | None = None,
        *,
        least: float = 0.0,
    ):
        self.name, self.cost, self.least = name, cost, least
        self._run, self._claims = run, claims

    @property
    def run(self) -> Run:
        """The section."""
        return self._run or getattr(self._module(), self.name)

    @property
    def claims(self) -> tuple[str, ...]:
        """Claims of the course that stand behind it."""
        return self._module().CLAIMS if self._claims is None else self._claims

    def _module(self) -> Any:
        return importlib.import_module(f"vademecum.examine.sections.{self.name}")


class _Found:
    """What a section has yielded so far."""

    def __init__(self, name: str, note: "Callable[[str, Item], None] | None"):
        self.name, self.note = name, note
        self.measurements: dict[str, Measurement] = {}
        self.sentence, self.drawing = "", None

    def add(self, item: Item) -> None:
        if isinstance(item, Sentence):
            self.sentence = item.text
        elif isinstance(item, Drawing):
            self.drawing = item
        else:
            if not item.name.isidentifier() or item.name in Section.__dataclass_fields__:
                raise ValueError(f"a measurement cannot be called {item.name!r}")
            item = _plain(item)
            self.measurements[item.name] = item
        if self.note is not None and not isinstance(item, Drawing):
            self.note(self.name, item)


def run_section(
    plan: Plan,
    study: Study,
    clock: Clock,
    *,
    note: "Callable[[str, Item], None] | None" = None,
) -> Section:
    """Run a section to its end, or as far as it comes.

    Args:
        plan: The section.
        study: The network and its data.
        clock: Its time.
        note: Called with the section's name and each measurement or sentence when it comes.
    """
    start = time.perf_counter()
    found = _Found(plan.name, note)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        status, reason, trace = _tried(plan, study, clock, found)
        if status == "failed" and reason == "memory":
            with study.smaller():
                status, reason, trace = _tried(plan, study, clock, found)
        if status == "failed" and found.measurements:
            status = "partly"
        figure, trouble = _drawn(found.drawing)
    notes = dict.fromkeys(_line(w.message) for w in said)
    return Section(
        plan.name, status, tuple(found.measurements.values()), found.sentence,
        plan.claims, figure, round(time.perf_counter() - start, 3), reason, trace + trouble,
        tuple(notes)[:_NOTES],
    )  # fmt: skip


def wants_time(section: Section) -> bool:
    """Whether a section would have found more in more time."""
    return section.reason == _OVER or section.reason.startswith(_SMALLER)


def _tried(plan: Plan, study: Study, clock: Clock, found: _Found) -> tuple[Status, str, str]:
    """How far a run came, why, and the traceback."""
    try:
        with (
            own_randomness(named_seed(study.seed, plan.name)),
            clock.watching(),
            closing(_generator(plan, study, clock)) as items,
        ):
            for item in items:
                found.add(item)
    except NotApplicable as error:
        return "not applicable", str(error), ""
    except OutOfTime:
        return ("partly" if found.measurements else "out of time"), _OVER, ""
    except Exception as error:  # whatever a network's own code raises
        if _refusal(error) and not found.measurements:
            says = f"because an instrument says: {_line(error)}"
            says = _REENTRANT_WORDS if str(error).startswith(_REENTRANT) else says
            return "not applicable", says, traceback.format_exc()
        if out_of_memory(error):
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            return "failed", "memory", traceback.format_exc()
        return "failed", f"{type(error).__name__}: {_line(error)}", traceback.format_exc()
    if clock.cut:
        return ("partly" if found.measurements else "out of time"), f"{_SMALLER}: {clock.cut}", ""
    return "measured", "", ""


def _generator(plan: Plan, study: Study, clock: Clock):
    clock.check()
    yield from plan.run(study, clock)


def _refusal(error: Exception) -> bool:
    """Whether it is an instrument's own refusal, in words, and not an error of the network."""
    if isinstance(error, RuntimeError):  # of checkpoints, say, that have no second derivative
        return str(error).startswith(("model must ", _REENTRANT))
    frames = traceback.extract_tb(error.__traceback__)
    place = frames[-1].filename.replace("\\", "/") if frames else ""
    ours = "/vademecum/" in place and "/vademecum/examine/" not in place
    return isinstance(error, ValueError) and ours


def _drawn(drawing: Drawing | None) -> tuple[str | None, str]:
    """The picture as SVG, and the traceback if it could not be drawn."""
    if drawing is None:
        return None, ""
    from vademecum.canvas import styled, svg

    try:
        return svg(styled(drawing.draw)).decode(), ""
    except Exception:  # a picture is no reason to lose numbers
        return None, traceback.format_exc()


def _plain(item: Measurement) -> Measurement:
    """A measurement of plain numbers, from tensors with one entry or lists of them."""
    value, error = _number(item.value), item.error
    if isinstance(error, tuple | list):
        error = (float(error[0]), float(error[1]))
    elif error is not None:
        error = float(error)
    each = tuple(float(f"{float(v):.9g}") for v in item.each)  # which are many, and no exact ones
    n = None if item.n is None else int(item.n)
    return item._replace(value=value, error=error, n=n, each=each)


def _number(value: object):
    if isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    return tuple(map(_number, value)) if isinstance(value, list | tuple) else float(value)  # pyright: ignore


def _line(error: object) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
