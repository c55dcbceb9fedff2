"""Runs of many claims on any executor, and reports that survive as JSON."""

import dataclasses
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests import fake_claims as fake
from tests.test_machinery import FATES
from vademecum.claims import Claim, Evidence, Report, equals, read_reports, run, write_reports

QUICK = [getattr(fake, name) for name in FATES]


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
    found = {r.id.partition(".")[2]: r for r in run(claims, jobs=2, limit=40)}
    assert found["hangs"].verdict == "overdue"
    assert "no answer within 40 seconds" in found["hangs"].error
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
