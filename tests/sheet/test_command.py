"""`vade sheet`: files, exit codes, and what it says."""

import shutil
import subprocess
from pathlib import Path

import pytest

import vademecum.claims
from tests.sheet.conftest import report
from vademecum.claims import select, write_reports
from vademecum.cli import main
from vademecum.sheet import PrinterMissing, _chromium, print_pdf


@pytest.fixture
def reports(tmp_path) -> Path:
    """A file in which one claim of the room bayes does not hold and another never ran."""
    first, _, *rest = sorted(claim.id for claim in select("bayes.*"))
    found = [report(first, holds=False), *map(report, rest)]
    write_reports(tmp_path / "reports.json", found, started=0.0)
    return tmp_path / "reports.json"


def test_a_claim_that_does_not_hold_is_printed_and_told(reports, tmp_path, capsys):
    out = tmp_path / "sheet.html"
    assert main(["sheet", "--room", "bayes", "--reports", str(reports), "--out", str(out)]) == 1
    said = capsys.readouterr()
    assert said.out == f"sheet: {out}\n"
    first = min(claim.id for claim in select("bayes.*"))
    assert f"vade: {first} does not hold: refuted\n" in said.err
    assert "vade: 1 of 12 claims are not checked\n" in said.err
    assert out.read_text().count("does not hold (refuted)") == 1
    assert "checked 1970-01-01" in out.read_text()


def test_rooms_and_a_sheet(tmp_path, capsys):
    out = tmp_path / "sheet.html"
    command = ["sheet", "--room", "bayes", "tooling", "--sheet", "A", "--form", "full"]
    assert main([*command, "--paper", "letter", "--out", str(out)]) == 0
    page = out.read_text()
    assert "size: letter;" in page
    claims = [*select("bayes.*"), *select("tooling.*")]
    told = [claim.id for claim in claims if any(s[0] == "A" for s in claim.sources)]
    assert 0 < len(told) < len(claims)
    assert sorted(c for c in (claim.id for claim in claims) if f"<code>{c}<" in page) == sorted(
        told
    )
    assert f"{len(told)} of {len(told)} claims are not checked; --check" in capsys.readouterr().err


def test_a_room_that_is_named_twice_is_printed_once(tmp_path, capsys):
    out = tmp_path / "sheet.html"
    assert main(["sheet", "--room", "bayes", "bayes", "--out", str(out)]) == 0
    page = out.read_text()
    assert page.count(f"<b>{select('bayes.leapfrog')[0].title.rstrip('.')}</b>") == 1
    assert f"{len(select('bayes.*'))} of {len(select('bayes.*'))} claims" in capsys.readouterr().err


def test_checking_first(tmp_path, monkeypatch, capsys):
    def run(claims):
        yield from (report(claim.id) for claim in claims)

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(vademecum.claims, "run", run)
    out = tmp_path / "sheet.html"
    assert main(["sheet", "--room", "bayes", "--check", "--out", str(out)]) == 0
    assert "not checked  ·" not in out.read_text()
    assert capsys.readouterr().err == ""
    assert (tmp_path / "vademecum" / "checks" / f"{select('bayes.*')[0].id}.json").exists()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--room", "bayse"], "--room must name a room, got 'bayse'; there are bayes"),
        (["--out", "sheet.doc"], "--out must end in .html or .pdf, got sheet.doc"),
        (["--check", "--reports", "x.json"], "--check runs claims: choose one"),
        (["--reports", "{old}"], "has version 1 of the format"),
        (["--reports", "{absent}"], "No such file"),
        (["--reports", "{binary}"], "binary.json is not whole JSON ('utf-8' codec"),
        (["--sheet", "F"], "invalid choice: 'F'"),
        (["--form", "long"], "invalid choice: 'long'"),
    ],
)
def test_wrong_usage(options, complaint, tmp_path, capsys):
    old = tmp_path / "old.json"
    old.write_text('{"format": "vademecum-reports", "version": 1}')
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"\xff\xfe")
    files = {"old": old, "binary": binary, "absent": tmp_path / "absent.json"}
    words = [word.format(**files) for word in options]
    room = [] if "--room" in words else ["--room", "bayes"]
    assert main(["sheet", *room, *words]) == 2
    assert complaint in capsys.readouterr().err


def test_without_a_browser_the_html_is_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    out = tmp_path / "sheet.pdf"
    assert main(["sheet", "--room", "bayes", "--out", str(out)]) == 2
    assert not out.exists()
    assert "<math" in (tmp_path / "sheet.html").read_text()
    said = capsys.readouterr().err
    assert "no Chromium is installed" in said
    assert f"open {tmp_path / 'sheet.html'} in Chrome and print it into a PDF" in said


@pytest.mark.parametrize(
    ("version", "complaint"),
    [
        ("Chromium 130.0.6723.91", "must be Chromium 131 or newer, which prints page numbers"),
        ("no number", "must be Chromium 131"),
        ("Chromium 131.0.1", "did not print: it fell over"),
    ],
)
def test_browsers_that_cannot_print(version, complaint, monkeypatch):
    def run(command, **_):
        return subprocess.CompletedProcess(command, 1, f"{version}\n", "so\nit fell over\n")

    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(_chromium.subprocess, "run", run)
    with pytest.raises(PrinterMissing, match=complaint):
        print_pdf("<p>")
