"""`vade draw`: listing, explaining and drawing, with the flags of a picture."""

from pathlib import Path

import pytest

from vademecum.canvas import svg
from vademecum.cli import main
from vademecum.cli.draw import knobs_as_flags
from vademecum.errors import UsageError
from vademecum.pictures import find_picture, pictures

DIGITS = "linear.digits_rebuilt"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_list_of_pictures(capsys) -> None:
    assert main(["draw"]) == 0
    header, *lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert header == ["id", "title", "knobs"]
    assert [line[0] for line in lines] == [p.id for p in pictures()]
    assert main(["draw", "linear"]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    summary = "components from 1 to 64 (8); first from 0 to 300 (0)"
    assert lines[-1] == [DIGITS, "Principal components of digits", summary]


@pytest.mark.parametrize(
    "argv", [[DIGITS, "--help"], ["digits_rebuilt", "-h"], [DIGITS, "--knobs"]]
)
def test_knobs_are_explained(argv: list[str], capsys) -> None:
    assert main(["draw", *argv]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{DIGITS}: Principal components of digits\nWritten digits of 64")
    assert "  --first:      Which of the test digits is shown first.\n" in out
    assert "from 1 to 64, by default 8\n" in out
    assert not list(Path().iterdir())


def test_help_without_a_picture(capsys) -> None:
    assert main(["draw", "--help"]) == 0
    assert "ROOM.NAME.svg in the current" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "file", "magic"),
    [
        ([DIGITS], f"{DIGITS}.svg", b"<?xml"),
        ([DIGITS, "--out", "a.png", "--first", "10"], "a.png", b"\x89PNG"),
        (["digits_rebuilt", "first=10", "--out=b.pdf"], "b.pdf", b"%PDF-"),
    ],
)
def test_drawing(argv: list[str], file: str, magic: bytes, capsys) -> None:
    assert main(["draw", *argv]) == 0
    assert [p.name for p in Path().iterdir()] == [file]
    assert Path(file).read_bytes().startswith(magic)
    assert capsys.readouterr().out.endswith(f"\npicture: {file}\n")


def test_knobs_are_heard() -> None:
    assert main(["draw", DIGITS, "--components=3", "--first", "20", "--out", "a.svg"]) == 0
    expected = svg(find_picture(DIGITS)(components=3, first=20))
    assert Path("a.svg").read_bytes() == expected


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("bogus", "there is no picture 'bogus'; there are foundations."),
        ("linear.bogus", "there is no picture 'linear.bogus'"),
        (f"{DIGITS} --components 99", "components must be an integer from 1 to 64, got 99"),
        (f"{DIGITS} --components -3", "components must be an integer from 1 to 64, got -3"),
        (f"{DIGITS} --components few", "components must be an integer from 1 to 64, got 'few'"),
        ("--components 5", "name one picture to draw, got none"),
        ("linear --out a.svg", "name one picture to draw, got linear"),
        (f"{DIGITS} --components", "--components needs a value"),
        (f"{DIGITS} --colour red", f"{DIGITS} has no knob 'colour'; its knobs: components, first"),
        (f"{DIGITS} --set components", "--set must look like NAME=VALUE, got 'components'"),
        (f"{DIGITS} --out a.gif", "a.gif must end in one of .svg, .png, .pdf"),
        (f"{DIGITS} --out no/a.svg", "no/a.svg: there is no folder"),
        (f"{DIGITS} --out", "expected one argument"),
        (f"{DIGITS} another", "another"),
    ],
)
def test_wrong_usage(argv: str, message: str, capsys) -> None:
    assert main(["draw", *argv.split()]) == 2
    assert message in capsys.readouterr().err
    assert not list(Path().iterdir())


def test_flags_of_a_picture() -> None:
    words = ["x", "--a-b", "1", "--c=d=e", "f=g", "--set", "h=i", "--out", "--j"]
    told = ["x", "--set=a_b=1", "--set=c=d=e", "--set=f=g", "--set", "h=i", "--out", "--j"]
    assert knobs_as_flags(words) == told
    assert knobs_as_flags(["--help", "x"]) == ["--help", "x"]
    with pytest.raises(UsageError, match=r"^--a needs a value$"):
        knobs_as_flags(["--a"])
