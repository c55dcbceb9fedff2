r"""Opening a file that may be gzipped, with a bound on what it can hold.

A deflate stream spends at least two bits on a match of at most 258 bytes, so that $s$ bytes of gzip
hold at most $258 \cdot 8 / 2 \cdot s = 1032 s$ bytes. A header that promises more than that is
wrong, and is refused before any memory is set aside for it.
"""

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["DEFLATE_RATIO", "unpacked"]

DEFLATE_RATIO = 1032
"""The most bytes that one byte of a deflate stream can stand for."""


@contextmanager
def unpacked(path: str | os.PathLike[str]) -> Iterator[tuple[io.BufferedIOBase, int]]:
    """Open a plain or gzipped file and bound its unpacked size.

    Args:
        path: The file.

    Yields:
        The unpacked stream, and the most bytes that it can hold (exactly what it holds where the
        file is plain).

    Raises:
        ValueError: Where the gzip stream turns out broken while it is read.
    """
    with open(path, "rb") as raw:
        size = os.fstat(raw.fileno()).st_size
        zipped = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if not zipped:
            yield raw, size
            return
        try:
            with gzip.GzipFile(fileobj=raw) as stream:
                yield stream, DEFLATE_RATIO * size
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{path} must be a whole gzip file, but: {error}") from error
