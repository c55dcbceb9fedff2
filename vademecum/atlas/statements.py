"""What a page tells of a claim: its statement, what was checked and how it can be broken."""

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

from vademecum.claims import Claim, Report
from vademecum.claims.evidence import Evidence
from vademecum.claims.ledger import Foil
from vademecum.claims.memory import Known
from vademecum.figures import has_curves

__all__ = ["GRADES", "Row", "Statement", "compared", "grouped"]

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


def compared(right: Report, wrong: Report) -> list[tuple[Row | None, Row]]:
    """Where a foil gave something else than the claim, and what the claim gave there."""
    ours = {row.name: row for row in grouped(right.evidence)}
    return [
        (ours.get(row.name), row) for row in grouped(wrong.evidence) if ours.get(row.name) != row
    ]


class Statement:
    """A claim and what is known of it, for a page."""

    def __init__(self, claim: Claim, known: Known):
        self.claim, self.known = claim, known
        self.name = claim.id.partition(".")[2]
        self.body = claim.statement.partition("\n")[2].strip("\n")
        self.report = Report(claim.id, 0) if known.report is None else known.report

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
