"""`vade check`: every verdict, interrupts, and what a terminal shows."""

import os
import pty
import re
import signal
from pathlib import Path

import pytest

from vademecum.claims import VERDICTS, read_reports
from vademecum.cli import main


def test_check_reports_every_verdict(toy, tmp_path: Path, capsys) -> None:
    file = tmp_path / "reports.json"
    argv = ["check", "--seeds", "0,1", "--jobs", "2", "--budget", "6", "--json", str(file)]
    assert main(argv) == 1
    out, err = capsys.readouterr()
    assert not err
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", out)
    lines = out.splitlines()
    assert sum(bool(re.match(r"toyroom\.\w+\[[01]\] \w+: \d+ cases", s)) for s in lines[:10]) == 10
    assert lines[10].split("\t") == ["room", "claims", *VERDICTS, "cases", "CPU s"]
    # cases: addition 1 + 3, false 12, blunt 1, broken 1, each twice
    counts = ["toyroom", "5", "2", "2", "2", "2", "0", "2", str(2 * (4 + 12 + 1 + 1))]
    assert lines[11].split("\t")[:-1] == counts
    for text in (
        "  evidence: one: 1 != 2 at i = 0",
        "  and 2 more",
        "  a foil survived: which nobody can tell",
        "  it yielded no evidence",
        "  RuntimeError: as it should",
    ):
        assert lines.count(text) == 2, text
    reports = read_reports(file)
    assert [(r.id, r.seed) for r in reports] == sorted((c, s) for c in _ids() for s in (0, 1))
    assert {r.verdict for r in reports} == {*VERDICTS} - {"overdue"}


def _ids() -> list[str]:
    return [f"toyroom.{name}" for name in ("addition", "false", "blunt", "broken", "vacuous")]


def test_check_exits_with_0_if_all_hold(toy, capsys) -> None:
    assert main(["check", "addition", "--jobs", "1", "--full"]) == 0
    assert "toyroom\t1\t1\t0\t0\t0\t0\t0\t4\t" in capsys.readouterr().out


def test_an_overdue_claim(toy, capsys) -> None:
    assert main(["check", "slow", "--jobs", "1", "--limit", "0.05"]) == 1
    assert re.search(r"slow\[0\] overdue(.|\n)*no answer within 0.05", capsys.readouterr().out)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_was_finished(number: int, vade, tmp_path: Path) -> None:
    file = tmp_path / "reports.json"
    argv = ["check", "slow", "--seeds", "0-999", "--jobs", "1", "--json", str(file)]
    with vade(*argv) as process:
        assert process.stdout
        first = [process.stdout.readline() for _ in range(15)]  # so that a second passes
        assert read_reports(file)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    finished = len(first) + out.count("] holds")
    assert finished < 1000
    assert err == f"vade: interrupted: {finished} of 1000 finished, kept in {file}\n"
    reports = read_reports(file)
    assert len(reports) == finished
    assert all(reports)
    assert list(tmp_path.iterdir()) == [file]


def test_a_reader_who_leaves_ends_it_quietly(vade, tmp_path: Path) -> None:
    file = tmp_path / "reports.json"
    process = vade("check", "slow", "--seeds", "0-99", "--jobs", "1", "--json", str(file))
    first = process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 141
    process.stderr.close()
    assert first.startswith("toyroom.slow[0] holds")
    assert 1 <= len(read_reports(file)) < 100


def test_a_terminal_gets_a_bar_and_a_table(vade) -> None:
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    process = vade("check", "false", stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(ours)
    assert process.wait() == 1
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert "1/1" in text
    assert "1 refuted" in text
    assert "─────" in text
    assert "toyroom.false[0] refuted: 12 cases" in text  # the brackets are no markup
    assert "\x1b[" in shown.decode()
