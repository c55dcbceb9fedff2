"""The costs of rooms are added up, also over workers, and a room too dear fails the run."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.costs import Costs, room_of

ROOT = Path(__file__).parents[1]
BURN = """
import subprocess, sys, time

import pytest

CODE = "import time\\nwhile time.process_time() < 0.4: pass"


@pytest.fixture
def dear():
    end = time.process_time() + 0.4
    while time.process_time() < end:
        pass


def test_fixture(dear):
    pass


def test_child():
    subprocess.run([sys.executable, "-c", CODE], check=True)


def test_cheap():
    time.sleep(0.5)  # which costs no CPU


@pytest.mark.gpu
def test_kernels(dear):
    pass
"""


def run(folder, *options):
    for room in ("linear", "elsewhere"):
        (folder / "tests" / room).mkdir(parents=True, exist_ok=True)
        (folder / "tests" / room / f"test_{room}.py").write_text(BURN)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.costs", *options, "tests"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    (line,) = [line for line in done.stdout.splitlines() if "CPU seconds by room" in line]
    words = line.partition(": ")[2].split(", ")
    return done, {room: float(seconds) for room, seconds in map(str.split, words)}


@pytest.mark.parametrize(
    "workers", [("-p", "no:xdist"), ("-n", "2", "--dist", "loadgroup")], ids=["one", "xdist"]
)
def test_fixtures_children_and_workers_count(tmp_path, workers):
    done, seconds = run(tmp_path, "--cpu-limit", "0.7", *workers)
    assert 0.7 < seconds["linear"] < 20  # shown without decimals
    assert 0.7 < seconds["elsewhere"] < 20
    assert "FAILED the tests of linear took" in done.stdout
    assert "tests of elsewhere took" not in done.stdout  # no room
    assert seconds["gpu"] > 0  # with no limit, and for neither folder
    assert "8 passed" in done.stdout
    assert done.returncode == 1


@pytest.mark.parametrize(("seconds", "before", "after"), [(9, 0, 0), (11, 0, 1), (11, 2, 2)])
def test_a_room_too_dear_fails_a_run_that_passed(seconds, before, after):
    costs, session = Costs(10.0), SimpleNamespace(exitstatus=before)
    costs.totals["linear"] = seconds
    costs.pytest_sessionfinish(session)
    assert session.exitstatus == after


@pytest.mark.parametrize(
    ("nodeid", "room"),
    [
        ("tests/linear/test_lasso.py::test_path[a::b]", "linear"),
        ("tests/linear/deep/test_x.py::test_y", "linear"),
        ("vademecum/gradients/tape/engine.py::vademecum.gradients.tape.engine.Tape", "gradients"),
        ("vademecum/arguments.py::vademecum.arguments.broadcasting", "the rest"),
        ("tests/test_docs.py::test_x", "the rest"),
        ("conftest.py", "the rest"),
    ],
)
def test_rooms_are_folders(nodeid, room):
    assert room_of(nodeid) == room


def test_only_rooms_have_a_limit():
    costs = Costs(10.0)
    costs.totals.update({"linear": 9.0, "gradients": 11.0, "atlas": 99.0, "gpu": 999.0})
    assert costs.too_dear() == ["gradients"]
