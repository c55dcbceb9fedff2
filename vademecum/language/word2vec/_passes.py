r"""Passes over texts: the first gives the vocabulary, and each the words as numbers.

Words are numbered as they come, and again by falling frequency once all have been seen. While the
numbers fit into the memory they are kept, and the texts are read once; beyond, they are read in
every pass, a portion at a time, so that neither the number of texts nor their lengths is limited.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from vademecum.language._corpora import Numbering, Portion, numbered

__all__ = ["Corpus", "read_corpus"]

KEPT = 2**30  # bytes of numbers that are kept where no limit is given: 134 million words
_TEXTS = 2**30  # texts are counted round and round: only neighbours are told apart


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
    limit, kept, size = KEPT if memory is None else memory, [], 0
    counts, numbering = np.zeros(0, np.int64), Numbering(None)
    for portion in _small(texts, numbering):
        found = np.bincount(portion.ids, minlength=len(numbering))
        counts = np.pad(counts, (0, len(found) - len(counts))) + found
        size += portion.ids.nbytes + portion.texts.nbytes
        if size <= limit:
            kept.append(portion)
            continue
        kept.clear()
        if isinstance(texts, Iterator):
            raise ValueError(
                f"texts must be a function that gives an iterator where more than {limit}"
                " bytes of numbers are needed: what is given can be read only once"
            )
    if not len(numbering):
        raise ValueError("texts must have words, got none")
    return _corpus(list(numbering.words), counts, min_count, kept if size <= limit else None, texts)


def _small(texts: Any, numbering: Numbering) -> Iterator[Portion]:
    """Portions of words in half of the memory."""
    for portion in numbered(texts, numbering):
        if isinstance(numbering.words, range):
            raise ValueError("texts must hold words, got ids")
        yield Portion(portion.ids.astype(np.int32), (portion.texts % _TEXTS).astype(np.int32))


def _corpus(
    words: list[str], counts: np.ndarray, least: int, kept: list[Portion] | None, texts: Any
) -> Corpus:
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
    total = int(counts[order].sum())
    return Corpus(chosen, counts[order], lambda: _reread(texts, chosen, total))


def _known(portion: Portion) -> Portion:
    known = portion.ids >= 0
    return Portion(portion.ids[known], portion.texts[known])


def _reread(texts: Any, words: list[str], total: int) -> Iterator[Portion]:
    seen = 0
    for portion in map(_known, _small(texts, Numbering(words))):
        seen += len(portion.ids)
        yield portion
    if seen != total:
        raise ValueError(
            f"texts must be the same in every pass, got {total} words first and {seen} now"
        )
