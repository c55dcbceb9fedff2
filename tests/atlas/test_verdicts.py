"""Running claims from the browser: nothing takes the pages down."""

import math
import subprocess
import sys
import time

import pytest

from vademecum.atlas.controls import controls, knobs_from
from vademecum.atlas.verdicts import Verdicts
from vademecum.claims import Report, equals, memory, recall, remember
from vademecum.claims.memory import Known, remembered_at
from vademecum.errors import UsageError


@pytest.fixture
def known(fakes):
    made = Verdicts(fakes.values(), limit=20.0)
    yield made
    made.close()


def test_a_trial_that_crashes_or_hangs_leaves_the_next_in_peace(fakes):
    known = Verdicts(fakes.values(), limit=5.0)
    try:
        with pytest.raises(ChildProcessError, match="exit code 7"):
            known.trial(fakes["crashes"], 0, {}).result()
        with pytest.raises(TimeoutError, match="within 5 seconds"):
            known.trial(fakes["hangs"], 0, {}).result()
        report, drawing = known.trial(fakes["true"], 3, {}).result()
        assert (report.verdict, report.seed, drawing) == ("holds", 3, b"")
    finally:
        known.close()


def test_nobody_waits_for_a_trial(known, fakes):
    call = known.trial(fakes["hangs"], 0, {})
    while call.process is None:
        time.sleep(0.01)
    known.abandon(call)
    with pytest.raises(ChildProcessError):
        call.result()


def test_trials_take_knobs_and_change_nothing_elsewhere(known, fakes):
    assert known.trial(fakes["true"], 5, {"factor": "-1.0"}).result()[0].verdict == "refuted"
    assert (
        known.trial(fakes["true"], 5, {"factor": "1.0", "n": "10"}).result()[0].verdict == "holds"
    )
    assert known.verdict("fake_claims.true") == "not run"
    assert recall(fakes.values()) == {}
    for text in ("many", "-3", "1" * 2000):
        with pytest.raises(UsageError, match="knob n must be"):
            known.trial(fakes["true"], 0, {"n": text})


def test_a_foil_beside_its_claim(known, fakes):
    right, wrong = known.beside_foil(fakes["true"], 1, 4).result()
    assert (right.verdict, wrong.verdict) == ("holds", "refuted")
    assert right.evidence == fakes["true"].run(4).evidence
    assert wrong.evidence[0] == fakes["true"].run(4).counterexamples[1]


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
        assert not progress["stopped"]
        again = Verdicts(chosen)
        assert again.verdict("fake_claims.false") == "refuted"
        again.close()
    finally:
        known.close()


def test_a_run_can_be_stopped(fakes):
    known = Verdicts([fakes["true"], fakes["hangs"]], limit=60.0)
    known.start()
    known.close()  # which would else wait for ten minutes, and the limit of tests is the same
    assert (known.progress()["running"], known.progress()["stopped"]) == (False, True)


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
    assert control.kind == "foil"
    chosen = control.options[1][0]
    foil = claim.foils[int(chosen)]
    assert knobs_from(claim, {"formula": chosen})["formula"] is foil.knobs["formula"]
    assert claim.run(0, **knobs_from(claim, {"formula": chosen})).verdict == "refuted"


# Memory


def seeds(fakes) -> dict[str, list[int]]:
    return {name.partition(".")[2]: [*known.verdicts] for name, known in recall(fakes).items()}


def test_memory_adds_seeds_claim_by_claim_and_survives_damage(fakes):
    claims = fakes.values()
    remember(claims, [fakes["true"].run(0), fakes["true"].run(1), fakes["false"].run(0)])
    other = remembered_at() / "fake_claims.false.json"
    before = other.stat().st_mtime_ns, other.stat().st_ino
    remember(claims, [fakes["true"].run(7)])
    assert (other.stat().st_mtime_ns, other.stat().st_ino) == before  # nothing is written again
    assert seeds(claims) == {"true": [0, 1, 7], "false": [0]}
    known = recall(claims)["fake_claims.true"]
    assert known.in_words() == "holds for seeds 0-1, 7"
    assert known.reports == (fakes["true"].run(0),)
    for damage in ("{", "", "[" * 100_000, "[]", '{"digest": 3}', "\xff"):
        (remembered_at() / "fake_claims.true.json").write_text(damage, encoding="latin-1")
        assert seeds(claims) == {"false": [0]}
    remember(claims, [fakes["true"].run(2)])
    assert seeds(claims) == {"true": [2], "false": [0]}


