"""What a page tells of a claim: its statement, what was checked and how it can be broken."""

import itertools
import operator
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from vademecum.atlas.controls import Control, controls
from vademecum.atlas.sources import Place, parts_of, place_of
from vademecum.claims import VERDICTS, Claim, Report
from vademecum.claims.evidence import Evidence
from vademecum.claims.ledger import Foil
from vademecum.figures import has_curves

__all__ = ["GRADES", "Row", "Statement", "compared", "grouped", "seeds"]

GRADES = {
    "witness": "a proof: here is the object that the statement promises",
    "exhaustion": "a proof: all cases of a finite domain",
    "identity": "random points in double precision: not a proof, but hard to fool",
    "sampling": "random draws with a stated chance of a false alarm: not a proof",
    "fit": "a rate fitted to measurements: not a proof",
    "training": "networks that were trained: not a proof",
}
"""What the kinds of evidence are worth."""


class Row(NamedTuple):
    """All evidence of one name: its tightest piece, how many pieces and comparisons there are."""

    name: str
    tightest: Evidence
    pieces: int
    cases: int


def grouped(evidence: Iterable[Evidence]) -> list[Row]:
    """The evidence by name, what refutes first."""
    by_name: dict[str, list[Evidence]] = {}
    for piece in evidence:
        by_name.setdefault(piece.name, []).append(piece)
    rows = [
        Row(name, min(found, key=_room), len(found), sum(piece.cases for piece in found))
        for name, found in by_name.items()
    ]
    return sorted(rows, key=lambda row: row.tightest.holds)


def _room(piece: Evidence) -> tuple[bool, float]:
    return not piece.refutes, piece.margin + piece.tol


def compared(right: Report, wrong: Report, foil: Foil) -> list[tuple[Row | None, Row | None]]:
    """What the claim and its foil gave for the same evidence; what the foil fails at first."""
    ours, theirs = ({r.name: r for r in grouped(x.evidence)} for x in (right, wrong))
    names = sorted({**theirs, **ours}, key=lambda name: name != foil.refuted_by)
    return [(ours.get(name), theirs.get(name)) for name in names]


def seeds(reports: Sequence[Report]) -> str:
    """Which verdicts were found for which seeds.

    Example:
        >>> seeds([Report("a.b", seed, error="x" * (seed == 7)) for seed in (0, 1, 2, 7)])
        'vacuous for seeds 0-2; broken for seed 7'
    """
    found: dict[str, list[int]] = {}
    for report in sorted(reports, key=lambda report: report.seed):
        found.setdefault(report.verdict, []).append(report.seed)
    return "; ".join(
        f"{verdict} for seed{'s' * (len(own) > 1)} {_runs(own)}" for verdict, own in found.items()
    )


def _runs(numbers: list[int]) -> str:
    pieces = []
    for _, run in itertools.groupby(enumerate(numbers), lambda pair: operator.sub(*pair)):
        own = [number for _, number in run]
        pieces.append(str(own[0]) if len(own) == 1 else f"{own[0]}-{own[-1]}")
    return ", ".join(pieces)


class Statement:
    """A claim and the reports of its latest run, for a page; the report shown is the worst."""

    def __init__(self, claim: Claim, reports: Sequence[Report]):
        self.claim, self.reports = claim, reports
        self.name = claim.id.partition(".")[2]
        self.title, _, body = claim.statement.partition("\n")
        self.body = body.strip("\n")
        worst = max(reports, key=lambda report: VERDICTS.index(report.verdict), default=None)
        self.report = worst or Report(claim.id, 0)
        self.verdict = worst.verdict if worst else "not run"

    @property
    def seeds(self) -> str:
        """Which verdicts were found for which seeds."""
        return seeds(self.reports) if self.reports else "not run yet"

    @cached_property
    def rows(self) -> list[Row]:
        """The evidence by name."""
        return grouped(self.report.evidence)

    @property
    def all_rows(self) -> list[Evidence]:
        """All of the evidence, the tightest first."""
        return sorted(self.report.evidence, key=_room)

    @property
    def curves(self) -> bool:
        """Whether there is a figure to see."""
        return has_curves(self.report)

    @property
    def alternative(self) -> str:
        """What the figure shows, in words."""
        tightest = self.report.tightest
        words = f"{len(self.report.evidence)} comparisons of something measured with its bound"
        return f"{words}; the tightest: {tightest}" if tightest else words

    @property
    def foils(self) -> list[tuple[int, Foil, Evidence | None]]:
        """The foils by index, errata first, with the counterexamples found."""
        found = [(i, *pair) for i, pair in enumerate(self.claim.refutations(self.report))]
        return sorted(found, key=lambda entry: not entry[1].printed)

    @property
    def place(self) -> Place | None:
        """Where the check is written."""
        return place_of(self.claim.check)

    @property
    def parts(self) -> list[Place]:
        """The exports that it tests."""
        return parts_of(self.claim)

    @property
    def controls(self) -> list[Control]:
        """Its knobs."""
        return controls(self.claim)
