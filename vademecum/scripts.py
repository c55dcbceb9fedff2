"""An object in a user's own Python file, named as `FILE.py:OBJECT` on the command line.

The file is run as Python runs a script: what lies beside it can be imported.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from vademecum.errors import UsageError

__all__ = ["object_in", "split_name"]

_RUN: dict[tuple[Path, int], ModuleType] = {}


def split_name(flag: str, name: str) -> tuple[Path, str]:
    """The file and the object in `FILE.py:OBJECT`.

    Args:
        flag: What the user typed it for, such as "--network".
        name: What the user typed.

    Raises:
        UsageError: If there is no such file, or no object is named.
    """
    file, _, thing = name.rpartition(":")
    if not file or not thing.isidentifier():
        raise UsageError(f"{flag} must be FILE.py:OBJECT, got {name!r}")
    if not Path(file).is_file():
        raise UsageError(f"{flag} {name}: there is no file {file}")
    return Path(file).resolve(), thing


def object_in(flag: str, name: str) -> Any:
    """Run the file and return the object.

    Args:
        flag: What the user typed it for.
        name: The file and the object, as `FILE.py:OBJECT`.

    Raises:
        UsageError: If the file has no such object.
    """
    file, thing = split_name(flag, name)
    key = file, file.stat().st_mtime_ns  # one run serves for all objects of a file
    if key not in _RUN:
        _RUN[key] = _run(flag, name, file)
    module = _RUN[key]
    if not hasattr(module, thing):
        public = ", ".join(n for n in vars(module) if not n.startswith("_"))
        raise UsageError(f"{flag} {name}: {file.name} has no {thing!r}; it has: {public}")
    return getattr(module, thing)


def _run(flag: str, name: str, file: Path) -> ModuleType:
    sys.path.insert(0, str(file.parent))  # as Python does for a script
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise UsageError(f"{flag} {name}: {file.name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module
