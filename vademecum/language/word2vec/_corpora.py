r"""Texts as numbers: one pass over the words gives the vocabulary, and each pass the words again.

Words are numbered as they come, and again by falling frequency once all have been seen. While the
numbers fit into the memory they are kept, and the texts are read once; beyond, they are read in
every pass, a portion at a time, so that neither the number of texts nor their lengths is limited.
"""

import os
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Corpus", "Portion", "read_corpus"]

PORTION = 2**18  # words, and characters of a file, that are read at a time
KEPT = 2**30  # bytes of numbers that are kept where no limit is given: 134 million words
_TEXTS = 2**30  # texts are counted round and round: only neighbours are told apart

Pieces = Callable[[], Iterator[tuple[Sequence[str], bool]]]


class Portion(NamedTuple):
    """Some words in their order."""

    ids: np.ndarray
    """The numbers of the words."""
    texts: np.ndarray
    """The number of the text that each stands in."""


class Corpus(NamedTuple):
    """The vocabulary of texts, by falling frequency, and how to go through them."""

    words: list[str]
    counts: np.ndarray
    portions: Callable[[], Iterator[Portion]]

    @property
    def total(self) -> int:
        """How many words of the vocabulary the texts have, one after the other."""
        return int(self.counts.sum())


def read_corpus(texts: Any, *, min_count: int, memory: int | None) -> Corpus:
    """Go through the texts once.

    Args:
        texts: A path, texts, or a function that gives an iterator over texts; each is a string or
            a sequence of words.
        min_count: Rarer words are left out, as if they were not there.
        memory: Bytes of numbers to keep.

    Raises:
        ValueError: If there are no words, or what is given is no text.
    """
    pieces, again = _pieces(texts)
    table: defaultdict[str, int] = defaultdict()
    table.default_factory = table.__len__
    limit, kept, size = KEPT if memory is None else memory, [], 0
    counts = np.zeros(0, np.int64)
    for portion in _numbered(pieces, table.__getitem__):
        found = np.bincount(portion.ids, minlength=len(table))
        counts = np.pad(counts, (0, len(found) - len(counts))) + found
        size += portion.ids.nbytes + portion.texts.nbytes
        if size > limit:
            kept.clear()
            if not again:
                raise ValueError(
                    f"texts must be a function that gives an iterator where more than {limit}"
                    " bytes of numbers are needed: what is given can be read only once"
                )
        else:
            kept.append(portion)
    words = list(table)
    if not all(isinstance(word, str) for word in words):
        odd = next(word for word in words if not isinstance(word, str))
        raise ValueError(f"words of texts must be strings, got {odd!r}")
    return _corpus(words, counts, min_count, kept if size <= limit else None, pieces)


def _corpus(
    words: list[str], counts: np.ndarray, least: int, kept: list[Portion] | None, pieces: Pieces
) -> Corpus:
    if not words:
        raise ValueError("texts must have words, got none")
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] >= least]
    if not len(order):
        most = words[int(counts.argmax())]
        raise ValueError(
            f"min_count must leave some words, got {least} where the most frequent, {most!r},"
            f" comes {counts.max()} times"
        )
    number = np.full(len(words), -1, np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    chosen = [words[i] for i in order]
    if kept is not None:
        for i, portion in enumerate(kept):
            kept[i] = _known(Portion(number[portion.ids], portion.texts))
        return Corpus(chosen, counts[order], lambda: iter(kept))
    index = {word: i for i, word in enumerate(chosen)}
    total = int(counts[order].sum())
    return Corpus(chosen, counts[order], lambda: _reread(pieces, index, total))


def _known(portion: Portion) -> Portion:
    known = portion.ids >= 0
    return Portion(portion.ids[known], portion.texts[known])


def _reread(pieces: Pieces, index: dict[str, int], total: int) -> Iterator[Portion]:
    seen = 0
    for portion in _numbered(pieces, lambda word: index.get(word, -1)):
        portion = _known(portion)
        seen += len(portion.ids)
        yield portion
    if seen != total:
        raise ValueError(
            f"texts must be the same in every pass, got {total} words first and {seen} now"
        )


def _numbered(pieces: Pieces, number: Callable[[str], int]) -> Iterator[Portion]:
    """Portions of about the same length, with texts cut where they are longer."""
    ids, lengths, first, ended = array("i"), [], 0, True
    for words, ends in pieces():
        before = len(ids)
        ids.extend(map(number, words))
        if ended or not lengths:
            lengths.append(0)
        lengths[-1] += len(ids) - before
        ended = ends
        if len(ids) >= PORTION:
            yield _portion(ids, lengths, first)
            first += len(lengths) - (not ended)
            ids, lengths = array("i"), []
    if ids:
        yield _portion(ids, lengths, first)


def _portion(ids: array, lengths: list[int], first: int) -> Portion:
    numbers = (first + np.arange(len(lengths))) % _TEXTS
    return Portion(np.array(ids, np.int32), np.repeat(numbers, lengths).astype(np.int32))


def _pieces(texts: Any) -> tuple[Pieces, bool]:
    """A function that goes through runs of words, each with whether its text ends there.

    Also whether it can be called again.
    """
    if isinstance(texts, str | os.PathLike):
        if not os.path.isfile(texts):
            raise ValueError(f"texts must name a file or be a list of texts, got {str(texts)!r}")
        return lambda: _read(texts), True
    if callable(texts):
        return lambda: _split(texts()), True
    if not isinstance(texts, Iterable) or isinstance(texts, bytes):
        raise ValueError(f"texts must be a path, texts or a function, got {type(texts).__name__}")
    return lambda: _split(texts), iter(texts) is not texts


def _split(texts: Any) -> Iterator[tuple[Sequence[str], bool]]:
    for text in texts:
        if isinstance(text, str):
            yield text.split(), True
        elif isinstance(text, list | tuple):
            yield text, True
        else:
            kind = type(text).__name__
            raise ValueError(f"each of texts must be a string or a list of words, got {kind}")


def _read(path: str | os.PathLike[str]) -> Iterator[tuple[Sequence[str], bool]]:
    """The lines of a file; a long one in runs that end between words."""
    rest = ""
    with open(path, encoding="utf-8") as file:
        try:
            while chunk := file.read(PORTION):
                *lines, rest = (rest + chunk).split("\n")
                yield from ((line.split(), True) for line in lines)
                if len(rest) > PORTION:
                    head, _, rest = rest.rpartition(" ")
                    yield head.split(), False
        except UnicodeDecodeError as error:
            odd = error.object[error.start]
            raise ValueError(f"texts must be UTF-8, got byte {odd:#x} in {path}") from error
    yield rest.split(), True
