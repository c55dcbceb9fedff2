r"""Perplexity: how surprised a language model is by a text.

$$\mathrm{PPL} = \exp\Big(-\frac1N \sum_{i} \log p(x_i \mid x_{<i})\Big) , \qquad
\text{bits a byte} = \frac{1}{B} \sum_i \log_2 \frac{1}{p(x_i \mid x_{<i})} ,$$

the geometric mean of the inverse probabilities of the $N$ tokens that are predicted, and the length
of the text in bits, were it coded by the model, over its length in bytes: that does not depend on
the tokeniser. The uniform model on $V$ tokens has perplexity $V$.

A text longer than the context $C$ is read in windows, each of which begins `stride` tokens after
the one before and predicts what that did not: every token is predicted exactly once, and the mean
is over tokens, not over windows. With `stride` = C a token is predicted from 1 to C tokens before
it; with a smaller one from C - stride + 1 at least after the first window, for more passes. A model
that makes good use of the past is the less surprised the more it sees of it.

Exact up to rounding, whatever goes together in a pass. The claims are `perplexity`,
`perplexity_minimum` and `cross_entropy_estimate`.
"""

import math
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vademecum.arguments import whole
from vademecum.language._token_rows import (
    Rows,
    context_of,
    device_of,
    insist_on_tokens,
    logits_of,
    rows_of,
    vocabulary_of,
)
from vademecum.language.scoring._row_scores import ScoredRow, row_log_probs
from vademecum.models import batches, evaluation, unwrapped
from vademecum.results import one_line

__all__ = ["Perplexity", "bits_per_byte", "perplexity"]


class Perplexity(NamedTuple):
    """How surprised a model is by a text.

    Example:
        >>> model = nn.Embedding.from_pretrained(torch.zeros(4, 4))  # all four equally probable
        >>> perplexity(model, torch.tensor([0, 3, 1, 1]))
        Perplexity(perplexity=4.0000..., nats=1.3862..., bits=2.0000..., tokens=3)
    """

    perplexity: float
    """The geometric mean of the inverse probabilities of the tokens."""
    nats: float
    """The mean of their negative log-probabilities, to the base e."""
    bits: float
    """The same to the base 2."""
    tokens: int
    """How many tokens were predicted: all but the first of each row, or all after a `start`."""

    __repr__ = one_line


def perplexity(
    model: nn.Module,
    x: Rows | DataLoader[Any],
    *,
    context: int | None = None,
    stride: int | None = None,
    start: int | None = None,
    memory: int | None = None,
) -> Perplexity:
    """The perplexity of a language model on a text, or on several.

    Args:
        model: Any module from tokens (n, T) to logits (n, T, V) that looks back alone, taken in
            evaluation mode.
        x: Tokens (T,) or (n, T), a list of rows of unequal length, or a `DataLoader` of them.
        context: How many tokens the model sees at once; by default what it says of itself, else all
            of a row.
        stride: How many tokens a window goes on after the one before; the context by default.
        start: A token that is put before each row, so that its first token is predicted, too.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest. They
            are those of logits: what else a pass of one row takes is the model's business.

    Raises:
        ValueError: If tokens are out of range, no token can be predicted, or the model gives NaN.

    Example:
        >>> chain = torch.tensor([[0.5, 0.5], [0.25, 0.75]]).log()  # the next by the last
        >>> model = nn.Embedding.from_pretrained(chain)
        >>> perplexity(model, torch.tensor([0, 1, 0]))  # the root of 2 * 4
        Perplexity(perplexity=2.82842..., nats=1.0397..., bits=1.5000..., tokens=2)
    """
    total, count, _ = _coded(model, x, context, stride, start, memory)
    if not count:
        raise ValueError("x must have a row of 2 tokens or more, or a start")
    nats = -total / count
    value = torch.tensor(nats, dtype=torch.float64).exp().item()  # infinite beyond 709 nats
    return Perplexity(value, nats, nats / math.log(2), count)


def bits_per_byte(
    model: nn.Module,
    x: Rows | DataLoader[Any],
    n_bytes: int,
    *,
    context: int | None = None,
    stride: int | None = None,
    start: int | None = None,
    memory: int | None = None,
) -> float:
    """The bits that a text takes when a model codes it, for each of its bytes.

    All tokens count: without a `start` the first token of each row is coded as one of V alike.

    Args:
        model: Any module from tokens (n, T) to logits (n, T, V) that looks back alone, taken in
            evaluation mode.
        x: Tokens (T,) or (n, T), a list of rows of unequal length, or a `DataLoader` of them.
        n_bytes: How many bytes the text has, such as `len(text.encode())`.
        context: How many tokens the model sees at once; by default what it says of itself, else all
            of a row.
        stride: How many tokens a window goes on after the one before; the context by default.
        start: A token that is put before each row, so that its first token is predicted, too.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.

    Raises:
        ValueError: If tokens are out of range, `n_bytes` is below 1, or the model gives NaN.

    Example:
        >>> model = nn.Embedding.from_pretrained(torch.zeros(4, 4))  # two bits a token
        >>> round(bits_per_byte(model, torch.tensor([0, 3, 1, 1]), 8), 6)
        1.0
    """
    n_bytes = whole("n_bytes", n_bytes, low=1)
    total, _, firsts = _coded(model, x, context, stride, start, memory)
    nats = -total
    if firsts:
        nats += firsts * math.log(_width(model, x))
    return nats / math.log(2) / n_bytes


def _coded(
    model: nn.Module,
    x: Any,
    context: int | None,
    stride: int | None,
    start: int | None,
    memory: int | None,
) -> tuple[float, int, int]:
    """The log-probability of a text, how many tokens were predicted, and how many were not."""
    model = unwrapped(model)
    context = context_of(model, context)
    if stride is not None:
        stride = whole("stride", stride, low=1, high=context)
    V = vocabulary_of(model)
    if start is not None:
        start = whole("start", start, low=0, high=None if V is None else V - 1)
    total, count, firsts = 0.0, 0, 0
    with evaluation(model, fused=True), torch.inference_mode(), closing(batches(x)) as each:
        for tokens, _ in each:
            rows = rows_of("x", tokens)
            insist_on_tokens("x", rows, V)
            windows = [w for row in rows for w in _windows(row, context, stride, start)]
            found = row_log_probs(model, windows, device_of(model, rows[0]), memory)
            total += float(found.sum())
            count += sum(len(w.tokens) - w.first for w in windows)
            firsts += len(rows) if start is None else 0
    return total, count, firsts


def _windows(
    row: Tensor, context: int | None, stride: int | None, start: int | None
) -> Iterator[ScoredRow]:
    """Windows of at most `context` inputs, which together predict every token once."""
    if start is not None:
        row = torch.cat([row.new_tensor([start]), row])
    last = len(row) - 1  # the place of the last token, which is never an input
    C = last if context is None else context
    step = C if stride is None else stride
    done = 0
    while done < last:
        end = min(last, done + (C if done == 0 else step))
        begin = max(0, end - C)
        yield ScoredRow(row[begin : end + 1], done + 1 - begin)
        done = end


def _width(model: nn.Module, x: Any) -> int:
    """How many tokens a model chooses among: asked with one token if it does not say."""
    V = vocabulary_of(model)
    if V is not None:
        return V
    with closing(batches(x)) as each, evaluation(model, fused=True), torch.inference_mode():
        row = rows_of("x", next(each)[0])[0][None, :1]
        return logits_of(model, row.to(device_of(model, row))).shape[2]
