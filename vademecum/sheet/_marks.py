"""The marks before each statement, which differ in shape and not in colour.

A mark tells what the evidence is worth: it is the claim's own grade once a run found that the claim
holds, a dotted ring before any run, and a cross where a run found that it does not hold.
"""

from typing import NamedTuple

from vademecum.claims import Claim

__all__ = ["LEGEND", "MARKS", "Mark", "letters", "mark"]


class Mark(NamedTuple):
    """A sign and what it says."""

    sign: str
    words: str


_PROVED = Mark("●", "proved")
_IDENTITY = Mark("◐", "identity at random points")
_SAMPLED = Mark("○", "sampled, fitted or trained")
_UNKNOWN = Mark("◌", "not checked")
_FAILED = Mark("✗", "does not hold")
MARKS = (_PROVED, _IDENTITY, _SAMPLED, _UNKNOWN, _FAILED)
"""All marks, as the legend has them."""
_GRADES = {
    "witness": _PROVED, "exhaustion": _PROVED, "identity": _IDENTITY,
    "sampling": _SAMPLED, "fit": _SAMPLED, "training": _SAMPLED,
}  # fmt: skip
LEGEND = "  ".join(f"{mark.sign} {mark.words}" for mark in MARKS) + (
    "  [B] wrong on sheet B  (B) wrong as scanned, or in wording"
)
"""One line that explains every mark."""


def mark(claim: Claim, verdict: str | None) -> Mark:
    """The mark of a claim.

    Args:
        claim: The claim.
        verdict: What a run found; None if it never ran.
    """
    if verdict is None:
        return _UNKNOWN
    return _GRADES[claim.by] if verdict == "holds" else _FAILED


def letters(claim: Claim) -> list[str]:
    """The sheets that a claim corrects: `[B]` if B is wrong, `(B)` if its scan or wording is."""
    hard = {foil.where[0] for foil in claim.errata if foil.weight == "hard"}
    found = sorted({foil.where[0] for foil in claim.errata})
    return [f"[{letter}]" if letter in hard else f"({letter})" for letter in found]
