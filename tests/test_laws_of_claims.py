"""Each law of claims passes a good one, and fails on one that breaks just that law."""

import random

import pytest
import torch

from vademecum.claims import Claim, at_most, in_mean
from vademecum.testing import CLAIM_LAWS, BrokenLaw, check_claim


def make(check, *, budget: float = 5.0, foils=({"bound": 0.0},)) -> Claim:
    claim = Claim(f"laws.{check.__name__}", check, "sampling", budget=budget)
    for knobs in foils:
        claim.foil("on purpose", **knobs)
    return claim


def true(bound: float = 1.0):
    """A random number is at most 1."""
    yield at_most("a number", torch.rand(()), bound)


def sometimes(bound: float = 0.7):
    """A random number is at most 0.7."""
    yield at_most("a number", torch.rand(()), bound)


def unstated(bound: float = 1.0):
    yield at_most("a number", torch.rand(()), bound)


def raises(bound: float = 1.0):
    """It breaks."""
    raise RuntimeError("broken")
    yield


def drifts(bound: float = 1.0):
    """It depends on more than its seed."""
    yield at_most("a number", random.SystemRandom().random(), bound)


def barely(bound: float = 1.0):
    """A foil is refuted by less than a thousand tolerances."""
    yield at_most("a number", 1.0, bound)


def barely_random(bound: float = 0.5):
    """A foil is refuted by ten standard errors, which is enough where numbers are random."""
    yield in_mean("a coin", torch.tensor([0.0, 1.0]).repeat(500), bound)


BAD_CLAIMS = [
    ("statement", make(unstated), "its docstring has no title line"),
    ("foil", make(true, foils=()), "it has no foil"),
    ("holds", make(sometimes), "refuted: 1 cases"),
    ("holds", make(raises, foils=()), "RuntimeError: broken"),
    ("refutes", make(true, foils=({"bound": 2.0},)), "seed 0 does not refute on purpose"),
    ("clear", make(barely, foils=({"bound": 1 - 1e-7},)), "seed 0 refutes 'on purpose' by 50 tol"),
    ("clear", make(barely_random, foils=({"bound": 0.6},)), r"by 1\.26 tolerances, not by 2"),
    ("reproduces", make(drifts), "seed 0 gives .* once and .* again"),
    ("budget", make(true, budget=1e-9), "it takes .* CPU seconds, warm; its budget is 1e-09"),
]


@pytest.mark.parametrize(("law", "claim", "finding"), BAD_CLAIMS, ids=lambda v: str(v)[:20])
def test_a_claim_that_breaks_a_law_breaks_just_that_one(law, claim, finding):
    skip = {} if claim.foils or law == "foil" else {"foil": "it raises before"}
    with pytest.raises(BrokenLaw, match=f"^{claim.id} breaks the law '{law}': ") as broken:
        check_claim(claim, range(20), skip=skip)
    assert broken.match(finding)
    if claim.check is raises:
        skip["reproduces"] = "it raises"
    held = check_claim(claim, range(20), skip={law: "on purpose"} | skip)
    assert set(held) == set(CLAIM_LAWS) - {law, *skip}


def test_every_law_of_claims_is_broken_by_something():
    assert {law for law, *_ in BAD_CLAIMS} == set(CLAIM_LAWS)


def test_a_foil_may_be_close_if_it_says_why():
    close = make(barely, foils=())
    close.foil("nearly", close="the next number of single precision", bound=1 - 1e-7)
    assert "clear" in check_claim(close, [0])
    assert "clear" in check_claim(make(barely_random, foils=({"bound": 0.7},)), [0])


def test_a_good_claim_keeps_all_laws():
    assert check_claim(make(true), range(5)) == tuple(CLAIM_LAWS)
    with pytest.raises(ValueError, match="seeds must not be empty"):
        check_claim(make(true), ())
    with pytest.raises(ValueError, match="skip must hold names of laws"):
        check_claim(make(true), skip={"truth": "overrated"})
