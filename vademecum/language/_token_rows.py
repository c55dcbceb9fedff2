"""Tokens as they are given: tensors, lists, rows of unequal length; and what a model takes of them.

A language model here is any module that maps tokens (n, T) to logits (n, T, V), or to anything with
`.logits`, such that logits at t depend on tokens up to t alone. How many tokens it knows and how
many it takes at once are read from its attributes `V` and `context`, or from a `config` as
transformers has it; where it says neither, it is believed to take everything.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.arguments import whole
from vademecum.models import chosen_output

__all__ = [
    "Rows", "context_of", "device_of", "insist_on_tokens", "logits_of", "padded", "rows_of",
    "vocabulary_of",
]  # fmt: skip

Rows = Tensor | Sequence[int] | Sequence[Sequence[int]] | Sequence[Tensor]
"""One row of tokens, or several, also of unequal lengths."""

_CONTEXTS = ("n_positions", "max_position_embeddings", "n_ctx")


def rows_of(name: str, tokens: Any) -> list[Tensor]:
    """The rows of tokens: vectors of integers, on the CPU unless they were elsewhere."""
    if isinstance(tokens, Tensor):
        if tokens.ndim not in (1, 2):
            raise ValueError(f"{name} must be tokens (n, T) or (T,), got {tuple(tokens.shape)}")
        given = [tokens] if tokens.ndim == 1 else list(tokens)
    elif isinstance(tokens, Sequence) and not isinstance(tokens, str | bytes):
        flat = all(isinstance(t, int) and not isinstance(t, bool) for t in tokens)
        given = [tokens] if flat else list(tokens)
    else:
        raise ValueError(f"{name} must be tokens or rows of them, got {type(tokens).__name__}")
    rows = [_row(name, i, row) for i, row in enumerate(given)]
    if not rows:
        raise ValueError(f"{name} must have a row or more, got none")
    return rows


def _row(name: str, i: int, row: Any) -> Tensor:
    text = isinstance(row, str | bytes)
    if not text and isinstance(row, Sequence) and all(hasattr(t, "__index__") for t in row):
        row = torch.tensor([int(t) for t in row], dtype=torch.long)
    if not isinstance(row, Tensor) or row.ndim != 1:
        given = tuple(row.shape) if isinstance(row, Tensor) else repr(row)[:40]
        raise ValueError(f"rows of {name} must be tokens, got {given} for row {i}")
    if row.is_floating_point() or row.is_complex() or row.dtype == torch.bool:
        raise ValueError(f"{name} must be integers, got {row.dtype}")
    return row.long()


def insist_on_tokens(name: str, rows: Sequence[Tensor], V: int | None, *, least: int = 1) -> None:
    """Refuse rows that are too short and tokens out of range; on a GPU this waits for it."""
    for i, row in enumerate(rows):
        if len(row) < least:
            raise ValueError(f"rows of {name} must have {least} tokens or more, got {len(row)}"
                             f" for row {i}")  # fmt: skip
    lengths = [len(row) for row in rows]
    joined = torch.cat(list(rows))
    if not len(joined):
        return
    low, high = torch.stack(torch.aminmax(joined)).tolist()
    if low < 0 or (V is not None and high >= V):
        bad = (joined < 0) | (joined >= (high + 1 if V is None else V))
        at, row = int(bad.nonzero()[0]), 0
        while at >= lengths[row]:
            at, row = at - lengths[row], row + 1
        span = ">= 0" if V is None else f"from 0 to {V - 1}"
        raise ValueError(f"{name} must be {span}, got {int(rows[row][at])} at {(row, at)}")


def context_of(model: nn.Module, context: int | None) -> int | None:
    """How many tokens a model takes at once: what is said, else what it says of itself."""
    if context is not None:
        return whole("context", context, low=1)
    config = getattr(model, "config", None)
    found = [getattr(model, "context", None), *(getattr(config, name, None) for name in _CONTEXTS)]
    return next((c for c in found if isinstance(c, int) and c > 0), None)


def vocabulary_of(model: nn.Module) -> int | None:
    """How many tokens a model knows, if it says so."""
    config = getattr(model, "config", None)
    found = (getattr(model, "V", None), getattr(config, "vocab_size", None))
    return next((V for V in found if isinstance(V, int) and V > 0), None)


def device_of(model: nn.Module, tokens: Tensor) -> torch.device:
    """Where a model is: where its first parameter is; without any, where the tokens are."""
    first = next(model.parameters(), None)
    return tokens.device if first is None else first.device


def padded(rows: Sequence[Tensor], device: torch.device) -> Tensor:
    """Rows of tokens side by side, zeros after their ends."""
    return nn.utils.rnn.pad_sequence(list(rows), batch_first=True).to(device)


def logits_of(model: nn.Module, tokens: Tensor, **knobs: Any) -> Tensor:
    """What a model gives for tokens: logits (n, T, V)."""
    found = chosen_output(model(tokens, **knobs))
    if not isinstance(found, Tensor) or found.ndim != 3 or found.shape[:2] != tokens.shape:
        n, T = tokens.shape
        given = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(f"model must give logits ({n}, {T}, V), got {given}")
    return found
