"""Every claim of the course, as a test: `pytest tests/test_claims.py -k hopfield --seeds 0-9`."""

from pathlib import Path

import pytest

from vademecum import ROOMS
from vademecum.claims import Claim, select
from vademecum.testing import CLAIM_LAWS, check_claim

LEDGER = Path(__file__).parent / "ledger"


@pytest.mark.parametrize("claim", select(), ids=lambda c: c.id)
def test_claim_keeps_the_laws_of_claims(claim: Claim, seed: int) -> None:
    check_claim(
        claim, [seed], skip={"budget": "type checks at run time cost more than many a claim"}
    )


@pytest.mark.parametrize("claim", select(), ids=lambda c: c.id)
def test_claim_keeps_its_budget(claim: Claim, unchecked: None) -> None:
    others = {law: "tested above" for law in CLAIM_LAWS if law != "budget"}
    assert check_claim(claim, [0], skip=others) == ("budget",)


@pytest.mark.parametrize("claim", select(), ids=lambda c: c.id)
def test_claim_promises_to_be_cheap(claim: Claim) -> None:
    assert 0 < claim.budget <= (5 if claim.by == "training" else 1)


@pytest.mark.parametrize("room", ROOMS)
def test_every_statement_of_the_course_is_covered(room: str) -> None:
    statements = set((LEDGER / f"{room}.txt").read_text().split())
    covered = {name for c in select(f"{room}.*") for name in (c.id, *c.covers)}
    assert statements <= covered
