"""`vade data` and `vade doctor`: what this machine has."""

import difflib
import sys
from typing import Any

from vademecum.cli.screen import as_json, table
from vademecum.errors import UsageError

__all__ = ["data", "doctor"]


def data(name: str | None = None, *, json: bool = False) -> int:
    """List the data sets, or load one and say what it is and where it came from.

    Exits with 1 if the data set cannot be loaded.

    Args:
        name: The data set to load; without it, all are listed.
        json: Print JSON.
    """
    from vademecum.data import DataNotFoundError, describe, load

    entries = {entry.name: entry for entry in describe()}
    if name is None:
        columns = ("name", "kind", "size", "source", "found", "hint")
        rows = [[str(getattr(e, column) or "") for column in columns] for e in entries.values()]
        if json:
            as_json([dict(zip(columns, row, strict=True)) for row in rows])
        else:
            table(columns, rows)
        return 0
    if name not in entries:
        near = difflib.get_close_matches(name, entries, n=3) or list(entries)
        raise UsageError(f"no data set is called {name!r}; there are: {', '.join(near)}")
    try:
        loaded = load(name)
    except (DataNotFoundError, ValueError) as error:  # not there, or a damaged file
        print(f"vade: {error}", file=sys.stderr)
        return 1
    content = {"name": name} | {key: _shape(part) for key, part in loaded._asdict().items()}
    found = next(str(entry.found) for entry in describe() if entry.name == name)
    content |= {"source": entries[name].source, "found": found}
    if json:
        as_json(content)
    else:
        table(("part", "value"), content.items())
    return 0


def _shape(value: Any) -> str:
    from torch import Tensor

    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    if isinstance(value, str):
        return f"{len(value)} characters"
    if isinstance(value, tuple):
        return f"{len(value)}: {', '.join(map(str, value))}"
    return str(value)


def doctor(*, json: bool = False) -> int:
    """Look at versions, devices and data, and say how to install what is missing.

    Exits with 1 if something required is broken.

    Args:
        json: Print JSON.
    """
    from vademecum.doctor import examine

    findings = list(examine())
    if json:
        as_json([finding._asdict() for finding in findings])
    else:
        table(("what", "status", "value", "what to do"), findings)
    return 1 if any(finding.status == "broken" for finding in findings) else 0
