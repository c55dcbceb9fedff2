"""Pairs of sentences as BERT reads them, and whether the second follows the first.

A pair is [CLS] A [SEP] B [SEP]; the segment is 0 up to the first [SEP] and 1 after it, and a single
sentence is [CLS] A [SEP]. To learn what follows, a sentence A that has a successor in its document
is drawn evenly; with probability 1/2 B is the successor, and otherwise it is drawn evenly from all
sentences but A and that one. The claims are `bert_input` and `next_sentence_prediction`.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.language._token_rows import padded, rows_of
from vademecum.randomness import source
from vademecum.results import one_line

__all__ = ["NSPPairs", "PairInput", "nsp_pairs", "pair_input"]


class PairInput(NamedTuple):
    """One or two sentences as BERT reads them.

    Example:
        >>> pair_input([7, 8], cls=1, sep=2).tokens
        tensor([1, 7, 8, 2])
    """

    tokens: Int[Tensor, " T"]
    """With a mark before the first and after each."""
    segments: Int[Tensor, " T"]
    """0 up to the mark after the first sentence, and 1 beyond."""

    __repr__ = one_line


class NSPPairs(NamedTuple):
    """Pairs of sentences, half of them neighbours in their document.

    Example:
        >>> pairs = nsp_pairs([[[5], [6], [7]]], 4, cls=1, sep=2)
        >>> pairs.tokens.shape, pairs.lengths
        (torch.Size([4, 5]), tensor([5, 5, 5, 5]))
    """

    tokens: Int[Tensor, " n T"]
    """[CLS] A [SEP] B [SEP] in each row, zeros after it."""
    segments: Int[Tensor, " n T"]
    """0 up to the first [SEP], and 1 beyond."""
    lengths: Int[Tensor, " n"]
    """How many tokens of each row are real."""
    labels: Int[Tensor, " n"]
    """0 where B follows A, and 1 where it was drawn: classes of BERT's `next_logits`."""
    places: Int[Tensor, " n 2"]
    """Which sentences A and B are, counted through all documents."""

    __repr__ = one_line


def pair_input(
    first: Tensor | Sequence[int],
    second: Tensor | Sequence[int] | None = None,
    *,
    cls: int,
    sep: int,
) -> PairInput:
    """One or two sentences as BERT reads them.

    Args:
        first: The tokens of a sentence.
        second: Those of another.
        cls: The mark before the first.
        sep: The mark after each.

    Example:
        >>> pair_input([7, 8], [9], cls=1, sep=2)
        PairInput(tokens=tensor([1, 7, 8, 2, 9, 2]), segments=tensor([0, 0, 0, 0, 1, 1]))
    """
    marks = torch.tensor([whole("cls", cls, low=0), whole("sep", sep, low=0)])
    rows = [_sentence("first", first)]
    if second is not None:
        rows.append(_sentence("second", second))
    pieces, segments = [marks[:1]], [torch.zeros(1, dtype=torch.long)]
    for segment, row in enumerate(rows):
        pieces += [row.cpu(), marks[1:]]
        segments.append(torch.full((len(row) + 1,), segment))
    return PairInput(torch.cat(pieces), torch.cat(segments))


def nsp_pairs(
    documents: Sequence[Sequence[Any]],
    n: int,
    *,
    cls: int,
    sep: int,
    context: int | None = None,
    rate: float = 0.5,
    generator: torch.Generator | None = None,
) -> NSPPairs:
    """Draw pairs of sentences, for a model to tell which are neighbours.

    Args:
        documents: Lists of sentences, each a row of tokens.
        n: How many pairs to draw.
        cls: The mark before a pair.
        sep: The mark after each sentence.
        context: How many tokens a row has at most: the longer sentence of a pair loses its last
            tokens until that fits. None cuts nothing.
        rate: The probability that the second sentence is the successor.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If there are fewer than three sentences, or none has a successor.

    References:
        Devlin et al., BERT: pre-training of deep bidirectional transformers for language
        understanding, NAACL, 2019.

    Example:
        >>> pairs = nsp_pairs([[[5, 6], [7]], [[8, 9, 10]]], 4, cls=1, sep=2)
        >>> pairs.places[pairs.labels == 0].tolist() == [[0, 1]] * int((pairs.labels == 0).sum())
        True
    """
    n, rate = whole("n", n, low=1), number("rate", rate, low=0, high=1)
    if context is not None:
        whole("context", context, low=5)
    sentences = [_sentence("documents", row) for document in documents for row in document]
    ends = {end - 1 for end in accumulate(map(len, documents))}
    starts = [i for i in range(len(sentences)) if i not in ends]
    if len(sentences) < 3 or not starts:
        raise ValueError(
            f"documents must hold three sentences, one with a successor, got {len(sentences)}"
            f" sentences, {len(starts)} with one"
        )
    where = source(generator, "cpu")
    a = torch.tensor(starts)[torch.randint(len(starts), (n,), **where).cpu()]
    follows = torch.rand(n, **where).cpu() < rate
    other = torch.randint(len(sentences) - 2, (n,), **where).cpu()
    b = torch.where(follows, a + 1, other + 2 * (other >= a))
    pairs = []
    for i, j in zip(a.tolist(), b.tolist(), strict=True):
        one, two = _cut(sentences[i], sentences[j], context)
        pairs.append(pair_input(one, two, cls=cls, sep=sep))
    cpu = torch.device("cpu")
    tokens, segments = (padded(list(rows), cpu) for rows in zip(*pairs, strict=True))
    lengths = torch.tensor([len(pair.tokens) for pair in pairs])
    return NSPPairs(tokens, segments, lengths, (~follows).long(), torch.stack((a, b), 1))


def _cut(first: Tensor, second: Tensor, context: int | None) -> tuple[Tensor, Tensor]:
    """Both with so many tokens that they and three marks fit, the longer one cut first."""
    a, b = len(first), len(second)
    if context is not None and a + b > context - 3:
        half = (context - 3) // 2
        if min(a, b) <= half:
            a, b = (a, context - 3 - a) if a < b else (context - 3 - b, b)
        else:
            a, b = context - 3 - half, half
    return first[:a], second[:b]


def _sentence(name: str, row: Any) -> Tensor:
    rows = rows_of(name, row)
    if len(rows) != 1 or not len(rows[0]):
        raise ValueError(f"sentences of {name} must be rows of one token or more, got {row!r:.40}")
    return rows[0]
