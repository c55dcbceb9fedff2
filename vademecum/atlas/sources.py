"""Where things are written: the source behind a claim, and the parts that it puts to the test."""

import functools
import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

import vademecum
from vademecum import ROOMS
from vademecum.claims import Claim

__all__ = ["Place", "our_modules", "parts_of", "place_of", "room_exports", "source_text"]


class Place(NamedTuple):
    """A named thing, the module that defines it, and the line where it begins."""

    name: str
    module: str
    line: int


def place_of(thing: Any, name: str = "") -> Place | None:
    """Where a function or class of this library is written; None for what is not code.

    Example:
        >>> place_of(place_of).module
        'vademecum.atlas.sources'
    """
    thing = inspect.unwrap(thing) if callable(thing) else thing
    module = getattr(thing, "__module__", None)
    if not isinstance(module, str) or not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return None
    return Place(name or thing.__name__, module, _line(thing))


@functools.cache
def _line(thing: Any) -> int:
    return inspect.getsourcelines(thing)[1]


@functools.cache
def our_modules() -> frozenset[str]:
    """The names of all modules of the library: what may be read in the browser."""
    found = pkgutil.walk_packages(vademecum.__path__, "vademecum.", onerror=lambda name: None)
    return frozenset({"vademecum", *(module.name for module in found)})


def source_text(module: str) -> str:
    """The source of a module, which is not run for it."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ValueError(f"module must be one of the library's, got {module!r}")
    return Path(spec.origin).read_text(encoding="utf-8")


def room_exports(room: str) -> dict[str, Any]:
    """What a room exports, by name; nothing for what is no room."""
    if room not in ROOMS:
        return {}
    module: ModuleType = importlib.import_module(f"vademecum.{room}")
    return {name: getattr(module, name) for name in module.__all__}


@functools.cache
def parts_of(claim: Claim) -> list[Place]:
    """The exported parts that a claim's check calls, itself or through functions beside it.

    Example:
        >>> from vademecum.claims import select
        >>> [part.name for part in parts_of(select("connectionism.novikov_bound")[0])]
        ['novikov_bound', 'perceptron_path', 'Perceptron']
    """
    exported = _exported()
    found = dict.fromkeys(
        exported[id(thing)] for thing in _reached(claim.check) if id(thing) in exported
    )
    places = (place_of(thing, name) for name, thing in found)
    return [place for place in places if place is not None]


@functools.cache
def _exported() -> dict[int, tuple[str, Any]]:
    return {
        id(thing): (name, thing)
        for room in ROOMS
        for name, thing in room_exports(room).items()
        if callable(thing)
    }


def _reached(check: Any) -> Iterator[Any]:
    """What a function names or has as a default, and what its neighbours do that it calls."""
    module, seen, waiting = check.__module__, set(), [check]
    while waiting:
        function = inspect.unwrap(waiting.pop())
        named = [function.__globals__.get(name) for name in _names(function.__code__)]
        for thing in [*named, *(function.__defaults__ or ())]:
            if thing is None or id(thing) in seen:
                continue
            seen.add(id(thing))
            yield thing
            if inspect.isfunction(thing) and thing.__module__ == module:
                waiting.append(thing)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
