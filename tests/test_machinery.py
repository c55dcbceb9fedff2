import random
import sys
from contextlib import nullcontext
from types import ModuleType

import numpy as np
import pytest
import torch
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

from tests import fake_claims as fake
from vademecum.claims import (
    Claim,
    claim,
    equals,
)
from vademecum.claims.laboratory import _pools, laboratory
from vademecum.claims.ledger import LEDGER

FATES = {
    "true": "holds",
    "false": "refuted",
    "blunt": "blunt",
    "vacuous": "vacuous",
    "not_a_number": "vacuous",
    "raises": "broken",
}


@pytest.mark.parametrize(("name", "verdict"), FATES.items())
def test_verdicts(name, verdict):
    report = getattr(fake, name).run()
    assert report.verdict == verdict
    assert bool(report) == (verdict == "holds")


def test_a_claim_knows_itself():
    assert fake.true.id == "fake_claims.true"
    assert fake.true.title == "A square is not negative."
    assert fake.true.statement.endswith(r"$x^2 \ge 0$ for every real $x$.")
    assert fake.true.knobs == {"factor": 1.0, "n": 10}
    assert [foil.where for foil in fake.true.errata] == ["A-001"]


def test_all_libraries_take_one_thread_in_a_laboratory(monkeypatch):
    def threads():
        return {pool["num_threads"] for pool in threadpool_info()}

    with threadpool_limits(2):
        with laboratory("one"):
            assert threads() == {1}
        assert threads() == {2}
    looked = []
    monkeypatch.setattr(ThreadpoolController, "__init__", lambda self: looked.append(self))
    monkeypatch.setattr(ThreadpoolController, "limit", lambda self, limits: nullcontext())
    for module in ("library_one", "library_one", "library_two"):  # each may have brought threads
        monkeypatch.setitem(sys.modules, module, ModuleType(module))
        with laboratory("again"):
            pass
    _pools.cache_clear()
    assert len(looked) == 2


def test_foils_see_the_same_random_numbers():
    report = fake.true.run(seed=3)
    evidence, foils = report.evidence[0], report.counterexamples
    assert foils[0] is not None
    assert foils[1] is not None
    assert foils[1].measured == 2 * foils[0].measured
    assert evidence.cases == foils[0].cases == 10


def test_runs_depend_on_the_seed_and_on_nothing_else():
    torch.manual_seed(1)
    first = fake.true.run(0)
    torch.manual_seed(2)
    assert fake.true.run(0) == first
    assert fake.true.run(1).evidence != first.evidence


def _numpy_state() -> bytes:
    return np.random.get_state(legacy=False)["state"]["key"].tobytes()  # noqa: NPY002


def test_a_run_leaves_no_trace(unchecked):  # the type checker draws random numbers
    states = torch.get_rng_state(), random.getstate(), _numpy_state()
    threads = torch.get_num_threads()
    fake.true.run()
    fake.raises.run()
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert _numpy_state() == states[2]
    assert torch.get_default_dtype() == torch.float32
    assert torch.get_num_threads() == threads


def test_knobs_and_the_thorough_run():
    assert fake.true.run(n=17).cases == 17
    assert fake.true.run(full=True).cases == 1000
    assert fake.true.run(full=True, n=3).cases == 3
    with pytest.raises(TypeError, match=r"no knob 'm'; its knobs: factor, n"):
        fake.true.run(m=1)
    with pytest.raises(TypeError, match="no knob 'm'"):
        fake.true.foil("misspelt", m=1)


def test_foils_differ_from_the_claims_own_knobs_and_not_from_those_set_by_hand():
    report = fake.true.run(n=17)
    assert report.evidence[0].at == {"n": 17}
    assert [e.at for e in report.counterexamples if e] == [{"n": 10}, {"n": 10}]
    full = fake.true.run(full=True)
    assert [e.at for e in full.counterexamples if e] == [{"n": 1000}, {"n": 1000}]


def test_a_foil_can_name_the_evidence_that_refutes_it():
    def two(first: int = 1, second: int = 2):
        yield equals("one", 1, first)
        yield equals("two", 2, second)

    made = Claim("room.two", two, "identity")
    made.foil("both are wrong", refuted_by="two", first=5, second=6)
    made.foil("the first is wrong", refuted_by="two", first=5)
    found = made.run().counterexamples
    assert found[0] is not None
    assert (found[0].name, found[0].bound) == ("two", 6)
    assert found[1] is None


def test_an_erratum_has_one_of_three_weights(unchecked):
    with pytest.raises(ValueError, match="weight must be one of hard, scan, soft, got 'grave'"):
        fake.true.erratum("A-1", printed="p", right="r", why="w", weight="grave")  # pyright: ignore


def test_the_short_form_is_one_line(unchecked):
    for text in ("x" * 121, "a\nb"):
        with pytest.raises(ValueError, match="short must be one line of at most 120"):
            claim(by="identity", short=text)


def test_a_broken_claim_keeps_its_traceback():
    report = fake.raises.run()
    assert "RuntimeError: out of chalk" in report.error
    assert "fake_claims.py" in report.error
    assert len(report.evidence) == 1


def _silent(knob: int = 0):
    yield equals("one", 1, 1)


def _no_default(knob):
    """It has a knob without a default."""
    yield equals("one", 1, 1)


def _reserved(seed: int = 0):
    """It takes the seed for a knob."""
    yield equals("one", 1, 1)


def _returns():
    """It returns and does not yield."""
    return [equals("one", 1, 1)]


def _unexplained(n: int = 1, m: int = 2):
    """It explains one knob of two.

    Knobs:
        m: The other one.
    """
    yield equals("one", 1, 1)


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (_unexplained, "must explain n, m, in this order, and explains m"),
        (_silent, "no docstring"),
        (_no_default, "knob 'knob' .* needs a default"),
        (_reserved, "knob 'seed'"),
        (_returns, "yields no evidence"),
    ],
)
def test_malformed_claims_are_refused(check, message):
    with pytest.raises(TypeError, match=message):
        claim(by="identity")(check)


def test_by_is_one_of_six_words(unchecked):
    with pytest.raises(ValueError, match=r"by must be one of witness, .* got 'faith'"):
        claim(by="faith")  # pyright: ignore[reportArgumentType]


def test_two_claims_cannot_share_a_name():
    def true():
        """An impostor."""
        yield equals("one", 1, 1)

    true.__module__ = "elsewhere.fake_claims"
    with pytest.raises(ValueError, match=r"two claims are called fake_claims\.true"):
        claim(by="identity")(true)
    assert LEDGER["fake_claims.true"] is fake.true
