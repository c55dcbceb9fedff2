"""The list of a checkpoint's files with their sizes and SHA-256, itself sealed by one.

It is written last, so that a checkpoint without it is one that was never finished. What it says is
compared with the folder as it is: no file more and none less, all of them plain files, each with
the bytes that were written. Nothing is opened that could block, lead elsewhere or be without end.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["MANIFEST", "DamagedCheckpoint", "parsed_json", "seal", "sync_folder", "verify"]

MANIFEST = "manifest.json"
"""The file without which a folder is no checkpoint."""

_FORMAT = "vademecum/checkpoint/1"
_MOST_BYTES = 2**20  # of a manifest, which has a line of 100 bytes for each of a dozen files
_DEEPEST = 50  # levels of JSON; the state of an optimiser has about ten


class DamagedCheckpoint(ValueError):
    """A folder that is no whole checkpoint; the message says what is wrong with it."""


def seal(folder: Path) -> None:
    """Write the manifest of what lies in a folder, and see to it that all of it is on the disk."""
    files = {}
    for path in sorted(folder.iterdir()):
        with open(path, "rb") as file:
            files[path.name] = {"bytes": os.fstat(file.fileno()).st_size, "sha256": _digest(file)}
            os.fsync(file.fileno())
    with open(folder / MANIFEST, "w", encoding="ascii") as file:
        file.write(_text(files))
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """See to it that the names in a folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def verify(folder: Path, *, hashes: bool = True) -> list[str]:
    """The names of a checkpoint's files, once they are what the manifest says.

    Args:
        folder: The checkpoint.
        hashes: Whether to read the files; otherwise their sizes are compared alone.

    Raises:
        DamagedCheckpoint: If they are not.
    """
    if folder.is_symlink() or not folder.is_dir():
        raise DamagedCheckpoint("it is no folder")
    files = _listed(folder)
    present = sorted(entry.name for entry in os.scandir(folder) if entry.name != MANIFEST)
    for name in sorted({*files, *present}):
        if name not in present:
            raise DamagedCheckpoint(f"{name} is missing")
        if name not in files:
            raise DamagedCheckpoint(f"{name} is not in its manifest")
    for name, entry in files.items():
        with _plain_file(folder / name) as file:
            size = os.fstat(file.fileno()).st_size
            if size != entry["bytes"]:
                raise DamagedCheckpoint(f"{name} has {size} bytes and not {entry['bytes']}")
    for name, entry in files.items() if hashes else ():
        with _plain_file(folder / name) as file:
            if _digest(file) != entry["sha256"]:
                raise DamagedCheckpoint(f"{name} has another SHA-256 than its manifest says")
    return list(files)


def parsed_json(name: str, text: str) -> Any:
    """What a JSON text says.

    Raises:
        DamagedCheckpoint: If it is none, or is nested too deeply.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedCheckpoint(f"{name} is no JSON of ours: {type(error).__name__}") from error
    level = [found]
    for _ in range(_DEEPEST):
        level = [item for entry in level for item in _items(entry)]
    if level:
        raise DamagedCheckpoint(f"{name} is nested more than {_DEEPEST} times")
    return found


def _items(entry: Any) -> Iterable[Any]:
    if isinstance(entry, dict):
        return entry.values()
    return entry if isinstance(entry, list) else ()


def _text(files: dict[str, Any]) -> str:
    """A manifest as it is written: sealed by the SHA-256 of its own content."""
    content = {"format": _FORMAT, "files": files}
    digest = hashlib.sha256(_canonical(content).encode()).hexdigest()
    return _canonical(content | {"sha256": digest}) + "\n"


def _canonical(content: Any) -> str:
    return json.dumps(content, indent=1, sort_keys=True)


def _listed(folder: Path) -> dict[str, Any]:
    """What the manifest says of each file."""
    with _plain_file(folder / MANIFEST) as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise DamagedCheckpoint(f"{MANIFEST} is too large")
    try:
        text = content.decode("ascii")
    except UnicodeDecodeError as error:
        raise DamagedCheckpoint(f"{MANIFEST} is no text") from error
    found = parsed_json(MANIFEST, text)
    files = found.get("files") if isinstance(found, dict) else None
    if not isinstance(files, dict) or not all(_is_entry(n, e) for n, e in files.items()):
        raise DamagedCheckpoint(f"{MANIFEST} does not list files with their sizes and SHA-256")
    if text != _text(files):
        raise DamagedCheckpoint(f"{MANIFEST} is not as it was written")
    return files


def _is_entry(name: str, entry: Any) -> bool:
    """Whether a manifest may hold it: a file in the folder itself, a size and a hash."""
    if not isinstance(entry, dict) or set(entry) != {"bytes", "sha256"}:
        return False
    plain = name not in ("", ".", "..", MANIFEST) and "/" not in name and "\0" not in name
    return plain and type(entry["bytes"]) is int and isinstance(entry["sha256"], str)


def _plain_file(path: Path) -> Any:
    """A file opened to be read, if it is a plain one and no link, pipe or device."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise DamagedCheckpoint(f"{path.name} is missing") from error
    except (OSError, ValueError) as error:  # a link, a socket, a name that is none
        raise DamagedCheckpoint(f"{path.name} cannot be opened: {error}") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise DamagedCheckpoint(f"{path.name} is no plain file")
    return os.fdopen(handle, "rb")


def _digest(file: Any) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()
