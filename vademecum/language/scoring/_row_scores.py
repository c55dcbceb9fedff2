r"""Log-probabilities of rows of tokens, many rows in one pass.

Row $i$ is $x_0, \dots, x_m$; of it $\sum_{t \ge f} \log p(x_t \mid x_{<t})$ is summed, in double
precision. Rows are sorted by length, and as many go together as the memory for their logits allows;
the shorter are padded at their ends, which a model that looks back alone does not see.
"""

from collections.abc import Sequence
from itertools import starmap
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from vademecum.arguments import whole
from vademecum.language._token_rows import logits_of, padded

__all__ = ["ScoredRow", "row_log_probs"]

_ROOM = 2**26  # bytes of logits and their logarithms: beyond this larger passes are not faster
_COPIES = 3  # logits, their wide form, their log-softmax


class ScoredRow(NamedTuple):
    """A row of tokens, and which of them count."""

    tokens: Tensor
    """All of them; what is left of the first that counts is only looked at."""
    first: int
    """The place of the first token that counts, at least 1."""


def row_log_probs(
    model: nn.Module, rows: Sequence[ScoredRow], device: torch.device, memory: int | None
) -> Tensor:
    """The log-probability of what counts in each row, in double precision, on the CPU.

    Args:
        model: A language model, in evaluation mode already.
        rows: The rows.
        device: Where the model is.
        memory: Bytes for logits at most.

    Raises:
        ValueError: If the model gives NaN.
    """
    if memory is not None:
        whole("memory", memory, low=1)
    found = torch.zeros(len(rows), dtype=torch.float64)
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i].tokens))
    size, start = 1, 0  # one row at first, which tells how wide logits are
    while start < len(order):
        some = order[start : start + size]
        scores, each = _scored(model, [rows[i] for i in some], device)
        found[some] = scores
        start += len(some)
        size = max(1, (_ROOM if memory is None else memory) // (_COPIES * each))
    if bool(found.isnan().any()):
        raise ValueError("model must not give NaN, got it for the probability of a token")
    return found


def _scored(model: nn.Module, rows: list[ScoredRow], device: torch.device) -> tuple[Tensor, int]:
    """The scores of rows in one pass, and how many bytes of logits the longest has."""
    tokens = padded([row.tokens for row in rows], device)
    logits = logits_of(model, tokens[:, :-1])
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    losses = cross_entropy(wide.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    times = torch.arange(1, tokens.shape[1], device=device)
    spans = torch.tensor(list(starmap(_span, rows)), device=device)
    counts = (times >= spans[:, :1]) & (times < spans[:, 1:])
    losses = losses.view_as(counts).double()
    scores = -torch.where(counts, losses, 0).sum(1)
    return scores.cpu(), wide[0].numel() * wide.element_size()


def _span(tokens: Tensor, first: int) -> tuple[int, int]:
    return first, len(tokens)
