"""Every claim of the course, as a test: `pytest tests/test_claims.py -k hopfield --seeds 0-9`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jaxtyping
import pytest

from vademecum import ROOMS
from vademecum.claims import Claim, select
from vademecum.testing import CLAIM_LAWS, check_claim

LEDGER = Path(__file__).parent / "ledger"


@contextmanager
def without_type_checks() -> Iterator[None]:
    """They cost more than many a claim, and would count for its budget."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize("claim", select(), ids=lambda c: c.id)
def test_claim_keeps_the_laws_of_claims(claim: Claim, seed: int) -> None:
    assert check_claim(claim, [seed], again=without_type_checks) == tuple(CLAIM_LAWS)


def test_claims_promise_to_be_cheap() -> None:
    dear = {
        c.id: c.budget for c in select() if not 0 < c.budget <= (5 if c.by == "training" else 1)
    }
    assert not dear


@pytest.mark.parametrize("room", ROOMS)
def test_every_statement_of_the_course_is_covered(room: str) -> None:
    statements = set((LEDGER / f"{room}.txt").read_text().split())
    covered = {name for c in select(f"{room}.*") for name in (c.id, *c.covers)}
    assert statements <= covered
