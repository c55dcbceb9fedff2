"""Refusing tokens that are no tokens."""

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["insist_on_tokens", "looked_up"]

_INTEGERS = (torch.int64, torch.int32)


def insist_on_tokens(
    tokens: Tensor, most: int | None = None, *, name: str = "tokens", limit: str = "context"
) -> None:
    """Refuse anything but rows of at most so many integers."""
    known = isinstance(tokens, Tensor)
    if not known or tokens.dtype not in _INTEGERS or tokens.ndim != 2 or not tokens.numel():
        given = f"{tokens.dtype} of shape {tuple(tokens.shape)}" if known else repr(tokens)
        raise ValueError(f"{name} must be integers of shape (n, T), got {given}")
    if most is not None and tokens.shape[1] > most:
        raise ValueError(
            f"{name} must be at most {limit} = {most} long, got {tokens.shape[1]}:"
            f" cut them yourself, as in {name}[:, -{most}:]"
        )


def looked_up(name: str, tokens: Tensor, table: Tensor, padding: int | None = None) -> Tensor:
    """The rows of a table; on the CPU what is out of range is told, elsewhere the device stops."""
    try:
        return F.embedding(tokens, table, padding)
    except IndexError:
        low, high = tokens.amin().item(), tokens.amax().item()
        raise ValueError(
            f"{name} must be between 0 and {len(table) - 1}, got {low if low < 0 else high}"
        ) from None
