"""Files that are never half written."""

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["replacing", "write_atomically"]


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary file to write, which takes the place of another when all went well.

    It lies beside the other one, goes to the disk, and then under its name.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with replacing(f"{folder}/new/a.bin") as temporary:
        ...         _ = temporary.write_bytes(b"whole")
        ...     Path(f"{folder}/new/a.bin").read_bytes()
        b'whole'
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        yield Path(name)
        with open(name, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_atomically(path: str | Path, content: str | Iterable[bytes]) -> None:
    """Replace a file's content, or leave it as it was.

    The content is a text, or bytes in portions.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write_atomically(f"{folder}/new/a.txt", "whole")
        ...     Path(f"{folder}/new/a.txt").read_text()
        'whole'
    """
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.writelines([content.encode()] if isinstance(content, str) else content)
