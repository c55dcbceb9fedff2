import dataclasses
import json
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from tests import fake_claims as fake
from vademecum.claims import (
    Claim,
    Evidence,
    Report,
    claim,
    equals,
    read_reports,
    recall,
    remember,
    run,
    write_reports,
)
from vademecum.claims.ledger import LEDGER
from vademecum.claims.memory import remembered_at

FATES = {
    "true": "holds",
    "false": "refuted",
    "blunt": "blunt",
    "vacuous": "vacuous",
    "not_a_number": "vacuous",
    "raises": "broken",
}
QUICK = [getattr(fake, name) for name in FATES]


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


def test_what_is_remembered_of_a_claim_is_replaced_and_nothing_else_written(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    remember([fake.true.run(0), fake.true.run(1), fake.blunt.run(0)])
    blunt = remembered_at() / "fake_claims.blunt.json"
    before = blunt.stat().st_mtime_ns, blunt.stat().st_ino
    remember([fake.true.run(5)])
    assert (blunt.stat().st_mtime_ns, blunt.stat().st_ino) == before
    assert [(r.id, r.seed) for r in recall()] == [("fake_claims.blunt", 0), ("fake_claims.true", 5)]
    (remembered_at() / "fake_claims.true.json").write_text("{")
    assert [r.id for r in recall()] == ["fake_claims.blunt"]


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


# Running


def _sorted(reports):
    return sorted(reports, key=lambda r: (r.id, r.seed))


def _serial(claims: list[Claim], seeds) -> list[Report]:
    return _sorted(c.run(s) for c in claims for s in seeds)


def _without_paths(reports):
    """Tracebacks differ in how deep the call came from; the last line must not."""
    return [
        (r.id, r.seed, r.verdict, r.evidence, r.counterexamples, r.error[-30:]) for r in reports
    ]


def _comparable(reports):
    return [repr(entry) for entry in _without_paths(_sorted(reports))]  # repr: NaN equals itself


def test_processes_give_the_same_reports_as_a_loop():
    found = run(QUICK, range(3), jobs=2)
    assert _comparable(found) == _comparable(_serial(QUICK, range(3)))


def test_any_executor_gives_the_same_reports():
    with ThreadPoolExecutor(1) as pool:
        found = list(run(QUICK, range(2), pool))
    assert _comparable(found) == _comparable(_serial(QUICK, range(2)))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_dask_cluster_gives_the_same_reports():
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        found = list(run(QUICK, range(3), client.get_executor()))
    assert _comparable(found) == _comparable(_serial(QUICK, range(3)))


def test_a_hanging_claim_is_overdue_and_a_crashing_one_broken_while_others_go_on():
    claims = [fake.hangs, fake.crashes, fake.true, fake.false]
    found = {r.id.partition(".")[2]: r for r in run(claims, jobs=2, limit=20)}
    assert found["hangs"].verdict == "overdue"
    assert "no answer within 20 seconds" in found["hangs"].error
    assert found["crashes"].verdict == "broken"
    assert "exit code 7" in found["crashes"].error
    assert found["true"].verdict == "holds"
    assert found["false"].verdict == "refuted"


def test_reports_stream_and_stopping_early_ends_the_workers():
    before = threading.active_count()
    stream = run([fake.true, fake.hangs], jobs=2)
    assert next(stream).verdict == "holds"
    stream.close()
    assert threading.active_count() <= before + 1


# Reports


def test_reports_survive_json(tmp_path):
    huge = Report(
        "a.b", 1, (Evidence("x", "<=", float("nan"), float("inf")), equals("y", 2**80, 2**80, d=3))
    )
    reports = [*(c.run(2) for c in QUICK), huge]
    path = tmp_path / "deep" / "run.json"
    write_reports(path, reports, started=0.0)
    found = read_reports(path)
    assert [repr(r) for r in _sorted(found)] == [
        repr(r) for r in _sorted(_rounded(r) for r in reports)
    ]
    content = json.loads(path.read_text(), parse_constant=pytest.fail)  # strict JSON: no NaN
    assert {"torch", "numpy", "python", "vademecum", "machine"} <= set(content["environment"])
    assert list(path.parent.iterdir()) == [path]  # no temporary file is left


def _rounded(report: Report) -> Report:
    return dataclasses.replace(report, seconds=round(report.seconds, 4))


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "run.json"
    write_reports(path, [fake.true.run()], started=0.0)
    old = path.read_text()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_reports(path, [], started=0.0)
    assert path.read_text() == old
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[: len(text) // 2], "truncated or foreign"),
        (lambda text: "", "truncated or foreign"),
        (lambda text: "[1, 2]", "not a report file"),
        (lambda text: '{"format": "other"}', "not a report file"),
        (
            lambda text: text.replace('"version": 2', '"version": 1', 1),
            "version 1 of the format, .* 2",
        ),
        (lambda text: text.replace('"measured"', '"guessed"'), "damaged report"),
    ],
)
def test_damaged_report_files_are_refused(tmp_path, damage, message):
    path = tmp_path / "run.json"
    write_reports(path, [fake.true.run()], started=0.0)
    path.write_text(damage(path.read_text()))
    with pytest.raises(ValueError, match=message):
        read_reports(path)
