r"""Executable claims: what the course states, and a machine check of it.

A claim is a generator function. Its **docstring** is the statement, its **body** yields evidence,
and its **keyword arguments** are the knobs of the experiment; their defaults are what CI runs:

    @claim(by="sampling", sources=("A-042",), short=r"|\sigma(x) - \sigma(y)| \le |x - y|")
    def relu_is_lipschitz(slope: float = 1.0, pairs: int = 100):
        r'''ReLU is 1-Lipschitz: $|\sigma(x) - \sigma(y)| \le |x - y|$.

        Knobs:
            slope: The Lipschitz constant.
            pairs: How many pairs $x, y$ are drawn.
        '''
        x, y = torch.randn(2, pairs)
        yield at_most("distance of the images", (x.relu() - y.relu()).abs(), slope * (x - y).abs())

    relu_is_lipschitz.foil("no smaller constant will do", slope=0.9)

A check is the conjunction of its evidence. The claim *holds* if all of it holds. A *foil* is the
same check with a knob set wrong, and must be refuted: or the check is too blunt to tell truth from
error. An *erratum* is a foil that somebody printed. A run is a pure function of (id, seed, knobs),
which is all it takes to list, filter, draw, test and parallelise claims.
"""

import fnmatch
import importlib
import inspect
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from vademecum import ROOMS
from vademecum.claims.evidence import Evidence
from vademecum.claims.knobs import check_knobs, explained_knobs, without_knobs
from vademecum.claims.laboratory import laboratory
from vademecum.claims.report import Report
from vademecum.errors import UsageError

__all__ = ["By", "Claim", "Foil", "Weight", "claim", "select"]

By = Literal["witness", "exhaustion", "identity", "sampling", "fit", "training"]
"""What the evidence is worth: the first two are proofs, the last three never are."""

Weight = Literal["hard", "scan", "soft"]
"""Of an erratum: false whatever the scan did; false as scanned, where a lost mark would mend it; or
a matter of wording."""

Check = Callable[..., Iterator[Evidence]]
_SHORT = 120  # characters that a line of the printed sheet holds


@dataclass(frozen=True, slots=True)
class Foil:
    """A false variant of a claim: the same check with wrong knobs; an erratum if it was printed."""

    why: str
    knobs: dict[str, Any]
    where: str = ""  # the printed statement's number, such as "B-049"
    printed: str = ""
    right: str = ""
    weight: Weight = "hard"
    refuted_by: str = ""  # the evidence that must refute it; any by default
    close: str = ""  # why its counterexample is nearer than a thousand tolerances

    def counterexample(self, evidence: Iterator[Evidence]) -> Evidence | None:
        """The first evidence that refutes it, or None if it survives."""
        return next((e for e in evidence if e.refutes and self.refuted_by in ("", e.name)), None)


@dataclass(slots=True, eq=False)
class Claim:
    """A registered check; `budget` is the CPU seconds its default knobs promise to take, warm."""

    id: str
    check: Check
    by: By
    sources: tuple[str, ...] = ()
    covers: tuple[str, ...] = ()
    budget: float = 1.0
    full: dict[str, Any] = field(default_factory=dict)
    short: str = ""
    foils: list[Foil] = field(default_factory=list)

    @property
    def room(self) -> str:
        """The topic that the claim belongs to."""
        return self.id.partition(".")[0]

    @property
    def statement(self) -> str:
        """The docstring: the claim with its hypotheses, then a proof sketch or a source."""
        return without_knobs(inspect.getdoc(self.check) or "")

    @property
    def title(self) -> str:
        """The first line of the statement."""
        return self.statement.partition("\n")[0]

    @property
    def knobs(self) -> dict[str, Any]:
        """The knobs of the experiment with their defaults."""
        return {k: p.default for k, p in inspect.signature(self.check).parameters.items()}

    @property
    def explained(self) -> dict[str, str]:
        """What the docstring says of each knob."""
        return explained_knobs(inspect.getdoc(self.check) or "")

    @property
    def errata(self) -> list[Foil]:
        """The foils that somebody printed."""
        return [foil for foil in self.foils if foil.printed]

    def refutations(self, report: Report) -> Iterator[tuple[Foil, Evidence | None]]:
        """Each foil with its counterexample in a report; None where it survived, or never ran."""
        found = [*report.counterexamples, *[None] * len(self.foils)]
        return zip(self.foils, found, strict=False)

    def foil(self, why: str, *, refuted_by: str = "", close: str = "", **knobs: Any) -> None:
        """Add a wrong variant, which the same check must refute.

        Args:
            why: What is wrong with it.
            refuted_by: The name of the evidence that must refute it; any evidence by default.
            close: Why its counterexample is nearer than a thousand tolerances, if it is.
            knobs: What is set wrong.
        """
        self.foils.append(Foil(why, self._known(knobs), refuted_by=refuted_by, close=close))

    def erratum(
        self,
        where: str,
        *,
        printed: str,
        right: str,
        why: str,
        weight: Weight = "hard",
        refuted_by: str = "",
        close: str = "",
        **knobs: Any,
    ) -> None:
        """Add a wrong variant that a sheet prints: `where`, in which form, and the right one."""
        if weight not in get_args(Weight):
            raise ValueError(f"weight must be one of {', '.join(get_args(Weight))}, got {weight!r}")
        known = self._known(knobs)
        self.foils.append(Foil(why, known, where, printed, right, weight, refuted_by, close))

    def run(self, seed: int = 0, *, full: bool = False, **knobs: Any) -> Report:
        """Collect all evidence, and a counterexample to each foil from the same random numbers.

        Foils differ from the claim's own knobs, not from those set here, by what makes them wrong.
        A check that raises gives a report too, whose verdict is "broken".

        Raises:
            TypeError: If there is no such knob.
            UsageError: If a knob cannot take the value.
        """
        own = self.full if full else {}
        knobs = own | self.accept(knobs)
        key, start = f"{self.id}:{seed}", time.process_time()
        evidence: list[Evidence] = []
        counterexamples: list[Evidence | None] = []
        error = ""
        try:
            with laboratory(key):
                evidence.extend(self.check(**knobs))
            for foil in self.foils:
                with laboratory(key):
                    counterexamples.append(foil.counterexample(self.check(**own | foil.knobs)))
        except UsageError:  # of a knob that only the check itself can judge
            raise
        except Exception:
            error = traceback.format_exc()
        seconds = time.process_time() - start
        return Report(self.id, seed, tuple(evidence), tuple(counterexamples), error, False, seconds)

    def accept(self, knobs: dict[str, Any]) -> dict[str, Any]:
        """The knobs, if there are such and they can take these values; raises as `run` does."""
        set_elsewhere = [self.full, *(foil.knobs for foil in self.foils)]
        return check_knobs(self._known(knobs), self.check, set_elsewhere)

    def beside_foil(self, index: int, seed: int = 0) -> tuple[Report, Report]:
        """All evidence for the claim and all for one of its foils, from the same random numbers."""
        return self._report(seed, {}), self._report(seed, self.foils[index].knobs)

    def _report(self, seed: int, knobs: Mapping[str, Any]) -> Report:
        evidence, error, start = [], "", time.process_time()
        try:
            with laboratory(f"{self.id}:{seed}"):
                evidence.extend(self.check(**knobs))
        except Exception:
            error = traceback.format_exc()
        spent = time.process_time() - start
        return Report(self.id, seed, tuple(evidence), error=error, seconds=spent)

    def _known(self, knobs: dict[str, Any]) -> dict[str, Any]:
        for name in knobs:
            if name not in self.knobs:
                raise TypeError(
                    f"{self.id} has no knob {name!r}; its knobs: {', '.join(self.knobs)}"
                )
        return knobs


