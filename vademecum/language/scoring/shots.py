r"""Few-shot evaluation: examples in the context, answers chosen by their log-probabilities.

The context is $e_1, \dots, e_m$, each example a question followed by its answer, and then the query
$q$; of the options $a$ that for it the model chooses the one with the largest

$$\log p(a \mid e_1, \dots, e_m, q) = \sum_t \log p(a_t \mid e_1, \dots, e_m, q, a_{<t}) ,$$

or the largest mean over the tokens of the answer. No weight changes: what is learned is learned
from the context. With no examples this is zero-shot evaluation.

Exact up to rounding. The claim is `in_context_learning`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn

from vademecum.language._token_rows import (
    context_of,
    device_of,
    insist_on_tokens,
    rows_of,
    vocabulary_of,
)
from vademecum.language.scoring._row_scores import ScoredRow, row_log_probs
from vademecum.models import evaluation, unwrapped
from vademecum.results import one_line

__all__ = ["FewShot", "few_shot"]

Tokens = str | Tensor | Sequence[int]
"""A piece of text: tokens, or words that are encoded first."""


class FewShot(NamedTuple):
    """What a model answers, with examples before its eyes.

    Example:
        >>> model = nn.Embedding.from_pretrained(torch.tensor([[0.2, 0.8], [0.5, 0.5]]).log())
        >>> few_shot(model, [], [([0], [[0], [1]])]).answers
        tensor([1])
    """

    answers: Int[Tensor, " n"]
    """The number of the option that was chosen, for each query."""
    log_probs: tuple[Tensor, ...]
    """For each query the log-probabilities of its options, in double precision."""
    accuracy: float | None
    """The share of right answers, where those are known."""

    __repr__ = one_line


def few_shot(
    model: nn.Module,
    examples: Sequence[tuple[Tokens, Tokens]],
    queries: Sequence[tuple[Tokens, Sequence[Tokens]]],
    y: Sequence[int] | Tensor | None = None,
    *,
    separator: Tokens = (),
    encode: Callable[[str], Sequence[int]] | None = None,
    by_length: bool = False,
    context: int | None = None,
    memory: int | None = None,
) -> FewShot:
    """Let a language model answer queries after a few examples, without changing it.

    Args:
        model: Any module from tokens (n, T) to logits (n, T, V) that looks back alone, taken in
            evaluation mode.
        examples: Pairs of a question and its answer; none for zero-shot evaluation.
        queries: Pairs of a question and its options.
        y: The right options, by their numbers, if they are known.
        separator: What comes after each example.
        encode: What makes tokens of words, such as `lambda s: tokenizer.encode(s).ids`.
        by_length: Whether options are compared by their log-probabilities for each token.
        context: How many tokens the model sees at once; by default what it says of itself, else
            everything.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.

    Raises:
        ValueError: If a query has no options or an option no tokens, tokens are out of range, words
            come without `encode`, examples and query exceed the context, or the model gives NaN.

    References:
        Brown et al., Language models are few-shot learners, NeurIPS, 2020.

    Example:
        >>> chain = torch.tensor([[0.1, 0.6, 0.3], [0.4, 0.4, 0.2], [0.8, 0.1, 0.1]]).log()
        >>> model = nn.Embedding.from_pretrained(chain)  # the next token by the last
        >>> found = few_shot(model, [([0], [1])], [([0], [[1], [2, 0]])], y=[0])
        >>> found.log_probs[0].exp(), found.accuracy  # 0.6 against 0.3 * 0.8
        (tensor([0.6000, 0.2400], dtype=torch.float64), 1.0)
    """
    model = unwrapped(model)
    if not len(queries):
        raise ValueError("queries must have a query or more, got none")
    ids = _Encoder(encode)
    between = ids("separator", separator)
    shots = [part for i, pair in enumerate(examples) for part in (*_example(ids, i, pair), between)]
    rows, sizes = _rows(ids, shots, queries)
    insist_on_tokens("examples and queries", [row.tokens for row in rows], vocabulary_of(model))
    _insist_on_context(rows, context_of(model, context))
    with evaluation(model, fused=True), torch.inference_mode():
        found = row_log_probs(model, rows, device_of(model, rows[0].tokens), memory)
    lengths = torch.tensor([len(row.tokens) - row.first for row in rows])
    ranked = (found / lengths if by_length else found).split(sizes)
    answers = torch.stack([options.argmax() for options in ranked])
    return FewShot(answers, tuple(found.split(sizes)), _accuracy(answers, sizes, y))


class _Encoder:
    """Makes tokens of tokens, or of words."""

    def __init__(self, encode: Callable[[str], Sequence[int]] | None):
        self._encode = encode

    def __call__(self, name: str, piece: Any) -> Tensor:
        if isinstance(piece, str):
            if self._encode is None:
                raise ValueError(f"encode must be given where {name} is words, got {piece!r}")
            piece = self._encode(piece)
        if not isinstance(piece, Tensor) and not len(piece):
            return torch.zeros(0, dtype=torch.long)
        rows = rows_of(name, piece)
        if len(rows) != 1:
            raise ValueError(f"{name} must be one row of tokens, got {len(rows)}")
        return rows[0].cpu()


def _example(ids: _Encoder, i: int, pair: Any) -> tuple[Tensor, Tensor]:
    if isinstance(pair, str | Tensor) or len(pair) != 2:
        raise ValueError(f"examples must be pairs of a question and an answer, got {pair!r} at {i}")
    return ids("examples", pair[0]), ids("examples", pair[1])


def _rows(ids: _Encoder, shots: list[Tensor], queries: Any) -> tuple[list[ScoredRow], list[int]]:
    """One row for each option of each query, and how many options each query has."""
    rows: list[ScoredRow] = []
    sizes: list[int] = []
    for i, query in enumerate(queries):
        if isinstance(query, str | Tensor) or len(query) != 2:
            raise ValueError(
                f"queries must be pairs of a question and options, got {query!r} at {i}"
            )
        question, options = query
        if isinstance(options, str | Tensor) or not len(options):
            raise ValueError(f"options of query {i} must be rows of tokens, got {options!r}")
        before = torch.cat([*shots, ids("queries", question)])
        if not len(before):
            raise ValueError(f"query {i} must have tokens before its options, got none")
        for option in options:
            own = ids("options", option)
            if not len(own):
                raise ValueError(f"options of query {i} must have tokens, got an empty one")
            rows.append(ScoredRow(torch.cat([before, own]), len(before)))
        sizes.append(len(options))
    return rows, sizes


def _insist_on_context(rows: list[ScoredRow], context: int | None) -> None:
    longest = max(len(row.tokens) for row in rows) - 1
    if context is not None and longest > context:
        raise ValueError(
            f"examples and a query must fit into the context = {context}, got {longest} tokens"
        )


def _accuracy(answers: Tensor, sizes: list[int], y: Any) -> float | None:
    if y is None:
        return None
    right = torch.as_tensor(y).cpu()
    if right.is_floating_point() or right.shape != answers.shape:
        given = f"{right.dtype} of shape {tuple(right.shape)}"
        raise ValueError(f"y must be {len(answers)} numbers of options, got {given}")
    if bool(((right < 0) | (right >= torch.tensor(sizes))).any()):
        raise ValueError(f"y must be numbers of options, got {right.tolist()} for {sizes} options")
    return float((answers == right).double().mean())