def test_the_report_shown_has_the_verdict_shown():
    good = [Report("a.b", seed, (equals("one", 1, 1),)) for seed in range(6)]
    bad = [Report("a.b", seed, (equals("one", 1, 1),), (None,)) for seed in range(8, 12)]
    worst = Report("a.b", 20, error="out of chalk")
    known = Known().with_reports(good)
    assert (known.verdict, known.report) == ("holds", good[0])
    known = known.with_reports([*reversed(bad)]).with_reports([worst])
    assert known.in_words() == "holds for seeds 0-5; blunt for seeds 8-11; broken for seed 20"
    assert (known.verdict, known.report) == ("broken", worst)
    assert known.reports == (good[0], bad[0], worst)
    assert known.with_reports([good[3]]).in_words() == known.in_words()
    assert (Known().verdict, Known().report, Known().in_words()) == ("not run", None, "not run")


def test_a_busy_machine_leaves_no_verdict(fakes):
    remember(fakes.values(), [Report("fake_claims.true", 0, error="late", overdue=True)])
    assert recall(fakes.values()) == {}


def test_digests_are_those_of_before_the_run(fakes, monkeypatch, tmp_path):
    """Who edits a source while its claims run has not checked what is written there now."""
    source = tmp_path / "claims.py"
    source.write_text("old")
    for function in (memory.digest, memory._source, memory._path):
        function.cache_clear()
    monkeypatch.setattr(memory, "_path", lambda module: source)
    known = Verdicts([fakes["true"]])
    try:
        source.write_text("new")
        known.start()
        known.wait()
        memory.digest.cache_clear()
        memory._source.cache_clear()
        assert recall([fakes["true"]]) == {}
        source.write_text("old")
        memory.digest.cache_clear()
        memory._source.cache_clear()
        assert recall([fakes["true"]])["fake_claims.true"].verdict == "holds"
    finally:
        known.close()
        memory.digest.cache_clear()
        memory._source.cache_clear()


def test_processes_that_remember_at_once_lose_nothing(fakes):
    code = (
        "import sys; from tests import fake_claims; from vademecum.claims import remember\n"
        "for seed in range(int(sys.argv[1]), 12, 2):\n"
        "    remember([fake_claims.true], [fake_claims.true.run(seed)])"
    )
    both = [subprocess.Popen([sys.executable, "-c", code, start]) for start in "01"]
    assert [one.wait() for one in both] == [0, 0]
    assert seeds(fakes.values()) == {"true": [*range(12)]}


def test_what_other_code_found_is_forgotten(fakes, monkeypatch):
    remember(fakes.values(), [fakes["true"].run(0)])
    monkeypatch.setattr("vademecum.claims.memory.digest", lambda module: "other")
    assert recall(fakes.values()) == {}


def test_a_digest_follows_imports(tmp_path, monkeypatch):
    package = tmp_path / "vademecum"
    package.mkdir()
    sources = {
        "first": "from vademecum.second import (\n    x,\n)\n",
        "second": "def f():\n    from vademecum import third\n",
        "third": "x = 1\n",
        "other": "import vademecum.second\n",
    }
    for name, text in sources.items():
        (package / f"{name}.py").write_text(text)
    (package / "__init__.py").write_text("")
    monkeypatch.setattr("vademecum.__file__", str(package / "__init__.py"))

    def digests():
        for function in (memory.digest, memory._source, memory._path):
            function.cache_clear()
        return [memory.digest(f"vademecum.{name}") for name in sources]

    try:
        before = digests()
        assert len({*before}) == 4
        assert digests() == before
        (package / "third.py").write_text("x = 2\n")
        assert [a == b for a, b in zip(before, digests(), strict=True)] == [False] * 4
        before = digests()
        (package / "other.py").write_text("import vademecum.third\n")
        changed = [a != b for a, b in zip(before, digests(), strict=True)]
        assert changed == [False, False, False, True]
    finally:
        monkeypatch.undo()
        for function in (memory.digest, memory._source, memory._path):
            function.cache_clear()


def test_memory_that_cannot_be_written_does_no_harm(fakes, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    remember(fakes.values(), [fakes["true"].run(0)])
    assert recall(fakes.values()) == {}
