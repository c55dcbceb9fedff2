"""What torch's fused attention is given, with four axes throughout."""

from typing import Any

import torch
from torch import Tensor

__all__ = ["four_axes", "of_fused"]


def four_axes(t: Tensor, n: int) -> Tensor:
    """Examples, heads and two axes more: heads alone, or joined with the examples, are split."""
    if t.ndim == 2:
        return t[None, None]
    if t.ndim > 4:
        return t.flatten(1, -3)
    if t.ndim == 4:
        return t
    if len(t) == n:
        return t[:, None]
    return t.unflatten(0, (n, -1)) if len(t) % n == 0 else t[None]


def of_fused(
    n: int,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> dict[str, Any]:
    """What torch's fused attention is given; its causality begins at the first key."""
    rows = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3])
    each = query.shape[-3:-2]  # heads of queries: those of keys may be fewer
    if each == (1,) and key.ndim > 2:
        each = key.shape[-3:-2]
    query = query.expand(*rows, *each, *query.shape[-2:])
    q, k = four_axes(query, n), four_axes(key.expand(*rows, *key.shape[-3:]), n)
    masks: tuple[Tensor, ...] = ()
    if attn_mask is not None:
        wide = (*query.shape[:-2], *attn_mask.shape[-2:])
        masks = (four_axes(attn_mask.expand(wide), n),)
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    return {"q": q, "k": k, "masks": masks, "scale": factor, "causal": is_causal}
