"""`vade claims`, `vade show` and `vade errata`, on the toy room and on the real one."""

import json
import re
from pathlib import Path

import pytest

import vademecum
from vademecum.claims import select
from vademecum.cli import main


def test_claims_into_a_pipe(toy, capsys) -> None:
    assert main(["claims"]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["id", "title", "by", "foils", "errata", "budget"]
    assert lines[1] == ["toyroom.addition", "Two and two is four.", "identity", "3", "2", "0.5"]
    names = [line[0].removeprefix("toyroom.") for line in lines[1:]]
    assert names == ["addition", "blunt", "broken", "false", "slow", "vacuous"]


def test_claims_as_json(toy, capsys) -> None:
    assert main(["claims", "--by", "identity", "--json"]) == 0
    (claim,) = json.loads(capsys.readouterr().out)
    assert claim["statement"] == toy.addition.statement
    assert claim["knobs"]["sizes"] == {"default": "(1, 2)", "about": "Sizes that nobody reads."}
    assert claim["foils"] == ["five is one too many"]
    assert [erratum["where"] for erratum in claim["errata"]] == ["B-001", "B-002"]


def test_a_broken_pipe_ends_quietly(vade) -> None:
    process = vade("claims")
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 141
    process.stderr.close()


def test_show(toy, capsys) -> None:
    assert main(["show", "addition", "--seed", "3", "n=7", "sizes=[5]"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("toyroom.addition: Two and two is four.\nFor every $n$ [0], $2 + 2 = 4$.")
    assert "  knob:    n=7: A number that does nothing.\n  knob:    scale=1.0: The largest" in out
    assert "  knob:    sizes=(5,): Sizes that nobody reads.\n" in out
    assert (
        "  knob:    word='plus': The word for addition.\n  knob:    rule=max: A function.\n" in out
    )
    assert "verdict: holds (seed 3, 4 cases" in out
    assert "two and two\t4\t==\t4\t0\t1\tn = 7\tyes\n" in out
    foil = "foil: five is one too many\n  knobs:   total=5\n  found:   two and two at n = 2: 4"
    assert foil in out  # of the claim's own knobs, not of n=7
    assert "erratum: B-001 (hard)\n  printed: $2 + 2 = 3$\n  right:   $2 + 2 = 4$\n" in out


@pytest.mark.parametrize(
    ("argv", "code", "text"),
    [
        (["addition", "--full"], 0, "n=9"),
        (["addition", "word=minus", "scale=2"], 0, "word='minus': The word"),
        (["addition", "total=5"], 1, "two and two\t4\t==\t5\t0\t1\tn = 2\tno\n"),
        (["blunt"], 1, "found:   no counterexample"),
        (["broken"], 1, "RuntimeError: as it should"),
        (["vacuous"], 1, "verdict: vacuous"),
    ],
)
def test_show_exits_by_the_verdict(argv: list[str], code: int, text: str, toy, capsys) -> None:
    assert main(["show", *argv]) == code
    assert text in capsys.readouterr().out


@pytest.mark.parametrize(("name", "magic"), [("a.png", b"\x89PNG\r\n"), ("b.PDF", b"%PDF-")])
def test_show_draws(name: str, magic: bytes, toy, tmp_path: Path, capsys) -> None:
    assert main(["show", "toyroom.addition", "--figure", str(tmp_path / name)]) == 0
    picture = (tmp_path / name).read_bytes()
    assert picture.startswith(magic)
    assert len(picture) > 2000
    assert f"figure: {tmp_path / name}\n" in capsys.readouterr().out


def test_errata(toy, capsys) -> None:
    assert main(["errata", "addition"]) == 0
    out = capsys.readouterr().out
    assert "erratum: B-001 (hard) toyroom.addition\n  printed: $2 + 2 = 3$\n" in out
    assert "  found:   two and two at n = 2: 4, where the formula demands 3\n" in out
    assert out.endswith("2 errata (1 hard, 1 soft), 2 refuted\n")


def test_errata_as_json(toy, capsys) -> None:
    assert main(["errata", "--weight", "soft", "--json"]) == 0
    (erratum,) = json.loads(capsys.readouterr().out)
    assert erratum["where"] == "B-002"
    assert erratum["claim"] == "toyroom.addition"
    assert re.fullmatch(
        r"random numbers at n = 2: 0[.]\d+, where the formula demands at most 0",
        erratum["counterexample"],
    )


def test_an_erratum_that_is_none_is_found_out(toy, capsys) -> None:
    assert main(["errata", "blunt"]) == 1
    assert "1 errata (1 hard), 0 refuted" in capsys.readouterr().out


def test_the_course(capsys) -> None:
    if not select():
        pytest.skip("no claims yet")
    assert main(["claims", "--json"]) == 0
    claims = json.loads(capsys.readouterr().out)
    assert {claim["id"].partition(".")[0] for claim in claims} == set(vademecum.ROOMS)
    cheapest = min(claims, key=lambda claim: claim["budget"])
    assert main(["show", cheapest["id"]]) == 0
    assert main(["check", cheapest["id"], "--jobs", "1"]) == 0
