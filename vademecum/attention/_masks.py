"""Which keys a query may look at: masks, lengths and causality put together.

Masks are True where attention is allowed. Causality is aligned at the end: of $T$ queries and $S$
keys the query $t$ belongs to the key $t + S - T$, so that a single query over all keys so far sees
all of them.
"""

import torch
from torch import Tensor

from vademecum.arguments import row_lengths

__all__ = ["admitted", "bottom_right", "insist_on_booleans"]


def bottom_right(T: int, S: int, device: torch.device) -> Tensor:
    """The causal mask of T queries over S keys, of which the last ones belong together."""
    return torch.ones(T, S, dtype=torch.bool, device=device).tril(S - T)


def insist_on_booleans(mask: Tensor) -> torch.Size:
    """The shape of a mask, which must be boolean."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(f"mask must be boolean, True where attention is allowed, got {kind}")
    return mask.shape


def admitted(
    shape: tuple[int, int, int, int],
    mask: Tensor | None,
    lengths: Tensor | None,
    device: torch.device,
) -> Tensor | None:
    """One mask with four axes out of a mask and lengths; None if there is neither.

    Args:
        shape: Rows, heads, queries and keys, what masks broadcast to.
        mask: Over queries and keys; with three axes also over rows, with four over heads.
        lengths: How many keys of each row are real.
        device: Where they are.
    """
    n, heads, T, S = shape
    if mask is not None:
        given = insist_on_booleans(mask)
        full = mask[:, None] if mask.ndim == 3 else mask
        fits = 2 <= mask.ndim <= 4 and all(
            size in (1, wanted) for size, wanted in zip(full.shape[::-1], shape[::-1], strict=False)
        )
        if not fits:
            raise ValueError(
                f"mask must broadcast to ({T}, {S}), ({n}, {T}, {S}) or ({n}, {heads}, {T}, {S}),"
                f" got {tuple(given)}; padding is mask[:, None]"
            )
        mask = full if full.ndim == 4 else full[None, None]
    if lengths is not None:
        lengths = row_lengths("lengths", lengths, n, S, device)
        real = (torch.arange(S, device=device) < lengths[:, None])[:, None, None]
        mask = real if mask is None else mask & real
    return mask
