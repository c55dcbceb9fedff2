"""What the README and CONTRIBUTING show must work as shown."""

import ast
import doctest
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import vademecum.connectionism
from bench.outside.page import MEASURE, run_examples
from tests.test_structure import has_example, long_functions
from vademecum import ROOMS
from vademecum.claims import select
from vademecum.claims.ledger import LEDGER
from vademecum.cli import main
from vademecum.pictures import PICTURES
from vademecum.testing import check_claim

ROOT = Path(__file__).parent.parent


def _blocks(name: str) -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_the_readme_shows_what_happens():
    failed, tried = run_examples(ROOT / "README.md")
    assert tried == 15
    assert failed == 0


def test_the_readme_shows_what_the_command_prints(capsys):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```\n\$ vade (show .*?)```", text, re.DOTALL)
    command, _, shown = block.partition("\n")
    assert main(command.split()) == 0
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    printed = capsys.readouterr().out
    assert doctest.OutputChecker().check_output(shown, printed, flags), printed


def test_a_network_can_be_measured_as_the_page_shows():
    failed, tried = run_examples(MEASURE, without="transformers")
    assert tried > 70
    assert failed == 0


def _takes_a_module(thing: Any) -> bool:
    if not inspect.isfunction(thing):
        return False
    return nn.Module in {p.annotation for p in inspect.signature(thing).parameters.values()}


@pytest.mark.parametrize("room", [*ROOMS, "testing"])
def test_the_page_leaves_no_instrument_out(room):
    package = importlib.import_module(f"vademecum.{room}")
    things = {name: getattr(package, name) for name in package.__all__}
    instruments = {name for name, thing in things.items() if _takes_a_module(thing)}
    page = MEASURE.read_text(encoding="utf-8")
    imported = " ".join(re.findall(rf"from vademecum\.{room} import (\([^)]*\)|.*)", page))
    assert instruments <= set(re.findall(r"\w+", imported))
    assert instruments <= set(re.findall(r"(\w+)\(", page))


def _module(name: str, source: str) -> ModuleType:
    module = ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
    return module


def test_the_examples_of_contributing_work(monkeypatch):
    leaf, claim = _blocks("CONTRIBUTING.md")
    made = _module("vademecum.connectionism.mistake_loss", leaf)
    monkeypatch.setattr(vademecum.connectionism, "mistake_loss", made.mistake_loss, raising=False)
    (example,) = doctest.DocTestFinder().find(
        made.mistake_loss, globs={"torch": torch, **vars(made)}
    )
    assert doctest.DocTestRunner().run(example).failed == 0
    try:
        stated = _module("vademecum.connectionism.claims.mistake_loss", claim)
        check_claim(stated.mistake_loss_is_convex, range(5))
        assert stated.mistake_loss_is_convex.id in leaf
    finally:
        LEDGER.pop("connectionism.mistake_loss_is_convex")


def test_the_picture_that_the_docs_add_works():
    (source,) = _blocks("docs/atlas.md")
    try:
        made = _module("vademecum.connectionism.pictures", source).threshold_unit
        assert made.id == "connectionism.threshold_unit"
        assert {knob.name for knob in made.knobs.values()} == {"threshold", "outputs"}
        for claim in made.claims:
            assert select(claim)
        (line,) = made(threshold=1.0, outputs="-1 and 1").axes[0].lines
        assert sorted(set(line.get_ydata())) == [-1, 1]
    finally:
        PICTURES.pop("connectionism.threshold_unit", None)


@pytest.mark.parametrize(
    ("page", "block"), [("CONTRIBUTING.md", 0), ("CONTRIBUTING.md", 1), ("docs/atlas.md", 0)]
)
def test_the_code_to_start_from_keeps_the_rules(page, block, tmp_path):
    source = _blocks(page)[block]
    (tmp_path / "example.py").write_text(source)
    for command in (["check"], ["format", "--check"]):
        settings = ["--config", str(ROOT / "pyproject.toml"), "--no-cache"]
        run = [sys.executable, "-m", "ruff", *command, *settings, str(tmp_path / "example.py")]
        done = subprocess.run(run, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
    assert not long_functions(ast.parse(source))
    if (page, block) == ("CONTRIBUTING.md", 0):
        assert has_example(_module("example", source).mistake_loss)


def test_contributing_names_places_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    places = re.findall(r"^\| (`[^|]*`) \|", text.partition("## Every place")[2], re.MULTILINE)
    names = {"ROOM": "connectionism", "IDEA": "cover", "CHAPTER": "cover"}
    for place in re.findall(r"`([^`]*)`", " ".join(places)):
        if not place.startswith("make"):
            path = re.sub("|".join(names), lambda found: names[found[0]], place)
            assert (ROOT / path).exists(), path


def test_contributing_is_short():
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) <= 120
