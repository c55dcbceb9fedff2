"""The laws of claims: hold for every seed, be able to fail, and keep to the budget.

| law | a claim keeps it if |
|---|---|
| statement | it says something, with a title line |
| foil | it has at least one foil |
| holds | its evidence holds for every seed |
| refutes | it refutes each of its foils, for every seed |
| clear | its counterexamples fail by a thousand tolerances; by two if random or said to be close |
| reproduces | the same seed gives the same evidence, up to the rounding of matrix products |
| budget | its cheapest run, the first left out, takes at most thrice its budget of CPU time |
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from math import isclose, isnan

from vademecum.claims import Claim, Report
from vademecum.testing import laws

__all__ = ["CLAIM_LAWS", "check_claim"]

FAR, CLOSE = 1000.0, 2.0
"""How many tolerances off a counterexample is at least, and where it may be close."""

SLACK = 3.0
"""How many times its budget a claim may take: a slow or busy machine is no fault of the claim's."""


def check_claim(
    claim: Claim,
    seeds: Iterable[int] = range(20),
    *,
    skip: Mapping[str, str] | None = None,
    again: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> tuple[str, ...]:
    """Hold a claim to its laws; it runs once for each seed, and once more for the first.

    Args:
        claim: Any claim, registered or not.
        seeds: The seeds for which it must hold.
        skip: Reasons by the names of laws not to check.
        again: The context of the runs after those of all seeds, as one without type checks at run
            time, which cost more than many a claim.

    Returns:
        The names of the laws that were checked and hold.

    Raises:
        BrokenLaw: At the first law that does not hold.
        ValueError: If there are no seeds, or `skip` names an unknown law.

    Example:
        >>> from vademecum.claims import Claim, at_most
        >>> def tautology():
        ...     '''One is at most two.'''
        ...     yield at_most("one", 1, 2)
        >>> check_claim(Claim("logic.tautology", tautology, "witness"))
        Traceback (most recent call last):
        vademecum.testing.laws.BrokenLaw: logic.tautology breaks the law 'foil': it has no foil, ...
    """
    trial = _Trial(claim, tuple(seeds), again)
    if not trial.seeds:
        raise ValueError("seeds must not be empty")
    return laws.enforce(CLAIM_LAWS, trial, claim.id, skip)


@dataclass
class _Trial:
    claim: Claim
    seeds: tuple[int, ...]
    context: Callable[[], AbstractContextManager[object]]

    @cached_property
    def reports(self) -> list[Report]:
        return [self.claim.run(seed) for seed in self.seeds]

    @cached_property
    def again(self) -> Report:
        """One more run of the first seed, warm."""
        return self.once_more()

    def once_more(self) -> Report:
        with self.context():
            return self.claim.run(self.seeds[0])


def _statement(trial: _Trial) -> Iterator[str]:
    if not trial.claim.title.strip():
        yield "its docstring has no title line"


def _foil(trial: _Trial) -> Iterator[str]:
    if not trial.claim.foils:
        yield "it has no foil, so nothing shows that it could fail"


def _holds(trial: _Trial) -> Iterator[str]:
    for report in trial.reports:
        if report.verdict not in ("holds", "blunt"):
            yield str(report)


def _refutes(trial: _Trial) -> Iterator[str]:
    for report in trial.reports:
        survivors = [
            foil.why
            for foil, counterexample in trial.claim.refutations(report)
            if counterexample is None
        ]
        if survivors:
            yield f"seed {report.seed} does not refute {'; '.join(survivors)}"


def _clear(trial: _Trial) -> Iterator[str]:
    for report in trial.reports:
        for foil, found in trial.claim.refutations(report):
            enough = CLOSE if foil.close or (found and found.sampled) else FAR
            if found and found.excess < enough:
                yield (
                    f"seed {report.seed} refutes {foil.why!r} by {found.excess:.3g} tolerances,"
                    f" not by {enough:g}: {found}"
                )


def _reproduces(trial: _Trial) -> Iterator[str]:
    first, again = trial.reports[0], trial.again
    if not _same(first, again):
        yield f"seed {first.seed} gives {first.tightest} once and {again.tightest} again"


def _same(one: Report, other: Report) -> bool:
    """Equal up to rounding, which in BLAS depends on where arrays happen to lie in memory."""
    pieces = [(*report.evidence, *report.counterexamples) for report in (one, other)]
    return len(pieces[0]) == len(pieces[1]) and all(
        (a is None and b is None)
        or (
            (a is not None and b is not None)
            and (a.name, a.relation, a.cases) == (b.name, b.relation, b.cases)
            and a.at.keys() == b.at.keys()
            and _close(a.measured, b.measured)
            and _close(a.bound, b.bound)
        )
        for a, b in zip(*pieces, strict=True)
    )


def _close(a: float, b: float) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return (isnan(a) and isnan(b)) or isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)


def _budget(trial: _Trial) -> Iterator[str]:
    allowed = SLACK * trial.claim.budget
    seconds = min(r.seconds for r in [*trial.reports[1:], trial.again])
    if seconds > allowed:  # once more, since a busy machine makes runs dearer and never cheaper
        seconds = min(seconds, trial.once_more().seconds)
    if seconds > allowed:
        yield (
            f"it takes {seconds:.3g} CPU seconds, warm; its budget is {trial.claim.budget:g},"
            f" and {SLACK:g} times that is too much on any machine"
        )


_LAWS = (_statement, _foil, _holds, _refutes, _clear, _reproduces, _budget)
CLAIM_LAWS = {law.__name__[1:]: law for law in _LAWS}
"""The laws of claims by name, in the order in which they are checked."""
