"""Queries, keys and masks of `nn.MultiheadAttention`, from what its functional form is given.

That form hides its calls from modes of torch, so its first lines are repeated here: the projections
of queries and keys, and the masks, which are True where attention is forbidden.
"""

import inspect
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["of_torch_layer"]

_SIGNATURE = inspect.signature(F.multi_head_attention_forward)


def of_torch_layer(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Queries (n, h, T, d), keys (n, h, S, d), masks, scale and causality of such a call."""
    bound = _SIGNATURE.bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    query, key, heads = given["query"], given["key"], given["num_heads"]
    if query.ndim == 2:
        query, key = query[:, None], key[:, None]
    if given["use_separate_proj_weight"]:
        weights = given["q_proj_weight"], given["k_proj_weight"]
    else:
        weights = given["in_proj_weight"].chunk(3)[:2]
    both = given["in_proj_bias"]
    constants = (None, None) if both is None else both.chunk(3)[:2]
    q = F.linear(query, weights[0], constants[0]).unflatten(-1, (heads, -1)).permute(1, 2, 0, 3)
    n = len(q)
    if given["static_k"] is None:
        k = F.linear(key, weights[1], constants[1])
        if given["bias_k"] is not None:
            k = torch.cat([k, given["bias_k"].expand(1, n, -1)])
        k = k.unflatten(-1, (heads, -1)).permute(1, 2, 0, 3)
    else:
        k = given["static_k"].unflatten(0, (n, heads))
    if given["add_zero_attn"]:
        k = F.pad(k, (0, 0, 0, 1))
    alone = given["is_causal"] and given["key_padding_mask"] is None and not given["need_weights"]
    masks = () if alone else _masks(given, n, heads, k.shape[2])
    how = {"q": q, "k": k, "masks": masks, "scale": q.shape[3] ** -0.5, "causal": alone}
    return how


def _masks(given: dict[str, Any], n: int, heads: int, S: int) -> tuple[Tensor, ...]:
    found = []
    mask, padding = given["attn_mask"], given["key_padding_mask"]
    if mask is not None:
        found.append(mask[None, None] if mask.ndim == 2 else mask.unflatten(0, (n, heads)))
    if padding is not None:
        found.append(padding.reshape(n, 1, 1, -1))
    found = [~each if each.dtype == torch.bool else each for each in found]
    return tuple(
        F.pad(each, (0, S - each.shape[3]), value=float(each.dtype == torch.bool)) for each in found
    )
