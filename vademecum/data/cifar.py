r"""CIFAR-10's binary format.

A record is $1 + 3 \cdot 32 \cdot 32 = 3073$ bytes: the label, then the red, green and blue planes,
each row by row. A batch file is 10,000 records and nothing else; five batches train, one tests.
The published archive is a gzipped tar of these six files, read here without unpacking it to disk.
"""

import io
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from vademecum.arguments import choice, whole
from vademecum.data._packed import unpacked
from vademecum.results import one_line

__all__ = ["CIFAR10_CLASSES", "Cifar10", "read_cifar10"]

CIFAR10_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
"""The names of the classes, in the order of their labels."""

RECORD = 1 + 3 * 32 * 32
FOLDER = "cifar-10-batches-bin"
TRAIN = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
TEST = ("test_batch.bin",)
BATCHES = {"train": TRAIN, "test": TEST, "all": TRAIN + TEST}

SLACK = 2**20
"""What an archive may hold besides its records: headers, padding, a readme, the class names."""


class Cifar10(NamedTuple):
    """The records as they are stored.

    Attributes:
        x: The pixels.
        y: The labels, 0 to 9.
    """

    x: UInt8[Tensor, " n 3 32 32"]
    y: Int64[Tensor, " n"]

    __repr__ = one_line


def read_cifar10(
    path: str | os.PathLike[str], *, split: str = "train", records: int = 10_000
) -> Cifar10:
    """Read CIFAR-10 from its archive or from the unpacked files.

    Args:
        path: The archive (a tar file, gzipped or not), the folder with the `.bin` files, or a
            folder with `cifar-10-batches-bin` in it.
        split: The five batches of "train", the one of "test", or "all" six.
        records: How many records each batch must have.

    Raises:
        ValueError: Where a batch is missing, has another length, has a label above 9, or the
            archive is broken or has more in it than these batches and a megabyte.
        FileNotFoundError: Where the path or one of the unpacked files does not exist.

    References:
        A. Krizhevsky, Learning multiple layers of features from tiny images, technical report,
        University of Toronto, 2009.
    """
    names = BATCHES[choice("split", split, tuple(BATCHES))]
    whole("records", records, low=1)
    x = np.empty((len(names) * records, 3, 32, 32), np.uint8)
    y = np.empty(len(names) * records, np.int64)

    def keep(place: int, where: str, batch: bytes) -> None:
        table = np.frombuffer(batch, np.uint8).reshape(records, RECORD)
        if (worst := table[:, 0].max()) > 9:
            raise ValueError(f"{where} must have labels 0 to 9, got {worst}")
        rows = slice(place * records, (place + 1) * records)
        y[rows] = table[:, 0]
        x[rows] = table[:, 1:].reshape(records, 3, 32, 32)

    read = _folder if Path(path).is_dir() else _archive
    read(Path(path), names, records * RECORD, keep)
    return Cifar10(torch.from_numpy(x), torch.from_numpy(y))


Keep = Callable[[int, str, bytes], None]


def _folder(path: Path, names: tuple[str, ...], size: int, keep: Keep) -> None:
    folder = path / FOLDER if (path / FOLDER).is_dir() else path
    for place, name in enumerate(names):
        with open(folder / name, "rb") as file:
            _length(str(folder / name), os.fstat(file.fileno()).st_size, size)
            batch = file.read(size + 1)
        _length(str(folder / name), len(batch), size)
        keep(place, str(folder / name), batch)


def _archive(path: Path, names: tuple[str, ...], size: int, keep: Keep) -> None:
    missing = set(names)
    with unpacked(path) as (stream, _):
        limited = _Limited(stream, path, len(BATCHES["all"]) * size + SLACK)
        try:
            for where, name, batch in _members(path, limited, names, size):
                if name not in missing:
                    raise ValueError(f"{where} must be there once, but is there again")
                missing.remove(name)
                keep(names.index(name), where, batch)
        except tarfile.TarError as error:
            raise ValueError(f"{path} must be a whole tar archive, but: {error}") from error
        if any(any(block) for block in iter(lambda: limited.read(2**16), b"")):
            raise ValueError(f"{path} must end where its tar archive ends, but goes on")
    if missing:
        raise ValueError(f"{path} must hold {', '.join(sorted(missing))}, but does not")


def _members(
    path: Path, stream: "_Limited", names: tuple[str, ...], size: int
) -> Iterator[tuple[str, str, bytes]]:
    with tarfile.open(fileobj=stream, mode="r:") as archive:  # type: ignore[arg-type]
        for member in archive:
            name = os.path.basename(member.name)
            file = archive.extractfile(member) if member.isreg() and name in names else None
            if file is not None:
                where = f"{name} in {path}"
                _length(where, member.size, size)
                batch = file.read()
                _length(where, len(batch), size)
                yield where, name, batch


def _length(where: str, got: int, size: int) -> None:
    if got != size:
        raise ValueError(
            f"{where} must be {size} bytes long ({size // RECORD} records of {RECORD}), got {got}"
        )


class _Limited:
    """A stream, read forwards, that refuses to give more than an honest archive can hold."""

    def __init__(self, stream: io.BufferedIOBase, path: Path, most: int):
        self.stream, self.path, self.most, self.at = stream, path, most, 0

    def read(self, n: int) -> bytes:
        data = self.stream.read(min(n, self.most - self.at + 1))
        self.at += len(data)
        if self.at > self.most:
            raise ValueError(f"{self.path} must unpack to at most {self.most} bytes, but goes on")
        return data

    def tell(self) -> int:
        return self.at

    def seek(self, place: int) -> None:
        while self.at < place and self.read(min(place - self.at, 2**16)):
            pass
