r"""Texts as tokens: words in pieces, so that no word is unknown.

*Byte BPE* begins with the 256 bytes and joins, again and again, the two neighbouring tokens that
meet most often; every text is a string of bytes, so every text has tokens, and they spell it out
again. *WordPiece* splits a word greedily: the longest piece of the vocabulary that is a prefix,
then the longest that continues it, marked by `##`. With all single characters, as beginnings and
as continuations, every word can be split, and the pieces give it back; greedy is not always
shortest.

Tokenisers are trained and run by the package `tokenizers`; `wordpiece` is the definition, word by
word. The claim is `wordpiece`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from vademecum.arguments import choice, whole
from vademecum.errors import UsageError

__all__ = ["train_tokenizer", "wordpiece"]

_BYTES = 256
_LINES = 64  # lines that go together to the trainer


def wordpiece(
    word: str, vocabulary: Collection[str], *, mark: str = "##", unknown: str = "[UNK]"
) -> list[str]:
    """Split a word into the longest pieces, from the left.

    Args:
        word: The word.
        vocabulary: The pieces, those that continue a word with the mark before them.
        mark: What marks them.
        unknown: What stands for a word that cannot be split.

    References:
        Wu et al., Google's neural machine translation system, 2016. Devlin et al., BERT, NAACL,
        2019.

    Example:
        >>> wordpiece("unaffable", {"un", "##aff", "##able"})
        ['un', '##aff', '##able']
        >>> wordpiece("table", {"un", "##aff", "##able"})
        ['[UNK]']
    """
    if not isinstance(word, str) or not word:
        raise ValueError(f"word must be a word, got {word!r}")
    if isinstance(vocabulary, str):
        raise ValueError(f"vocabulary must be a collection of pieces, got {vocabulary!r}")
    pieces: list[str] = []
    start = 0
    while start < len(word):
        before = mark if start else ""
        ends = range(len(word), start, -1)
        end = next((e for e in ends if before + word[start:e] in vocabulary), None)
        if end is None:
            return [unknown]
        pieces.append(before + word[start:end])
        start = end
    return pieces


def train_tokenizer(
    texts: str | PathLike[str] | Iterable[str | PathLike[str]],
    V: int,
    *,
    kind: Literal["bpe", "wordpiece"] = "bpe",
    special: Iterable[str] = (),
    min_count: int = 2,
) -> Any:
    """Learn a tokeniser from texts.

    Args:
        texts: A text, several, or paths of files (which are read line by line); an iterator is
            enough.
        V: The most tokens to have, special ones included.
        kind: "bpe" on bytes, with which every text is spelled out exactly, or "wordpiece" on words
            and signs, as BERT has it: case is kept, spaces are not, and a word of more than 100
            characters is unknown.
        special: Tokens that stand for no text and come first, such as "<end>"; they are found in
            texts, too. WordPiece gets "[UNK]" if it is not among them.
        min_count: How often a pair must be seen to be joined.

    Returns:
        A `tokenizers.Tokenizer`: `encode(text).ids`, `decode(ids)`, `save(path)`.

    Raises:
        UsageError: If the package `tokenizers` is missing.
        ValueError: If there is no text, or V is too small for the bytes and special tokens.

    References:
        Sennrich, Haddow and Birch, Neural machine translation of rare words with subword units,
        ACL, 2016. Radford et al., Language models are unsupervised multitask learners, 2019.

    Example:
        >>> tokenizer = train_tokenizer("so far, so good. " * 9, 260)
        >>> tokenizer.encode("so so").tokens, tokenizer.decode(tokenizer.encode("söo").ids)
        (['so', 'Ġso'], 'söo')
    """
    choice("kind", kind, ("bpe", "wordpiece"))
    special = (special,) if isinstance(special, str) else tuple(special)
    if kind == "wordpiece" and "[UNK]" not in special:
        special = ("[UNK]", *special)
    least = (_BYTES if kind == "bpe" else 1) + len(special)
    V, min_count = whole("V", V, low=least), whole("min_count", min_count, low=1)
    seen = _Seen(texts)
    tokenizer, trainer = _pair(kind, V, special, min_count)
    tokenizer.train_from_iterator(seen, trainer)
    if not seen.characters:
        raise ValueError("texts must hold some text, got none")
    return tokenizer


def _pair(kind: str, V: int, special: tuple[str, ...], min_count: int) -> tuple[Any, Any]:
    """An untrained tokeniser and its trainer."""
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    except ImportError as error:
        raise UsageError(
            'tokenisers need the package tokenizers: pip install "vademecum[data]"'
        ) from error
    knobs: dict[str, Any] = {
        "vocab_size": V, "special_tokens": list(special), "min_frequency": min_count,
        "show_progress": False,
    }  # fmt: skip
    if kind == "bpe":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        return tokenizer, trainers.BpeTrainer(initial_alphabet=alphabet, **knobs)
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    return tokenizer, trainers.WordPieceTrainer(**knobs)


class _Seen:
    """Texts and the lines of files, one after the other; counts characters."""

    def __init__(self, texts: Any):
        self._texts = [texts] if isinstance(texts, str | PathLike) else texts
        if not isinstance(self._texts, Iterable) or isinstance(texts, bytes | Mapping):
            kind = type(texts).__name__
            raise ValueError(f"texts must be texts or paths of files, got {kind}")
        self.characters = 0

    def __iter__(self) -> Iterator[str]:
        for text in self._texts:
            for part in self._parts(text):
                self.characters += len(part)
                yield part

    def _parts(self, text: Any) -> Iterator[str]:
        if isinstance(text, str):
            yield text
        elif isinstance(text, PathLike):
            with Path(text).open(encoding="utf-8", newline="") as file:
                while lines := [line for _, line in zip(range(_LINES), file, strict=False)]:
                    yield "".join(lines)
        else:
            raise ValueError(f"texts must be texts or paths of files, got {text!r}")
