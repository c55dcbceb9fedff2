"""Fetching a published file into the user's cache, or nothing.

A file is written under a temporary name and takes its own only after its SHA-256 proved right, so
that a download that stopped midway, or brought something else, leaves nothing that a later call
would take. A file in the cache whose sum is wrong counts as absent.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["DownloadError", "cache_folder", "fetch", "is_intact"]

CHUNK = 2**16
TIMEOUT = 30


class DownloadError(Exception):
    """A file could not be fetched."""


def cache_folder(name: str) -> Path | None:
    """Where downloads of a data set are kept, or None where downloads cannot happen."""
    pooch = _pooch()
    return Path(pooch.os_cache("vademecum")) / name if pooch else None


def is_intact(path: Path, sha256: str) -> bool:
    """Whether the file is there and is the published one."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256


def fetch(file: str, sha256: str, *, mirrors: tuple[str, ...], name: str) -> Path:
    """Return the file from the cache, downloading it first where it is not there.

    Args:
        file: The file's name.
        sha256: Its sum.
        mirrors: Addresses that end where the file's name begins, tried in this order.
        name: The data set's name, which is the folder in the cache.

    Raises:
        DownloadError: Where no mirror gave the file; says what each one answered.
    """
    pooch, folder = _pooch(), cache_folder(name)
    if pooch is None or folder is None:
        raise DownloadError("pooch is not installed")
    answers = []
    for mirror in mirrors:
        try:
            with _bar(file) as bar:
                downloader = pooch.HTTPDownloader(
                    progressbar=bar, chunk_size=CHUNK, timeout=TIMEOUT
                )
                path = pooch.retrieve(
                    mirror + file, f"sha256:{sha256}", file, folder, downloader=downloader
                )
            return Path(path)
        except (OSError, ValueError) as error:
            answers.append(f"{mirror}{file}: {error}")
    raise DownloadError("\n  ".join(answers))


def _pooch() -> ModuleType | None:
    try:
        import pooch
    except ImportError:
        return None
    return pooch


@contextmanager
def _bar(file: str) -> Iterator["_Bar"]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    columns = ("{task.description}", BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        yield _Bar(progress, progress.add_task(file, total=None))


class _Bar:
    """The face that pooch expects of a progress bar, drawn by Rich."""

    def __init__(self, progress: Any, task: Any):
        self.progress, self.task = progress, task

    @property
    def total(self) -> int:
        return self.progress.tasks[self.task].total

    @total.setter
    def total(self, total: int) -> None:
        self.progress.update(self.task, total=total)

    def update(self, n: int) -> None:
        self.progress.advance(self.task, n)

    def reset(self) -> None:
        self.progress.update(self.task, completed=0)

    def close(self) -> None:
        self.progress.stop()
