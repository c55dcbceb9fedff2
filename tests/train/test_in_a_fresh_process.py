"""Tests that fork run in an interpreter of their own.

A fork has none of the threads of the process before, and waits for ever if one of them held a lock;
a process that has run the tests of other rooms has many. So these modules skip everywhere else.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.train.forks import VARIABLE

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("module", ["test_kills", "test_ranks", "test_split_weights"])
@pytest.mark.parametrize("which", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_forks(module, which):
    done = run(module, which)
    assert done.returncode in (0, 5), done.stdout[-5000:] + done.stderr[-2000:]  # 5: none chosen
    assert done.returncode == 0 or which == "slow"


def run(module: str, which: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", which]
    return subprocess.run(
        [*command, "-p", "no:xdist", f"tests/train/{module}.py"], cwd=ROOT, text=True,
        env={**os.environ, VARIABLE: "1"}, capture_output=True, timeout=500, check=False,
    )  # fmt: skip
