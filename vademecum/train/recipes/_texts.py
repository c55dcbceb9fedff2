"""Texts as bytes, as windows with labels, as pairs of neighbouring words, as sums to work out."""

import re
from collections import Counter
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.data import load
from vademecum.errors import UsageError

__all__ = [
    "Halves",
    "WordPairs",
    "numbers",
    "problems",
    "prose_windows",
    "text_bytes",
    "word_pairs",
]

_TEST_SHARE = 10  # one in so many bytes of a file
_SOURCES = "stdlib_text"
_PROSE = ("#", '"""', "'''")
_QUOTED = re.compile(
    r"""#[^\n]*|\"{3}[\s\S]*?\"{3}|'{3}[\s\S]*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""
)
"""Comments and all kinds of strings."""


class Halves(NamedTuple):
    """A text to train on and one to judge by, as bytes.

    Attributes:
        train: The first nine tenths.
        test: The last tenth.
    """

    train: bytes
    test: bytes


def text_bytes(data: str, *, least: int) -> Halves:
    """The text of that name, or the file of that path; with `least` bytes to judge by."""
    if data == _SOURCES:
        parts = [load("stdlib_text", split=split).text.encode() for split in ("train", "test")]
        return Halves(*parts)
    path = Path(data)
    if not path.is_file():
        raise UsageError(f"--data must be {_SOURCES} or the path of a text file, got {data!r}")
    content = path.read_bytes()
    if len(content) < least * _TEST_SHARE:
        raise UsageError(
            f"--data must hold at least {least * _TEST_SHARE} bytes, got {len(content)} in {data!r}"
        )
    cut = len(content) - len(content) // _TEST_SHARE
    return Halves(content[:cut], content[cut:])


def numbers(content: bytes) -> Tensor:
    """The bytes as integers."""
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).long()


def prose_windows(
    n: int, length: int, *, split: str, data: Literal["stdlib_text"] = "stdlib_text"
) -> tuple[Tensor, Tensor]:
    """Windows of Python's sources from all over, and which are comments or docstrings."""
    if n < 2:
        raise UsageError(f"--labels must be >= 2, one of each kind, got {n}")
    text = load(data, split="all").text  # a part may begin within quotation marks
    prose = torch.zeros(len(text), dtype=torch.bool)
    for found in _QUOTED.finditer(text):
        if found[0].startswith(_PROSE):
            prose[found.start() : found.end()] = True
    rows = len(text) // length
    share = prose[: rows * length].view(rows, length).float().mean(1)
    share[slice(rows * 9 // 10, None) if split == "train" else slice(rows * 9 // 10)] = 0.5
    kinds = [(share < 0.1).nonzero()[:, 0], (share > 0.9).nonzero()[:, 0]]  # the rest is mixed
    chosen = [kind[torch.linspace(0, len(kind) - 1, n // 2).long()] for kind in kinds]
    windows = [text[i * length : (i + 1) * length] for i in torch.stack(chosen, 1).flatten()]
    x = torch.tensor([[ord(c) if ord(c) < 256 else 0 for c in window] for window in windows])
    return x, torch.arange(len(x)) % 2


class WordPairs(NamedTuple):
    """Words and their neighbours, as numbers.

    Attributes:
        train: Pairs of a word and a neighbour.
        test: Pairs of another text.
        counts: How often each word of the vocabulary occurs.
        words: The vocabulary, the most frequent word first.
    """

    train: Tensor
    test: Tensor
    counts: Tensor
    words: list[str]


def word_pairs(text: Halves, *, vocabulary: int, window: int) -> WordPairs:
    """The pairs of words at most `window` apart; words outside of the vocabulary are left out."""
    halves = [re.findall(r"[A-Za-z]{2,}", half.decode(errors="replace")) for half in text]
    common = Counter(word.lower() for word in halves[0]).most_common(vocabulary)
    if len(common) < 2:
        raise UsageError(f"--data must hold at least two different words, got {len(common)}")
    number = {word: i for i, (word, _) in enumerate(common)}
    rows = [[number[w] for word in half if (w := word.lower()) in number] for half in halves]
    for what, row in zip(("first nine tenths", "last tenth"), rows, strict=True):
        if len(row) <= window:
            raise UsageError(
                f"--data must hold more than {window} known words in its {what}, got {len(row)}"
            )
    train, test = (_neighbours(torch.tensor(row), window) for row in rows)
    return WordPairs(train, test, torch.tensor([n for _, n in common]), [w for w, _ in common])


def _neighbours(row: Tensor, window: int) -> Tensor:
    pairs = [torch.stack((row[:-k], row[k:]), 1) for k in range(1, window + 1)]
    one_way = torch.cat(pairs)
    return torch.cat((one_way, one_way.flip(1)))


def problems(task: str, n: int, length: int) -> tuple[Tensor, Tensor]:
    """Different sequences in random order, and their answers.

    Symbols are 1 to 10 for the digits 0 to 9, 11 for plus, and 0 for the end.
    """
    generator = torch.Generator().manual_seed(0)
    if task == "reverse":
        lengths = torch.randint(1, length + 1, (n, 1), generator=generator)
        x = torch.randint(1, 11, (n, length), generator=generator)
        x = _shuffled(torch.where(torch.arange(length) < lengths, x, 0), generator)
        places = ((x > 0).sum(1, keepdim=True) - 1 - torch.arange(length)) % length
        return x, F.pad(x.gather(1, places), (0, 1))  # zeros come last again
    a, b = _shuffled(torch.randint(10**length, (n, 2), generator=generator), generator).unbind(1)
    plus = torch.full((len(a), 1), 11)
    x = torch.cat((_digits(a, length), plus, _digits(b, length)), 1)
    return x, F.pad(_digits(a + b, length + 1), (0, 1))


def _shuffled(rows: Tensor, generator: torch.Generator) -> Tensor:
    """The different rows in random order."""
    different = torch.unique(rows, dim=0)
    return different[torch.randperm(len(different), generator=generator)]


def _digits(x: Tensor, length: int) -> Tensor:
    powers = 10 ** torch.arange(length - 1, -1, -1)
    return x[:, None] // powers % 10 + 1
