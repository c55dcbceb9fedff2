"""Calls of all that draws random numbers in this room: those of the files drawn_*.py here."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

CALLS: dict[str, Callable[[Any], Any]] = {}
for _file in sorted(Path(__file__).parent.glob("drawn_*.py")):
    CALLS |= getattr(import_module(f"tests.generative.{_file.stem}"), "CALLS", {})
