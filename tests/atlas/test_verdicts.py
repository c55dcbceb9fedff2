"""Running claims from the browser: nothing takes the pages down."""

import math
import time

import pytest

from vademecum.atlas.controls import controls, knobs_from
from vademecum.atlas.verdicts import Verdicts
from vademecum.claims import recall, remember
from vademecum.claims.memory import remembered_at
from vademecum.errors import UsageError


@pytest.fixture
def known(fakes):
    made = Verdicts(fakes.values(), limit=20.0)
    yield made
    made.close()


def test_a_trial_that_crashes_gets_its_verdict(known, fakes):
    report = known.trial(fakes["crashes"], 0, {})
    assert (report.verdict, "exit code 7" in report.error) == ("broken", True)
    assert known.trial(fakes["true"], 3, {}).verdict == "holds"


def test_a_trial_that_hangs_gets_its_verdict(fakes):
    known = Verdicts([fakes["hangs"], fakes["true"]], limit=15.0)
    try:
        assert known.trial(fakes["true"], 0, {}).verdict == "holds"
        begun = time.monotonic()
        assert known.trial(fakes["hangs"], 0, {}).verdict == "overdue"
        assert 15 <= time.monotonic() - begun < 30
    finally:
        known.close()


def test_trials_take_knobs_and_only_defaults_are_remembered(known, fakes):
    assert known.trial(fakes["true"], 5, {"factor": "-1.0"}).verdict == "refuted"
    assert known.verdict("fake_claims.true") == "not run"
    assert known.trial(fakes["true"], 5, {"factor": "1.0", "n": "10"}).verdict == "holds"
    assert known.verdict("fake_claims.true") == "holds"
    assert [(r.id, r.seed) for r in recall()] == [("fake_claims.true", 5)]
    with pytest.raises(UsageError, match=r"knob n must be like 10, got 'many'"):
        known.trial(fakes["true"], 0, {"n": "many"})


def test_all_claims_in_the_background(fakes):
    chosen = [fakes[name] for name in ("true", "false", "raises", "crashes")]
    known = Verdicts(chosen, limit=20.0)
    try:
        assert known.missing() == [c.id for c in chosen]
        assert known.start()
        assert not known.start()
        known.wait()
        progress = known.progress()
        assert (progress["running"], progress["done"], progress["total"]) == (False, 4, 4)
        assert progress["tally"] == {"holds": 1, "refuted": 1, "broken": 2}
        assert len(progress["failed"]) == 3
        assert known.missing() == []
        again = Verdicts(chosen)
        assert again.verdict("fake_claims.false") == "refuted"
        again.close()
    finally:
        known.close()


def test_a_run_can_be_stopped(fakes):
    known = Verdicts([fakes["true"], fakes["hangs"]], limit=60.0)
    known.start()
    known.close()  # which would else wait for ten minutes, and the limit of tests is the same
    assert not known.progress()["running"]


def test_controls_fit_their_knobs(fakes):
    kinds = {c.name: (c.kind, c.value) for c in controls(fakes["true"])}
    assert kinds == {"factor": ("number", "1.0"), "n": ("number", "10")}


def test_no_control_loses_its_value():
    from vademecum.claims import select

    for claim in select():
        for control in controls(claim):
            if control.kind == "number":  # which browsers empty of anything else
                assert math.isfinite(float(control.value)), claim.id
        form = {c.name: c.value for c in controls(claim) if c.kind != "checkbox" or c.value}
        assert all(value == claim.knobs[name] for name, value in knobs_from(claim, form).items())


def test_functions_can_be_set_to_those_of_foils():
    from vademecum.claims import select

    (claim,) = select("connectionism.cover_counting")
    (control,) = (c for c in controls(claim) if c.name == "formula")
    assert control.kind == "select"
    chosen = control.options[1][0]
    foil = claim.foils[int(chosen)]
    assert knobs_from(claim, {"formula": chosen})["formula"] is foil.knobs["formula"]
    assert claim.run(0, **knobs_from(claim, {"formula": chosen})).verdict == "refuted"


def test_memory_replaces_claim_by_claim_and_survives_damage(fakes):
    remember([fakes["true"].run(0), fakes["true"].run(1), fakes["false"].run(0)])
    other = remembered_at() / "fake_claims.false.json"
    before = other.stat().st_mtime_ns, other.stat().st_ino
    remember([fakes["true"].run(7)])
    assert (other.stat().st_mtime_ns, other.stat().st_ino) == before  # nothing is written again
    assert [(r.id, r.seed) for r in recall()] == [("fake_claims.false", 0), ("fake_claims.true", 7)]
    (remembered_at() / "fake_claims.true.json").write_text("{")
    assert [r.id for r in recall()] == ["fake_claims.false"]
    remember([fakes["true"].run(2)])
    assert [r.seed for r in recall()] == [0, 2]


def test_memory_of_another_version_is_none(fakes, monkeypatch):
    remember([fakes["true"].run(0)])
    monkeypatch.setattr("vademecum.claims.memory.__version__", "9.9.9")
    assert recall() == []


def test_memory_that_cannot_be_written_does_no_harm(fakes, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    remember([fakes["true"].run(0)])
    assert recall() == []
