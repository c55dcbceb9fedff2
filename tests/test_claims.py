"""Every claim of the course, as a test: `pytest tests/test_claims.py -k hopfield --seeds 0-9`."""

from pathlib import Path

import pytest

from vademecum import ROOMS
from vademecum.claims import Claim, select

LEDGER = Path(__file__).parent / "ledger"


@pytest.mark.parametrize("claim", select(), ids=lambda c: c.id)
def test_claim_holds_and_its_foils_are_refuted(claim: Claim, seed: int) -> None:
    report = claim.run(seed)
    assert report, f"\n{claim.statement}\n{report}"


@pytest.mark.parametrize("claim", select(), ids=lambda c: c.id)
def test_claim_has_a_foil_and_keeps_its_budget(claim: Claim) -> None:
    assert claim.foils
    claim.run()  # warm up
    assert any(claim.run().seconds < claim.budget for _ in range(3))  # others share the machine


@pytest.mark.parametrize("room", ROOMS)
def test_every_statement_of_the_course_is_covered(room: str) -> None:
    statements = set((LEDGER / f"{room}.txt").read_text().split())
    covered = {name for c in select(f"{room}.*") for name in (c.id, *c.covers)}
    assert statements <= covered
