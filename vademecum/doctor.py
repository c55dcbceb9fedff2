"""A look at the machine: versions, devices, data, and the line that installs what is missing.

What is required comes from the package's own metadata, so that this list cannot go stale. A
required package counts as broken if it is absent, older than demanded, or fails to import.
"""

import importlib
import importlib.metadata
import os
import platform
from collections.abc import Iterator
from typing import Literal, NamedTuple

from packaging.requirements import Requirement  # comes with matplotlib

from vademecum import __version__

__all__ = ["Finding", "examine"]

_MODULES = {"scikit-learn": "sklearn"}  # where a package's name is not that of its module


class Finding(NamedTuple):
    """One thing looked at; `hint` is what to do about it."""

    name: str
    status: Literal["ok", "missing", "broken"]
    value: str
    hint: str = ""


def examine() -> Iterator[Finding]:
    """Look at versions, required packages, devices, data sets and optional packages, in order.

    Only something required can be "broken"; what is "missing" can be done without.
    """
    yield Finding("vademecum", "ok", __version__)
    yield Finding("python", "ok", f"{platform.python_version()} on {platform.platform()}")
    required, optional = _requirements()
    if not required:
        hint = "pip install -e . (in the source folder)"
        yield Finding("installation", "missing", "the package's metadata was not found", hint)
    yield from map(_required, required)
    yield from _devices()
    yield from _data()
    for requirement, extras in optional:
        found = _version(requirement)
        yield found._replace(name=f"{requirement.name} [{', '.join(extras)}]")


def _requirements() -> tuple[list[Requirement], list[tuple[Requirement, list[str]]]]:
    """What is always needed, and what is needed for some extras, with their names."""
    try:
        about = importlib.metadata.metadata("vademecum")
    except importlib.metadata.PackageNotFoundError:
        return [], []
    required, optional = [], {}
    for requirement in map(Requirement, about.get_all("Requires-Dist") or []):
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": ""}):
            required.append(requirement)
        elif requirement.name != "vademecum":  # which is one extra asking for another
            extras = about.get_all("Provides-Extra") or []
            wanting = [extra for extra in extras if marker.evaluate({"extra": extra})]
            optional.setdefault(requirement.name, (requirement, []))[1].extend(wanting)
    return required, list(optional.values())


def _required(requirement: Requirement) -> Finding:
    found = _version(requirement)
    if found.status != "ok":
        return found._replace(status="broken")
    try:
        importlib.import_module(_MODULES.get(requirement.name, requirement.name))
    except Exception as error:
        value = f"{found.value}, but importing it raises {type(error).__name__}: {error}"
        hint = f"pip install --force-reinstall '{requirement.name}{requirement.specifier}'"
        return Finding(requirement.name, "broken", value, hint)
    return found


def _version(requirement: Requirement) -> Finding:
    wanted = f"{requirement.name}{requirement.specifier}"
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(requirement.name, "missing", "not installed", f"pip install '{wanted}'")
    if not requirement.specifier.contains(version, prereleases=True):
        return Finding(
            requirement.name, "missing", f"{version} is too old", f"pip install -U '{wanted}'"
        )
    return Finding(requirement.name, "ok", version)


def _devices() -> Iterator[Finding]:
    try:
        import torch
    except Exception:  # reported among the required packages
        return
    yield Finding("cpu", "ok", f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()}")
    if not torch.cuda.is_available():
        yield Finding("cuda", "missing", "no CUDA device that torch can use")
    for i in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(i)
        yield Finding(f"cuda:{i}", "ok", f"{about.name}, {about.total_memory / 2**30:.0f} GiB")


def _data() -> Iterator[Finding]:
    try:
        from vademecum.data import describe
    except ImportError:  # of something required, which has been reported
        return
    for entry in describe():
        found = str(entry.found or "not on this machine")
        yield Finding(f"data {entry.name}", "ok" if entry.found else "missing", found, entry.hint)
