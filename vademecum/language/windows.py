r"""Which words occur near which: counts of co-occurrence within a window.

In a text $(w_1, \dots, w_T)$ the pairs of positions $C_R = \{(i, j) : 1 \le |i - j| \le R\}$ are
near each other, regardless of the words in between; there are $2 R T - R (R + 1)$ of them for
$T > R$. The co-occurrence matrix counts them by their words,

$$C_{vw} = \sum_{(i, j) \in C_R} g(|i - j|)\, [w_i = v]\, [w_j = w] = C_{wv},$$

with $g = 1$, or $g(r) = 1 / r$ so that near words count more. Pairs do not reach across texts.

Each portion of the texts gives the keys of its pairs, of a few distances at a time, in one array,
which is sorted and counted; the sparse matrices of all, of pairs in one order, are added, and their
sum and its transpose is $C$. Exact, and of the size of what is counted, not of the texts. The
claims are `cooccurrence_pairs` and `cooccurrence_matrix`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int
from scipy.sparse import csr_array

from vademecum.arguments import choice, whole
from vademecum.language._corpora import Numbering, Portion, numbered
from vademecum.results import one_line

__all__ = ["Cooccurrence", "cooccurrence"]

HALF = 32
"""Bits of a key for each of its two words."""
TOGETHER = 16
"""Distances whose pairs are sorted in one array: of a portion 64 MiB, however wide the window."""


class Cooccurrence(NamedTuple):
    """Words and how often they occur near each other.

    Example:
        >>> found = cooccurrence(["a rose is a rose"], window=1)
        >>> found.vocabulary, found.frequencies.tolist()
        (['a', 'rose', 'is'], [2, 2, 1])
    """

    vocabulary: Sequence[Any]
    """The words, in the order of rows and columns; a range where tokens are ids."""
    counts: csr_array
    """The symmetric matrix $C$, sparse: integers, or floats if near pairs count more."""
    frequencies: Int[np.ndarray, " words"]
    """How often each word occurs."""

    __repr__ = one_line


def cooccurrence(
    texts: Any,
    *,
    window: int = 5,
    weighting: str = "flat",
    min_count: int = 1,
    vocabulary: Sequence[Any] | int | None = None,
) -> Cooccurrence:
    r"""Count how often words occur near each other.

    Args:
        texts: Texts of words (strings are split at white space) or of ids, from a list or an
            iterator; one text of ids as a tensor or array; the path of a file with a text on each
            line; or a function that gives any of these. They are gone through once, and a file or
            an iterator is never held in memory.
        window: The largest distance $R$ at which words are near.
        weighting: "flat", where each pair counts 1, or "harmonic", where it counts 1 / distance.
        min_count: How often a word must occur to be counted. Rarer ones keep their place in the
            text, and so do those that a given vocabulary lacks.
        vocabulary: The words to count, in the order of rows, or how many ids there are; by default
            those that occur, in the order of their first occurrence.

    Raises:
        ValueError: If there is not a single token to count, a token is no word or id, an id is out
            of range, or a number is.

    Example:
        >>> found = cooccurrence(["a b a", "b c"], window=2)
        >>> found.counts.toarray().tolist()  # a a once, in both orders; a b twice; b c once
        [[2, 2, 0], [2, 0, 1], [0, 1, 0]]
    """
    whole("window", window, low=1)
    choice("weighting", weighting, ("flat", "harmonic"))
    whole("min_count", min_count, low=1)
    numbering = Numbering(vocabulary)
    half, frequencies = csr_array((0, 0), dtype=np.int64), np.zeros(0, np.int64)
    for portion, fresh in _overlapping(numbered(texts, numbering), window):
        size = len(numbering)
        frequencies = _longer(frequencies, size)
        known = portion.ids[fresh:]
        frequencies += np.bincount(known[known >= 0], minlength=size)
        half.resize((size, size))
        for distances, weight in _groups(window, weighting):
            half = half + weight * _pairs(portion, fresh, distances, size)
    if not frequencies.sum():
        raise ValueError("texts must hold a token to count, got none")
    words, counts = numbering.words, csr_array(half + half.T)
    kept = np.flatnonzero(frequencies >= min_count)
    if len(kept) < len(words) and min_count > 1:
        words, counts = [words[i] for i in kept.tolist()], csr_array(counts[kept][:, kept])
        frequencies = frequencies[kept]
    return Cooccurrence(words, counts, frequencies)


def _groups(window: int, weighting: str) -> Iterator[tuple[Sequence[int], Any]]:
    """Distances that count the same, and how much."""
    if weighting == "flat":
        for first in range(1, window + 1, TOGETHER):
            yield range(first, min(first + TOGETHER, window + 1)), 1
        return
    for distance in range(1, window + 1):
        yield (distance,), 1 / distance


def _overlapping(portions: Iterator[Portion], window: int) -> Iterator[tuple[Portion, int]]:
    """Portions with the last tokens of those before, and how many of these each begins with."""
    last = Portion(np.zeros(0, np.int64), np.zeros(0, np.int64))
    for portion in portions:
        both = Portion(*(np.concatenate(pair) for pair in zip(last, portion, strict=True)))
        yield both, len(last.ids)
        last = Portion(both.ids[-window:], both.texts[-window:])


def _pairs(portion: Portion, fresh: int, distances: Sequence[int], size: int) -> csr_array:
    """The counts of pairs of tokens of a portion, the second one fresh, smaller word first."""
    keys = [np.zeros(0, np.int64)]
    for distance in distances:
        start = max(fresh - distance, 0)
        one, other = portion.ids[start:-distance], portion.ids[start + distance :]
        near = portion.texts[start:-distance] == portion.texts[start + distance :]
        near &= (one >= 0) & (other >= 0)
        one, other = one[near], other[near]
        keys.append(np.minimum(one, other) << HALF | np.maximum(one, other))
    keys = np.concatenate(keys)
    keys.sort()
    first = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1]))[: len(keys)])
    counts = np.diff(first, append=len(keys))
    keys = keys[first]
    starts = np.searchsorted(keys, np.arange(size + 1) << HALF)
    columns = keys & ((1 << HALF) - 1)
    return csr_array((counts, columns, starts), shape=(size, size))


def _longer(x: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate((x, np.zeros(size - len(x), x.dtype)))
