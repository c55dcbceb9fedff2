"""Words in pieces: no word is unknown."""

from collections.abc import Callable, Collection
from functools import cache

import torch

from vademecum.claims import claim, equals
from vademecum.language import wordpiece as longest_first

Split = Callable[[str, Collection[str]], list[str]]
_LETTERS = "abcdé"


def shortest_first(word: str, vocabulary: Collection[str]) -> list[str]:
    """Split a word greedily into the shortest pieces."""
    pieces: list[str] = []
    start = 0
    while start < len(word):
        mark = "##" if start else ""
        ends = range(start + 1, len(word) + 1)
        end = next((e for e in ends if mark + word[start:e] in vocabulary), None)
        if end is None:
            return ["[UNK]"]
        pieces.append(mark + word[start:end])
        start = end
    return pieces


def with_letters(pieces: Collection[str], letters: str) -> set[str]:
    """Pieces, and all letters as beginnings and as continuations."""
    return {*pieces, *letters, *(f"##{letter}" for letter in letters)}


def fewest(word: str, vocabulary: Collection[str]) -> int:
    """The least number of pieces that a word can be split into, over all ways to do so."""

    @cache
    def rest(start: int) -> int:
        mark = "##" if start else ""
        ends = [e for e in range(start + 1, len(word) + 1) if mark + word[start:e] in vocabulary]
        return 0 if start == len(word) else 1 + min(map(rest, ends))

    return rest(0)


def drawn(letters: str, most: int) -> str:
    """A random word of at most so many letters."""
    places = torch.randint(len(letters), (int(torch.randint(1, most + 1, ())),)).tolist()
    return "".join(letters[i] for i in places)


def longer(word: str, pieces: list[str], vocabulary: Collection[str]) -> int:
    """How many pieces have a longer one of the vocabulary in their places."""
    start, count = 0, 0
    for piece in pieces:
        mark = "##" if start else ""
        size = len(piece) - len(mark)
        ends = range(start + size + 1, len(word) + 1)
        count += any(mark + word[start:e] in vocabulary for e in ends)
        start += size
    return count


@claim(by="sampling", sources=("B-409", "D-308"), budget=0.5)
def wordpiece(split: Split = longest_first, beyond: int = 1, words: int = 1000):
    r"""WordPiece splits a word into the longest pieces, and the pieces give it back.

    From the left it takes the longest piece of the vocabulary that is a prefix of the rest; pieces
    that continue a word are marked. If all single characters are in the vocabulary, as beginnings
    and as continuations, every word can be split, and its pieces without the marks spell it. With
    `un`, `##aff` and `##able` the word `unaffable` has these three. Greedy is not always shortest:
    with `ab`, `abc` and `##cde` the word `abcde` gets `abc ##d ##e`, while two pieces would do.

    Checked with `wordpiece` on random words of up to 12 letters and vocabularies with random pieces
    of up to 4, against every longer prefix; a word with a letter that no piece has is unknown.

    Knobs:
        split: What splits the words.
        beyond: How many pieces more than the fewest `abcde` gets.
        words: How many words are drawn.
    """
    alphabet = "".join(map(chr, range(97, 123)))
    toy = with_letters(["un", "##aff", "##able"], alphabet)
    yield equals("pieces of unaffable that are as told",
                 [a == b for a, b in zip(split("unaffable", toy), ("un", "##aff", "##able"),
                                         strict=False)], [True] * 3)  # fmt: skip
    greedy = with_letters(["ab", "abc", "##cde"], alphabet)
    more = len(split("abcde", greedy)) - fewest("abcde", greedy)
    yield equals("pieces of abcde beyond the fewest", more, beyond)
    for letters, count in ((_LETTERS, 30), (_LETTERS[1:4], 8)):
        begin = [drawn(letters, 4) for _ in range(count)]
        later = [f"##{drawn(letters, 4)}" for _ in range(count)]
        vocabulary = with_letters([*begin, *later], letters)
        spelled, improved = 0, 0
        for _ in range(words):
            word = drawn(letters, 12)
            pieces = split(word, vocabulary)
            tail = [piece.removeprefix("##") for piece in pieces[1:]]
            spelled += pieces[0] + "".join(tail) == word
            improved += longer(word, pieces, vocabulary)
        at = {"letters": len(letters)}
        yield equals("words that their pieces spell", spelled, words, **at)
        yield equals("pieces with a longer one in their place", improved, 0, **at)
        yield equals("pieces of a word with a strange letter",
                     split(f"{letters}z", vocabulary) == ["[UNK]"], True, **at)  # fmt: skip


wordpiece.foil("the shortest pieces first", split=shortest_first,
               refuted_by="pieces of unaffable that are as told")  # fmt: skip
wordpiece.foil("greedy gives the fewest pieces", beyond=0,
               refuted_by="pieces of abcde beyond the fewest")  # fmt: skip
