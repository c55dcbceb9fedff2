"""Every export is exercised by a claim, or by an oracle test that bears its name.

A claim exercises what it imports. A test bears the name of `mean_field_overlap` if it is called
`test_mean_field_overlap...`, or stands in a file of that name; that of `vjp` may be called
`test_jvp_and_vjp...`, that of `WillshawMemory` is called `test_willshaw_memory...`. Results are
exercised with the functions that return them.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import vademecum
from tests.conventions import exports, is_result
from vademecum import ROOMS

PACKAGE, TESTS = Path(vademecum.__file__).parent, Path(__file__).parent


def taken(source: str) -> Iterator[tuple[str, str]]:
    """What a module takes from elsewhere, one by one or as attributes: from where, and its name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            yield from ((f"{node.module}.", alias.name) for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"vademecum.{node.value.id}.", node.attr


def imported(found: set[tuple[str, str]], room: str) -> set[str]:
    """The names that were taken from a room."""
    return {name for place, name in found if place.startswith(f"vademecum.{room}.")}


@cache
def in_claims() -> set[tuple[str, str]]:
    files = [f for place in ROOMS for f in (PACKAGE / place / "claims").rglob("*.py")]
    return {found for file in files for found in taken(file.read_text())}


def names_of_tests(room: str) -> set[str]:
    """The names of test functions of a room and of their files."""
    files = list((TESTS / room).rglob("test_*.py"))
    functions = [
        node.name
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    return {*functions, *(file.stem for file in files)}


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def named_for(name: str, tests: set[str]) -> bool:
    return any(re.match(rf"test_(the_|\w+_and_)?{snake(name)}(_|$)", test) for test in tests)


def untouched(names: list[str], claims: set[str], tests: set[str]) -> list[str]:
    return [name for name in names if name not in claims and not named_for(name, tests)]


@pytest.mark.parametrize("room", ROOMS)
def test_every_export_is_exercised(room):
    names = [name for name, thing in exports(room).items() if not is_result(thing)]
    assert not untouched(names, imported(in_claims(), room), names_of_tests(room))


def test_what_is_exercised_is_recognised():
    source = (
        "import vademecum\nfrom vademecum import linear\n"
        "from vademecum.linear.lasso import Lasso as L\nfrom vademecum.linear import lms\n"
        "x = linear.whiten\ny = x.diagonal()\nfrom vademecum.linearity import other\n"
    )
    assert imported(set(taken(source)), "linear") == {"Lasso", "lms", "whiten"}
    tests = {"test_eigsh_and_cg", "test_willshaw_memory_forgets", "test_the_trace", "test_hvps"}
    names = ["eigsh", "cg", "WillshawMemory", "trace", "hvp", "L", "PCA"]
    assert untouched(names, {"L"}, tests) == ["hvp", "PCA"]
    assert [snake(name) for name in ("PCA", "LMSFit", "TuringMachine", "jvp")] == [
        *("pca", "lms_fit", "turing_machine", "jvp"),
    ]
