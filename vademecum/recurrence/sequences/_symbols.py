"""Symbols and lengths as they are given: in their range, and nothing beyond the end that counts."""

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["are_symbols", "before_end", "check_symbols", "lengths_of", "within"]


def are_symbols(y: object) -> bool:
    """Whether these are integers (n, T), at least one of them."""
    if not isinstance(y, Tensor) or y.ndim != 2 or not y.numel():
        return False
    return not (y.is_floating_point() or y.is_complex() or y.dtype == torch.bool)


def check_symbols(name: str, y: Tensor, k: int, hint: str = "") -> Tensor:
    """Integers (n, T) from 0 to k - 1; on a GPU this waits for it, since a lookup would crash."""
    if not are_symbols(y):
        given = f"{y.dtype} of shape {tuple(y.shape)}" if isinstance(y, Tensor) else repr(y)
        raise ValueError(f"{name} must be symbols (n, T), got {given}")
    if y.is_meta or torch.compiler.is_compiling():
        return y
    low, high = torch.stack(torch.aminmax(y)).tolist()
    if low < 0 or high >= k:
        place = tuple(int(i) for i in ((y < 0) | (y >= k)).nonzero()[0])
        raise ValueError(
            f"{name} must hold symbols from 0 to {k - 1}, got {int(y[place])} at {place}{hint}"
        )
    return y


def lengths_of(lengths: Tensor | Sequence[int], n: int, T: int) -> Tensor:
    """The lengths of n sequences of at most T steps, on the CPU."""
    found = torch.as_tensor(lengths)
    if found.is_floating_point() or found.dtype == torch.bool or found.shape != (n,):
        shape = tuple(found.shape)
        raise ValueError(f"lengths must be {n} integers, got {found.dtype} of shape {shape}")
    found = found.to("cpu", torch.long)
    if int(found.min()) < 1 or int(found.max()) > T:
        bad = int(found[(found < 1) | (found > T)][0])
        raise ValueError(f"lengths must be from 1 to {T}, got {bad}")
    return found


def within(lengths: Tensor, T: int, device: torch.device) -> Tensor:
    """Which of T steps are within the lengths, (n, T)."""
    return torch.arange(T, device=device) < lengths.to(device)[:, None]


def before_end(y: Tensor, end: int | None) -> Tensor:
    """Which symbols stand before the end or are the first end symbol, (n, T)."""
    if end is None:
        return torch.ones_like(y, dtype=torch.bool)
    found = y == end
    return found.cumsum(1) - found.long() == 0
