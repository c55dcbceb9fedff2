"""Files that are never half written."""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

__all__ = ["replacing", "write_atomically"]


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary file to write, which takes the place of another when all went well.

    It lies beside the other one, goes to the disk, and then under its name. Who may read it stays
    as it was; where nothing was, it is as for every new file.

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
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    temporary.touch(exist_ok=False)
    try:
        mode = stat.S_IMODE((path if path.exists() else temporary).stat().st_mode)
        yield temporary
        temporary.chmod(mode)  # whoever wrote it may have made another one of that name
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
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
