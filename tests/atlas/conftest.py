import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import tests.fake_claims  # noqa: F401  (registers claims with a known fate)
from vademecum.atlas.drawings import Drawings
from vademecum.atlas.server import prepare
from vademecum.atlas.verdicts import Verdicts
from vademecum.claims import Claim, Report, equals, remember, select
from vademecum.claims.ledger import LEDGER


@pytest.fixture(autouse=True, scope="session")
def _nursery():
    """Worker processes are forked from one that has imported everything."""
    prepare()


@pytest.fixture(autouse=True)
def _own_memory(tmp_path, monkeypatch):
    """Remembered verdicts are those of this test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="session")
def all_but_one(tmp_path_factory) -> str:
    """A memory in which all claims but one room's hold, so that an atlas has little to check."""
    state = str(tmp_path_factory.mktemp("state"))
    known = [claim for claim in select() if claim.room != "connectionism"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", state)
        remember(known, [Report(claim.id, 0, (equals("one", 1, 1),)) for claim in known])
    return state


@pytest.fixture(scope="session")
def state(tmp_path_factory) -> str:
    """Where the atlas in a browser remembers verdicts."""
    return str(tmp_path_factory.mktemp("state"))


class Site(NamedTuple):
    """A whole export, and what the command said."""

    folder: Path
    said: str


@pytest.fixture(scope="session")
def site(state, tmp_path_factory) -> Site:
    """Minutes of drawing, so once for all who look at it; they are of one group, `browser`."""
    folder = tmp_path_factory.mktemp("export") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "vademecum", "atlas", "--export", str(folder)],
        env=os.environ | {"XDG_STATE_HOME": state},  # what is known already need not run again
        capture_output=True, text=True, timeout=1900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return Site(folder, done.stdout)


@pytest.fixture
def fakes() -> dict[str, Claim]:
    return {c.id.partition(".")[2]: c for c in LEDGER.values() if c.room == "fake_claims"}


@pytest.fixture
def verdicts() -> Iterator[Verdicts]:
    made = Verdicts(select("connectionism.*"))
    yield made
    made.close()


@pytest.fixture
def drawings() -> Iterator[Drawings]:
    made = Drawings(1)
    yield made
    made.close()


class Served:
    """A running `vade atlas`, and the address it printed."""

    def __init__(self, process: subprocess.Popen, address: str):
        self.process, self.address = process, address
        self.base = address.partition("/?")[0]


def serve(*options: str, state: str | None = None) -> Iterator[Served]:
    command = [sys.executable, "-m", "vademecum", "atlas", "--no-browser", "--port", "0", *options]
    known = {} if state is None else {"XDG_STATE_HOME": state}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | known
    )
    assert process.stdout is not None
    try:
        said = ""
        while "http://" not in said:
            line = process.stdout.readline()
            assert line, f"the atlas ended: {said}"
            said += line
        address = next(word for word in said.split() if word.startswith("http"))
        yield Served(process, address)
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()
