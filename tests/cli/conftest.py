"""A room of tiny claims with every verdict, for the command line to work on."""

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import vademecum
import vademecum.cli.choice
from vademecum.claims import ledger

CLAIMS = r'''
import time
from typing import Literal
import torch
from vademecum.claims import at_most, claim, equals

@claim(by="identity", sources=("B-001",), covers=("toyroom.sums",), budget=0.5, full={"n": 9})
def addition(total: int = 4, n: int = 2, scale: float = 1.0, sizes: tuple[int, ...] = (1, 2),
             word: Literal["plus", "minus"] = "plus", rule=max):
    r"""Two and two is four.

    For every $n$ [0], $2 + 2 = 4$.

    Knobs:
        total: The sum.
        n: A number that does nothing.
        scale: The largest random number.
        sizes: Sizes that nobody reads.
        word: The word for
            addition.
        rule: A function.
    """
    yield equals("two and two", 2 + 2, total, n=n)
    yield at_most("random numbers", torch.rand(3), scale, n=n)

addition.foil("five is one too many", total=5)
addition.erratum("B-001", printed="$2 + 2 = 3$", right="$2 + 2 = 4$", why="a slip", total=3)
addition.erratum("B-002", printed="$U < 0$", right="$U < 1$", why="typo", weight="soft", scale=0.0)

@claim(by="witness")
def false():
    """One is two."""
    for i in range(12):
        yield equals("one", 1, 2, i=i)

@claim(by="witness")
def blunt(ignored: int = 0):
    """One is one.

    Knobs:
        ignored: What nobody looks at.
    """
    yield equals("one", 1, 1)

blunt.foil("which nobody can tell", ignored=1)
blunt.erratum("B-003", printed="one", right="1", why="no error at all", ignored=1)

@claim(by="witness")
def broken():
    """This check raises."""
    yield equals("one", 1, 1)
    raise RuntimeError("as it should")

@claim(by="sampling")
def vacuous():
    """This check yields nothing."""
    yield from ()

@claim(by="fit", budget=9.0)
def slow(nap: float = 0.1):
    """This check takes its time.

    Knobs:
        nap: How long it sleeps.
    """
    time.sleep(nap)
    yield equals("one", 1, 1)
'''
DRIVER = """
import sys
import vademecum
vademecum.ROOMS = ("toyroom",)
import toyroom.claims
sys.modules["vademecum.toyroom.claims"] = toyroom.claims
from vademecum.cli import main
if __name__ == "__main__":
    raise SystemExit(main())
"""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a room of toy claims, and a `vade` that knows this room alone."""
    folder = tmp_path_factory.mktemp("toy")
    (folder / "toyroom").mkdir()
    (folder / "toyroom" / "__init__.py").touch()
    (folder / "toyroom" / "claims.py").write_text(CLAIMS)
    (folder / "driver.py").write_text(DRIVER)
    return folder


@pytest.fixture
def toy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The toy claims as the only room of this process."""
    monkeypatch.syspath_prepend(folder)
    for module in (vademecum, ledger, vademecum.cli.choice):
        monkeypatch.setattr(module, "ROOMS", ("toyroom",))
    module = importlib.import_module("toyroom.claims")
    monkeypatch.setitem(sys.modules, "vademecum.toyroom.claims", module)
    yield module
    for name in [name for name in ledger.LEDGER if name.startswith("toyroom.")]:
        del ledger.LEDGER[name]
    del sys.modules["toyroom.claims"], sys.modules["toyroom"]


@pytest.fixture
def vade(folder: Path) -> Callable[..., subprocess.Popen[str]]:
    """Start the toy room's `vade` with pipes for its output."""

    def start(*argv: str, **options: Any) -> subprocess.Popen[str]:
        command = [sys.executable, str(folder / "driver.py"), *argv]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        return subprocess.Popen(command, text=True, **pipes)

    return start
