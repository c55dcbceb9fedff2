r"""A matrix in one NumPy file, and beside it a journal of the tiles that are finished.

The journal `NAME.tiles` is a line of JSON that says what is built, then one byte for each tile: `.`
for missing, `x` for finished. Tiles go to the disk before their bytes do, so that a byte `x` is
never before its tile, whenever the process is killed or the power fails. Several ranks write
different tiles and different bytes.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch import distributed as dist

from vademecum.files import write_atomically

__all__ = ["TileFile"]

_SECONDS = 2.0  # of work that a kill may cost, at most: how often tiles are put on record
_KINDS = {torch.float64: "<f8", torch.float32: "<f4", torch.float16: "<f2"}


class TileFile:
    """A matrix in a file, open for the tiles that are missing."""

    values: Tensor
    """The matrix as a tensor that reads and writes the file."""
    missing: list[int]
    """The numbers of the tiles that were missing when the file was opened."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        build: dict[str, Any],
        tiles: int,
        dtype: torch.dtype,
        *,
        rank: int,
        world: int,
    ):
        if dtype not in _KINDS:
            raise ValueError(f"out must be a tensor for {dtype}, which NumPy's files cannot hold")
        self._path = Path(path)
        self._journal = self._path.with_name(self._path.name + ".tiles")
        self._build = {**build, "dtype": _KINDS[dtype]}
        self._tiles, self._rank, self._world = tiles, rank, world
        self._head = (json.dumps(self._build, sort_keys=True) + "\n").encode()
        self._waiting: list[int] = []

    def __enter__(self) -> "TileFile":
        told: list[Any] = self._opened() if self._rank == 0 else [None, None]
        if self._world > 1:  # one rank reads the journal, before any writes into it
            dist.broadcast_object_list(told, src=0)
        problem, self.missing = told
        if problem is not None:
            raise ValueError(problem)
        self._array = np.load(self._path, mmap_mode="r+")
        self.values = torch.from_numpy(self._array)
        self._marks = open(self._journal, "rb+", buffering=0)
        self._since = time.monotonic()
        return self

    def __exit__(self, *error: object) -> None:
        self._record()
        self._marks.close()
        if self._world > 1 and error[0] is None:
            dist.barrier()

    def finished(self, tile: int) -> None:
        """Note that a tile is written; it goes on record within seconds."""
        self._waiting.append(tile)
        if time.monotonic() - self._since > _SECONDS:
            self._record()

    def _record(self) -> None:
        if self._waiting:
            self._array.flush()
            for tile in self._waiting:
                self._marks.seek(len(self._head) + tile)
                self._marks.write(b"x")
            os.fsync(self._marks.fileno())
            self._waiting.clear()
        self._since = time.monotonic()

    def _opened(self) -> list[Any]:
        """What is wrong with the file, or None and the numbers of the missing tiles."""
        problem = self._problem()
        if problem is not None:
            return [problem, []]
        self._begin()
        marks = self._journal.read_bytes()[len(self._head) :]
        return [None, [i for i, mark in enumerate(marks) if mark != ord("x")]]

    def _problem(self) -> str | None:
        """Why the file cannot be what this build began, or None."""
        if not self._journal.exists():
            if not self._path.exists():
                return None
            return (
                f"out must be a new file, or one that the same build began, got {self._path},"
                f" which has no journal {self._journal.name} beside it"
            )
        head, _, marks = self._journal.read_bytes().partition(b"\n")
        try:
            found = json.loads(head)
        except ValueError:
            found = None
        found = found if isinstance(found, dict) else {}
        if found != self._build or len(marks) != self._tiles:
            other = [
                f"{name} ({found.get(name)}, here {mine})" if name != "key" else "kernel or data"
                for name, mine in self._build.items()
                if found.get(name) != mine
            ]
            return (
                f"out must be a new file, or one that the same build began, got {self._path}"
                f" of a build with another {', '.join(other) or 'form'}"
            )
        if b"x" not in marks or not self._path.exists():
            return None
        return self._wrong_file()

    def _wrong_file(self) -> str | None:
        try:
            array = np.load(self._path, mmap_mode="r")
        except ValueError as error:  # no NumPy file, or one that was cut short
            return f"out must be the file that its journal describes, got {self._path}: {error}"
        if list(array.shape) != self._build["shape"] or array.dtype.str != self._build["dtype"]:
            return (
                f"out must be the file that its journal describes, got {self._path} with"
                f" {array.dtype} of shape {array.shape}"
            )
        return None

    def _begin(self) -> None:
        """The journal first, so that a kill in between leaves nothing that would be refused."""
        if self._journal.exists():
            marks = self._journal.read_bytes()[len(self._head) :]
            if b"x" in marks and self._path.exists():
                return
        write_atomically(self._journal, [self._head, b"." * self._tiles])
        kind, shape = np.dtype(self._build["dtype"]), tuple(self._build["shape"])
        np.lib.format.open_memmap(os.fspath(self._path), "w+", kind, shape)
