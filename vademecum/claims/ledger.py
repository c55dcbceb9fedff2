r"""Executable claims: what the course states, and a machine check of it.

A claim is a generator function. Its **docstring** is the statement, its **body** yields evidence,
and its **keyword arguments** are the knobs of the experiment; their defaults are what CI runs:

    @claim(by="sampling", sources=("A-042",), full={"pairs": 10**6})
    def relu_is_lipschitz(slope: float = 1.0, pairs: int = 100):
        r'''ReLU is 1-Lipschitz: $|\sigma(x) - \sigma(y)| \le |x - y|$.'''
        x, y = torch.randn(2, pairs)
        yield at_most((x.relu() - y.relu()).abs(), slope * (x - y).abs())

    relu_is_lipschitz.foil("no smaller constant will do", slope=0.9)

A check is the conjunction of its evidence. The claim *holds* if all of it holds. A *foil* is the
same check with a knob set wrong, and must be refuted: or the check is too blunt to tell truth from
error. An *erratum* is a foil that somebody printed. A run is a pure function of (id, seed, knobs),
which is all it takes to list, filter, draw, test and parallelise claims.
"""

import fnmatch
import hashlib
import importlib
import inspect
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from threadpoolctl import threadpool_limits  # comes with scikit-learn

from vademecum import ROOMS
from vademecum.claims.evidence import Evidence
from vademecum.claims.report import Report
from vademecum.randomness import own_randomness

__all__ = ["By", "Claim", "Foil", "claim", "select"]

By = Literal["witness", "exhaustion", "identity", "sampling", "fit", "training"]
"""What the evidence is worth: the first two are proofs, the last three never are."""

Check = Callable[..., Iterator[Evidence]]


@dataclass(frozen=True, slots=True)
class Foil:
    """A false variant of a claim: the same check with wrong knobs; an erratum if it was printed."""

    why: str
    knobs: dict[str, Any]
    where: str = ""  # the printed statement's number, such as "B-049"
    printed: str = ""
    right: str = ""
    weight: Literal["hard", "soft"] = "hard"


@dataclass(slots=True, eq=False)
class Claim:
    """A registered check; `budget` is the CPU seconds its default knobs promise to take, warm."""

    id: str
    check: Check
    by: By
    sources: tuple[str, ...]
    covers: tuple[str, ...]
    budget: float
    full: dict[str, Any]
    foils: list[Foil] = field(default_factory=list)

    @property
    def room(self) -> str:
        """The topic that the claim belongs to."""
        return self.id.partition(".")[0]

    @property
    def statement(self) -> str:
        """The docstring: the claim with its hypotheses, then a proof sketch or a source."""
        return inspect.getdoc(self.check) or ""

    @property
    def title(self) -> str:
        """The first line of the statement."""
        return self.statement.partition("\n")[0]

    @property
    def knobs(self) -> dict[str, Any]:
        """The knobs of the experiment with their defaults."""
        return {k: p.default for k, p in inspect.signature(self.check).parameters.items()}

    @property
    def errata(self) -> list[Foil]:
        """The foils that somebody printed."""
        return [foil for foil in self.foils if foil.printed]

    def refutations(self, report: Report) -> Iterator[tuple[Foil, Evidence | None]]:
        """Each foil with its counterexample in a report; None where it survived, or never ran."""
        found = [*report.counterexamples, *[None] * len(self.foils)]
        return zip(self.foils, found, strict=False)

    def foil(self, why: str, **knobs: Any) -> None:
        """Add a wrong variant, which the same check must refute."""
        self.foils.append(Foil(why, self._known(knobs)))

    def erratum(
        self,
        where: str,
        *,
        printed: str,
        right: str,
        why: str,
        weight: Literal["hard", "soft"] = "hard",
        **knobs: Any,
    ) -> None:
        """Add a wrong variant that a sheet prints: `where`, in which form, and the right one."""
        self.foils.append(Foil(why, self._known(knobs), where, printed, right, weight))

    def run(self, seed: int = 0, *, full: bool = False, **knobs: Any) -> Report:
        """Collect all evidence, and a counterexample to each foil from the same random numbers.

        A check that raises gives a report too, whose verdict is "broken".
        """
        knobs = (self.full if full else {}) | self._known(knobs)
        key, start = f"{self.id}:{seed}", time.process_time()
        evidence: list[Evidence] = []
        counterexamples: list[Evidence | None] = []
        error = ""
        try:
            with laboratory(key):
                evidence.extend(self.check(**knobs))
            for foil in self.foils:
                with laboratory(key):
                    wrong = self.check(**knobs | foil.knobs)
                    counterexamples.append(next((e for e in wrong if e.refutes), None))
        except Exception:
            error = traceback.format_exc()
        seconds = time.process_time() - start
        return Report(self.id, seed, tuple(evidence), tuple(counterexamples), error, False, seconds)

    def _known(self, knobs: dict[str, Any]) -> dict[str, Any]:
        for name in knobs:
            if name not in self.knobs:
                raise TypeError(
                    f"{self.id} has no knob {name!r}; its knobs: {', '.join(self.knobs)}"
                )
        return knobs


@contextmanager
def laboratory(key: str) -> Iterator[None]:
    """One thread, double precision, a seed made from a name: a new claim moves no old number."""
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:7])
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    with own_randomness(seed), threadpool_limits(1):
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            torch.set_num_threads(threads)


LEDGER: dict[str, Claim] = {}
"""All claims registered so far, by id."""


def claim(
    *,
    by: By,
    sources: tuple[str, ...] = (),
    covers: tuple[str, ...] = (),
    budget: float = 1.0,
    full: Mapping[str, Any] | None = None,
) -> Callable[[Check], Claim]:
    """Register a generator function as the claim `<room>.<function>`.

    Args:
        by: What its evidence is worth.
        sources: Where the sheets print it.
        covers: Ids of further statements of the course that this check settles too.
        budget: The CPU seconds that a warm run with default knobs takes at most.
        full: Knobs of a thorough run.
    """
    if by not in get_args(By):
        raise ValueError(f"by must be one of {', '.join(get_args(By))}, got {by!r}")

    def register(check: Check) -> Claim:
        _insist_on_form(check)
        name = f"{_room(check.__module__)}.{check.__name__}"
        if name in LEDGER and LEDGER[name].check.__module__ != check.__module__:
            raise ValueError(f"two claims are called {name}")
        LEDGER[name] = Claim(name, check, by, sources, covers, budget, {})
        LEDGER[name].full |= LEDGER[name]._known(dict(full or {}))
        return LEDGER[name]

    return register


def _insist_on_form(check: Check) -> None:
    if not check.__doc__:
        raise TypeError(f"{check.__qualname__} has no docstring, so it states nothing")
    if not inspect.isgeneratorfunction(inspect.unwrap(check)):
        raise TypeError(f"{check.__qualname__} yields no evidence: a check is a generator function")
    for name, knob in inspect.signature(check).parameters.items():
        if knob.default is knob.empty or name in ("seed", "full"):
            raise TypeError(f"knob {name!r} of {check.__qualname__} needs a default, or other name")


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