LEDGER: dict[str, Claim] = {}
"""All claims registered so far, by id."""


def claim(
    *,
    by: By,
    sources: tuple[str, ...] = (),
    covers: tuple[str, ...] = (),
    budget: float = 1.0,
    full: Mapping[str, Any] | None = None,
    short: str = "",
) -> Callable[[Check], Claim]:
    """Register a generator function as the claim `<room>.<function>`.

    Args:
        by: What its evidence is worth.
        sources: Where the sheets print it.
        covers: Ids of further statements of the course that this check settles too.
        budget: The CPU seconds that a warm run with default knobs takes at most.
        full: Knobs of a thorough run.
        short: The statement as one line of TeX for the printed sheet, at most 120 characters;
            empty where a line of maths would say nothing.
    """
    if by not in get_args(By):
        raise ValueError(f"by must be one of {', '.join(get_args(By))}, got {by!r}")
    if len(short) > _SHORT or "\n" in short:
        raise ValueError(f"short must be one line of at most {_SHORT} characters, got {short!r}")

    def register(check: Check) -> Claim:
        _insist_on_form(check)
        name = f"{_room(check.__module__)}.{check.__name__}"
        if name in LEDGER and LEDGER[name].check.__module__ != check.__module__:
            raise ValueError(f"two claims are called {name}")
        LEDGER[name] = Claim(name, check, by, sources, covers, budget, {}, short)
        LEDGER[name].full |= LEDGER[name]._known(dict(full or {}))
        return LEDGER[name]

    return register


def _insist_on_form(check: Check) -> None:
    name, knobs = check.__qualname__, inspect.signature(check).parameters
    if not check.__doc__:
        raise TypeError(f"{name} has no docstring, so it states nothing")
    if not inspect.isgeneratorfunction(inspect.unwrap(check)):
        raise TypeError(f"{name} yields no evidence: a check is a generator function")
    for knob, parameter in knobs.items():
        if parameter.default is parameter.empty or knob in ("seed", "full"):
            raise TypeError(f"knob {knob!r} of {name} needs a default, or other name")
    explained = explained_knobs(inspect.getdoc(check) or "")
    if list(explained) != list(knobs):
        raise TypeError(
            f"the section Knobs: of {name} must explain {', '.join(knobs) or 'nothing'}, in this"
            f" order, and explains {', '.join(explained) or 'nothing'}"
        )


def _room(module: str) -> str:
    parts = module.split(".")
    return parts[parts.index("claims") - 1] if "claims" in parts[1:] else parts[-1]


def select(
    pattern: str = "*", *, by: By | None = None, budget: float = float("inf")
) -> list[Claim]:
    """The claims of the course whose id matches, cheapest first, as many as fit into `budget`.

    Args:
        pattern: A shell pattern; it matches the id, or the id of a statement covered.
        by: Only claims with this kind of evidence.
        budget: The CPU seconds that all of them together may take.
    """
    for room in ROOMS:
        if fnmatch.fnmatch(room, pattern.partition(".")[0]):
            importlib.import_module(f"vademecum.{room}.claims")
    chosen, spent = [], 0.0
    for c in sorted(LEDGER.values(), key=lambda c: (c.budget, c.id)):
        wanted = any(fnmatch.fnmatch(name, pattern) for name in (c.id, *c.covers))
        if c.room in ROOMS and wanted and by in (None, c.by) and spent + c.budget <= budget:
            chosen.append(c)
            spent += c.budget
    return chosen
