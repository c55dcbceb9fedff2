r"""Words with vectors: which are near, and which stand to one as others to another.

Nearness is the cosine $\cos(x, y) = \langle x, y \rangle / (\|x\| \|y\|)$, and
$a : b = c : {?}$ is answered by the word nearest to $\hat b - \hat a + \hat c$, with vectors of
length one and without the three words themselves. Exact; all words are looked at.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats, whole
from vademecum.arrays import lengths
from vademecum.results import one_line

__all__ = ["Neighbours", "WordVectors"]

_LIKE = 20_000  # words that a misspelt one is compared with: some 0.2 s


class Neighbours(NamedTuple):
    """The words nearest to something.

    Example:
        >>> vectors = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 4.0]])
        >>> WordVectors(["a", "b", "c"], vectors).neighbours("a")
        Neighbours(words=('b', 'c'), cosines=tensor([1.0000, 0.6000]))
    """

    words: tuple[str, ...]
    """The words, the nearest first."""
    cosines: Tensor
    """The cosine of each."""

    __repr__ = one_line


class WordVectors:
    """A vocabulary and a vector for each of its words.

    Args:
        words: The words, all different.
        vectors: Their vectors, a row each.

    Attributes:
        words: The words.
        vectors: Their vectors.

    Raises:
        ValueError: If a word comes twice, or there is not one finite vector for each.

    References:
        Mikolov, Sutskever, Chen, Corrado and Dean, Distributed representations of words and phrases
        and their compositionality, NeurIPS, 2013.

    Example:
        >>> known = WordVectors(["king", "queen"], torch.tensor([[3.0, 4.0], [0.0, 2.0]]))
        >>> known["queen"], len(known), "prince" in known
        (tensor([0., 2.]), 2, False)
    """

    def __init__(self, words: Sequence[str], vectors: Float[Tensor, " V d"]):
        self.words, self.vectors = tuple(words), floats("vectors", vectors, ndim=2)
        if len(self.words) != len(vectors):
            raise ValueError(
                f"vectors must have a row for each of {len(self.words)} words, got {len(vectors)}"
            )
        self._index = {word: i for i, word in enumerate(self.words)}
        if len(self._index) < len(self.words):
            twice = next(w for i, w in enumerate(self.words) if self._index[w] != i)
            raise ValueError(f"words must be different, got {twice!r} twice")
        self._directions: Tensor | None = None

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._index

    def __getitem__(self, word: str) -> Float[Tensor, " d"]:
        """The vector of a word.

        Raises:
            ValueError: If the word is unknown.
        """
        return self.vectors[self.place(word)]

    def __repr__(self) -> str:
        return f"WordVectors({len(self)} words, d={self.vectors.shape[1]})"

    def place(self, word: str) -> int:
        """The number of a word's row.

        Raises:
            ValueError: If the word is unknown; the message proposes words that look like it.

        Example:
            >>> WordVectors(["tensor", "vector"], torch.eye(2)).place("tensors")
            Traceback (most recent call last):
            ValueError: word must be in the vocabulary of 2 words, got 'tensors'; near are 'tensor'
        """
        if word in self._index:
            return self._index[word]
        near = get_close_matches(str(word), self.words[:_LIKE], 3)
        hint = f"; near are {', '.join(map(repr, near))}" if near else ""
        message = f"word must be in the vocabulary of {len(self)} words, got {word!r}{hint}"
        raise ValueError(message)

    def neighbours(self, word: str, k: int = 10) -> Neighbours:
        """The k words nearest to a word, itself left out.

        Args:
            word: The word.
            k: How many; fewer if the vocabulary has not so many.

        Raises:
            ValueError: If the word is unknown or k is not positive.
        """
        place = self.place(word)
        return self._nearest(self._units()[place], [place], k)

    def analogy(self, a: str, b: str, c: str, k: int = 10) -> Neighbours:
        """The k words that are to c what b is to a.

        Args:
            a: What is compared, such as "man".
            b: What it is compared with, such as "king".
            c: What the answer is to be compared with, such as "woman".
            k: How many; fewer if the vocabulary has not so many.

        Raises:
            ValueError: If a word is unknown or k is not positive.

        Example:
            >>> vectors = torch.tensor([[1.0, 0.0], [1.0, 1.0], [-1.0, 0.0], [-1.0, 1.0]])
            >>> known = WordVectors(["man", "king", "woman", "queen"], vectors)
            >>> known.analogy("man", "king", "woman").words
            ('queen',)
        """
        places = [self.place(word) for word in (a, b, c)]
        one, other, third = self._units()[places]
        return self._nearest(other - one + third, places, k)

    def _units(self) -> Tensor:
        """The directions of all vectors; a vector of zeros has none, and stays."""
        if self._directions is None:
            size = lengths(self.vectors.detach(), 1, keepdim=True)
            self._directions = self.vectors.detach() / torch.where(size > 0, size, 1)
        return self._directions

    def _nearest(self, goal: Tensor, left_out: list[int], k: int) -> Neighbours:
        whole("k", k, low=1)
        cosines = self._units() @ torch.nn.functional.normalize(goal, dim=0)
        cosines[left_out] = -torch.inf
        k = min(k, len(self) - len(set(left_out)))
        top = cosines.topk(k)
        return Neighbours(tuple(self.words[i] for i in top.indices.tolist()), top.values)
