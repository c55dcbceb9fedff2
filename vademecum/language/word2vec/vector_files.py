r"""Word vectors in the format of word2vec, text and binary.

A file begins with a line $V\ d$. The text form goes on with a line for each word: the word and $d$
decimal numbers, with spaces between them. In the binary form a word is followed by a space and $d$
little-endian numbers of single precision; some writers put a line break after them. Both are
written with numbers of single precision, in the text form with the nine digits that give all of it
back. A file is read only if it is just as long as its first line says.
"""

import os
from collections.abc import Iterator, Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import choice
from vademecum.files import write_atomically
from vademecum.language.word2vec.vocabularies import WordVectors

__all__ = ["read_word2vec", "write_word2vec"]

_ROWS = 4096  # words that are written at a time
_WORD = 2**16  # bytes that a word may have
Errors = Literal["strict", "replace", "ignore"]


def write_word2vec(
    path: str | os.PathLike[str],
    words: Sequence[str],
    vectors: Float[Tensor, " V d"],
    *,
    binary: bool = False,
) -> None:
    """Write words and their vectors, all of the file or nothing.

    Args:
        path: The file.
        words: The words, without spaces and line breaks.
        vectors: Their vectors, a row each, written in single precision.
        binary: Whether to write the binary form, a third as long.

    Raises:
        ValueError: If a word comes twice, is empty or has a space, or there is not one finite
            vector for each.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_word2vec(f"{folder}/v.txt", ["a", "b"], torch.tensor([[0.1, 2], [3, 4]]))
        ...     print(Path(f"{folder}/v.txt").read_text(), end="")
        2 2
        a 0.100000001 2
        b 3 4
    """
    known = WordVectors(words, vectors.detach())
    for word in known.words:
        if not word or any(gap in word for gap in " \n"):
            raise ValueError(f"words must have no space or line break and not be empty: {word!r}")
    rows = known.vectors.to("cpu", torch.float32).numpy()
    if not np.isfinite(rows).all():
        raise ValueError("vectors must be finite in single precision, got larger numbers")
    write_atomically(Path(path), _written(known.words, rows, binary))


def _written(words: Sequence[str], rows: np.ndarray, binary: bool) -> Iterator[bytes]:
    V, d = rows.shape
    yield f"{V} {d}\n".encode()
    line = "%s" + " %.9g" * d + "\n"
    for start in range(0, V, _ROWS):
        some = zip(words[start : start + _ROWS], rows[start : start + _ROWS], strict=True)
        if binary:
            yield b"".join(word.encode() + b" " + row.astype("<f4").tobytes() for word, row in some)
        else:
            yield "".join(line % (word, *row.tolist()) for word, row in some).encode()


def read_word2vec(path: str | os.PathLike[str], *, errors: Errors = "strict") -> WordVectors:
    """Read words and their vectors, text or binary: which it is, the file tells.

    Args:
        path: The file.
        errors: What to do with words that are not UTF-8, as in `open`: an error by default, or
            what cannot be read is replaced or left out.

    Raises:
        ValueError: If the file is not of this form, is shorter or longer than its first line says,
            has a word twice, or numbers that are not finite. No memory is set aside for vectors
            that the file cannot hold.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_word2vec(f"{folder}/v.bin", ["a", "b"], torch.eye(2), binary=True)
        ...     known = read_word2vec(f"{folder}/v.bin")
        >>> known, known["b"]
        (WordVectors(2 words, d=2), tensor([0., 1.]))
    """
    choice("errors", errors, ("strict", "replace", "ignore"))
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        V, d = _header(file, path)
        start = file.tell()
        text = 2 * V * d <= size and _is_text(file, d)
        file.seek(start)
        if V * (2 * d if text else 4 * d + 2) > size:
            raise ValueError(f"{path} must hold {V} vectors of {d} numbers, got {size} bytes")
        rows = np.empty((V, d), np.float32)
        words = (_text if text else _binary)(file, rows, path)
        if file.read(16).strip():
            raise ValueError(f"{path} must end after {V} words, got more")
    return WordVectors(_decoded(words, errors, path), torch.from_numpy(rows))


def _header(file: BinaryIO, path: str | os.PathLike[str]) -> tuple[int, int]:
    line = file.readline(100)
    sizes = line.split()
    if len(sizes) != 2 or not all(size.isdigit() and int(size) for size in sizes):
        raise ValueError(
            f"{path} must begin with two numbers, words and entries, got {line[:40]!r}"
        )
    return int(sizes[0]), int(sizes[1])


def _is_text(file: BinaryIO, d: int) -> bool:
    """Whether the first row is a line with a word and d decimal numbers."""
    parts = file.readline(_WORD + 64 * d).split()[-d:]
    try:
        return len([float(part) for part in parts]) == d
    except ValueError:
        return False


def _text(file: BinaryIO, rows: np.ndarray, path: str | os.PathLike[str]) -> list[bytes]:
    words, d = [], rows.shape[1]
    for i in range(len(rows)):
        line = file.readline()
        parts = line.rstrip().split(b" ")
        if len(parts) != d + 1:
            where = f"word {i + 1} of {len(rows)}"
            raise ValueError(f"{path} must have {d} numbers for {where}, got {len(parts) - 1}")
        if not line.endswith(b"\n"):
            raise ValueError(f"{path} must end with a line break: it may have been cut off")
        try:
            rows[i] = [float(part) for part in parts[1:]]
        except ValueError as error:
            raise ValueError(f"{path} must have numbers for word {i + 1}: {error}") from error
        words.append(parts[0])
    return words


def _binary(file: BinaryIO, rows: np.ndarray, path: str | os.PathLike[str]) -> list[bytes]:
    words, length, at = [], 4 * rows.shape[1], file.tell()
    with mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        for i in range(len(rows)):
            gap = content.find(b" ", at, at + _WORD)
            at, start = gap + 1 + length, at
            if gap < 0 or at > len(content):
                where = f"an end within word {i + 1}"
                raise ValueError(f"{path} must hold {len(rows)} words, got {where}")
            rows[i] = np.frombuffer(content[gap + 1 : at], "<f4")
            words.append(content[start:gap].lstrip(b"\n"))
    file.seek(at)
    return words


def _decoded(words: list[bytes], errors: Errors, path: str | os.PathLike[str]) -> list[str]:
    found = []
    for i, word in enumerate(words):
        try:
            found.append(word.decode(errors=errors))
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} must be UTF-8, got {word[:40]!r} as word {i + 1}") from error
    return found
