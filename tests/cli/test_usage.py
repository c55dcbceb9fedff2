"""Wrong usage, help, and what is known before torch is imported."""

import importlib.metadata
import inspect
import re
import subprocess
import sys
import warnings
from pathlib import Path
from textwrap import dedent
from typing import get_args

import pytest

import vademecum
from vademecum.claims import VERDICTS, By
from vademecum.claims.report import Verdict
from vademecum.cli import COMMANDS, _help_of, main
from vademecum.cli.choice import Kind, choose, parse_seeds
from vademecum.errors import UsageError


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("", "usage: vade COMMAND"),
        ("bogus", "invalid choice: 'bogus'"),
        ("--bogus", "bogus"),
        ("check --bogus", "unrecognized arguments: --bogus"),
        ("check --see 3", "unrecognized arguments"),
        ("check --seeds 5-2", "--seeds 5-2 is empty; did you mean 2-5?"),
        ("check --seeds x", "--seeds must look like 3, 0-9 or 0,2,5-7, got 'x'"),
        ("check --seeds ,", "--seeds must look like"),
        ("check --seeds=-1", "--seeds must look like"),
        ("check --jobs 0", "--jobs must be positive, got 0"),
        ("check --jobs two", "Expected a <class 'int'>"),
        ("check --limit 0", "--limit must be positive, got 0"),
        ("check --budget 0", "--budget must be positive, got 0"),
        ("check --by magic", "invalid choice: 'magic' .choose from 'witness'"),
        ("check nothing", "no claim matches 'nothing'; `vade claims` lists all 6"),
        ("check addition --by fit", "has 1 claims, but none fits .* by identity"),
        ("check addition --budget 0.1", "the cheapest takes 0.5 s"),
        ("check addition --json driver.py/x", "driver.py"),
        ("claims additon", "nearest: toyroom.addition"),
        ("show", "required: show.id"),
        ("show additon", "no claim is called 'additon'; nearest: toyroom.addition"),
        ("show toyroom.brokn", "nearest: toyroom.broken"),
        ("show addition --figure a.bogus", "must end in one of .*[.]png"),
        ("show addition --figure nowhere/a.png", "there is no folder"),
        ("show addition bogus=1", "has no knob 'bogus'; its knobs: total, n, scale"),
        ("show addition total=x", "knob total must be like 4, got 'x'"),
        ("show addition sizes=x", "knob sizes must be like .1, 2., got 'x'"),
        ("show addition n=1.5", "knob n must be like 2, got '1.5'"),
        ("show addition rule=min", "knob rule is a function"),
        ("errata --weight light", "invalid choice: 'light'"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_why(
    argv: str, message: str, toy, folder: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(folder)
    assert main(argv.split()) == 2
    shown = capsys.readouterr()
    assert re.search(message, shown.err or shown.out)
    assert len(shown.err.splitlines()) == (1 if argv else 0)


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("3", (3,)), ("0-3", (0, 1, 2, 3)), ("0,2,5-7", (0, 2, 5, 6, 7)), ("1,0-2", (1, 0, 2))],
)
def test_seeds(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "-", "1-", "-1", "1--2", "a", "1;2", "1.5", "²"])
def test_no_seeds(text: str) -> None:
    with pytest.raises(UsageError, match="--seeds must look like"):
        parse_seeds(text)


def test_help_needs_no_torch_and_explains_every_argument() -> None:
    code = """
        import sys
        from vademecum.cli import COMMANDS, main
        for argv in [["--version"], ["--help"], *([name, "--help"] for name in COMMANDS)]:
            assert main(argv) == 0, argv
        heavy = {"torch", "numpy", "matplotlib", "scipy", "sklearn"} & set(sys.modules)
        assert not heavy, heavy
    """
    shown = subprocess.run(
        [sys.executable, "-W", "error", "-c", dedent(code)], capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith(f"vade {vademecum.__version__}\n")
    for command in COMMANDS.values():
        for name in inspect.signature(command).parameters:
            assert _help_of(name, inspect.getdoc(command) or ""), (command, name)


def test_vade_is_python_m_vademecum() -> None:
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="vade")
    assert script.load() is main
    command = [sys.executable, "-m", "vademecum", "--version"]
    assert subprocess.check_output(command, text=True) == f"vade {vademecum.__version__}\n"


def test_words_known_without_torch_are_those_of_the_claims() -> None:
    assert get_args(Kind) == get_args(By)
    assert {*get_args(Verdict)} == {*VERDICTS}


@pytest.mark.parametrize(
    ("pattern", "number"),
    [("*", 6), ("toyroom", 6), ("b*", 2), ("toyroom.b*", 2), ("sums", 1), ("*.sums", 1)],
)
def test_patterns(pattern: str, number: int, toy) -> None:
    assert len(choose(pattern)) == number


def test_a_warning_is_one_line_without_a_place_in_the_sources(monkeypatch, capsys) -> None:
    def warned(**_: object) -> int:
        message = UserWarning("step-00000004 is damaged:\n  it is empty")
        print(warnings.formatwarning(message, UserWarning, "somewhere.py", 3), end="")
        return 0

    monkeypatch.setitem(COMMANDS, "doctor", warned)
    before = warnings.formatwarning
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out == "vade: step-00000004 is damaged: it is empty\n"
    assert warnings.formatwarning is before
