r"""Texts as portions of numbers: words or ids, from memory, an iterator or the lines of a file.

Texts are $(w_1, \dots, w_T)$ each; what follows sees portions of some $2^{19}$ tokens, an integer
for each token and for each the number of its text, so that texts of any number and any length pass
through a fixed memory. A text that is longer than a portion goes on in the next one.

Words get the numbers 0, 1, ... in the order of their first occurrence, unless a vocabulary says
otherwise: then words that are not in it get -1, which keeps their place.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from vademecum.arguments import whole

__all__ = ["PORTION", "Numbering", "Portion", "numbered"]

PORTION = 2**19
"""Tokens in a portion, about: large enough that NumPy's calls cost nothing beside their work."""

MOST = 2**31
"""Ids that there may be: two of them, or one and a place in a text, fit into 64 bits."""


class Portion(NamedTuple):
    """Some tokens in a row."""

    ids: np.ndarray
    """The number of each token."""
    texts: np.ndarray
    """The number of the text that each stands in, never decreasing."""


class Numbering:
    """Numbers for words; ids are their own numbers.

    Args:
        vocabulary: The words, how many ids there are, or None to learn either.
    """

    def __init__(self, vocabulary: Sequence[Any] | int | None):
        self._open = vocabulary is None
        self._ids: bool | None = isinstance(vocabulary, int) or None  # known with the first token
        self._size = 0
        words: Sequence[Any] = ()
        if isinstance(vocabulary, int):
            self._size = whole("vocabulary", vocabulary, low=1, high=MOST)
        elif vocabulary is not None:
            words = list(vocabulary)
            self._ids = False
        self._numbers = {word: i for i, word in enumerate(words)}
        if len(self._numbers) < len(words):
            raise ValueError(
                f"vocabulary must name each word once, got {len(words) - len(self._numbers)} twice"
            )
        if vocabulary is not None and not self._ids and not words:
            raise ValueError("vocabulary must not be empty")
        if self._open:
            self._numbers = defaultdict(int)
            self._numbers.default_factory = self._numbers.__len__

    def __len__(self) -> int:
        return self._size if self._ids else len(self._numbers)

    @property
    def words(self) -> Sequence[Any]:
        """The words in the order of their numbers; a range for ids."""
        return range(self._size) if self._ids else list(self._numbers)

    def __call__(self, texts: list[Any]) -> np.ndarray:
        """The numbers of all tokens of some texts, one after the other."""
        if self._ids is None:
            first = next((text[0] for text in texts if len(text)), None)
            self._ids = None if first is None else not isinstance(first, str)
        if self._ids:
            return self._checked(texts)
        old, words = len(self._numbers), chain.from_iterable(texts)
        number = self._numbers.__getitem__ if self._open else lambda w: self._numbers.get(w, -1)
        try:
            numbers = np.fromiter(map(number, words), np.int64)
        except TypeError as error:
            raise ValueError(f"texts must hold words or ids, got {error}") from error
        for word in islice(self._numbers, old, None):
            if not isinstance(word, str):
                raise ValueError(f"texts must hold words only, or ids only, got the token {word!r}")
        return numbers

    def _checked(self, texts: list[Any]) -> np.ndarray:
        arrays = [np.asarray(text) for text in texts if len(text)]
        ids = np.concatenate(arrays) if arrays else np.zeros(0, np.int64)
        if ids.dtype.kind not in "iu" or ids.ndim != 1:
            raise ValueError(f"texts must hold words or ids, got tokens of the type {ids.dtype}")
        if len(ids) and ids.min() < 0:
            raise ValueError(f"ids must be >= 0, got {ids.min()}")
        top = int(ids.max()) + 1 if len(ids) else 0
        if top > MOST:
            raise ValueError(f"ids must be < 2**31, got {top - 1}")
        if self._open:
            self._size = max(self._size, top)
        elif top > self._size:
            raise ValueError(f"ids must be < {self._size}, the vocabulary's size, got {top - 1}")
        return ids.astype(np.int64, copy=False)


def numbered(texts: Any, numbering: Numbering) -> Iterator[Portion]:
    """All tokens of texts, in portions.

    Args:
        texts: Texts of words (strings are split at white space) or of ids, from a list or an
            iterator; one text of ids as a tensor or array; the path of a file with a text on each
            line; or a function that gives any of these.
        numbering: What gives each token its number.
    """
    number = 0
    for batch in _batches(_pieces(texts)):
        ids = numbering([piece for piece, _ in batch])
        lengths = np.fromiter((len(piece) for piece, _ in batch), np.int64)
        ends = np.fromiter((end for _, end in batch), np.int64)
        numbers = number + ends.cumsum() - ends
        yield Portion(ids, numbers.repeat(lengths))
        number += int(ends.sum())


def _batches(pieces: Iterable[tuple[Any, bool]]) -> Iterator[list[tuple[Any, bool]]]:
    batch, size = [], 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece[0])
        if size >= PORTION:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _pieces(texts: Any) -> Iterator[tuple[Any, bool]]:
    """Pieces of texts, each with whether the text ends there."""
    if isinstance(texts, str | os.PathLike):
        yield from _read(texts)
        return
    if callable(texts) and not isinstance(texts, Tensor):
        yield from _pieces(texts())
        return
    texts = _in_memory(texts)
    if isinstance(texts, np.ndarray) and texts.ndim < 2 and texts.dtype.kind not in "UO":
        texts = [texts]
    if not isinstance(texts, Iterable) or isinstance(texts, bytes):
        kind = type(texts).__name__
        raise ValueError(f"texts must be texts, a path or a function that gives them, got {kind}")
    for text in texts:
        text = text.split() if isinstance(text, str) else _in_memory(text)
        if not _is_row(text):
            kind = type(text).__name__
            raise ValueError(f"each of texts must be a row of words or ids, got {kind}")
        for start in range(0, len(text), PORTION):
            yield text[start : start + PORTION], start + PORTION >= len(text)


def _is_row(x: Any) -> bool:
    return x.ndim == 1 if isinstance(x, np.ndarray) else isinstance(x, list | tuple | range)


def _in_memory(x: Any) -> Any:
    return x.detach().cpu().numpy() if isinstance(x, Tensor) else x


def _read(path: str | os.PathLike[str]) -> Iterator[tuple[list[str], bool]]:
    """The lines of a file, long ones in pieces that end between words."""
    if not os.path.isfile(path):
        raise ValueError(f"texts must be texts or the path of a file, got no file {str(path)!r}")
    rest = ""
    with open(path, encoding="utf-8") as file:
        try:
            while text := file.readline(4 * PORTION):
                text, ended = rest + text, text.endswith("\n")
                cut = len(text) if ended else _last_gap(text)
                rest = text[cut:]
                yield text[:cut].split(), ended
        except UnicodeDecodeError as error:
            odd = error.object[error.start]
            raise ValueError(f"texts must be UTF-8, got the byte {odd:#x} in {path}") from error
    if rest:
        yield rest.split(), True


def _last_gap(text: str) -> int:
    """Where the last word of a text begins, which may go on."""
    words = text.rsplit(maxsplit=1)
    return len(text) - len(words[-1]) if words and not text[-1].isspace() else len(text)
