r"""Multi-head attention in steps, where torch has one function for all of it.

$$z = W_o \operatorname{concat}_h \operatorname{softmax}\Big(\frac{q_h k_h^T}{\sqrt{d}} + m\Big) v_h
+ c_o, \qquad (q, k, v) = W_i (x_q, x_k, x_v) + c_i.$$

So its four projections are products that can be seen by themselves. The numbers are those of
`torch.nn.functional.multi_head_attention_forward` without dropout, up to rounding; what is rare
(vectors that are added to keys and values, one example without an axis) is left to that function.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["attention"]

_SIGNATURE = inspect.signature(F.multi_head_attention_forward)
Linear = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def attention(linear: Linear, n: int, args: Any, kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """`F.multi_head_attention_forward` of `n` examples, with `linear` for its projections."""
    bound = _SIGNATURE.bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    rare = ("bias_k", "bias_v", "static_k", "static_v")
    if (
        given["query"].shape[1:2] != (n,)
        or given["query"].ndim != 3
        or given["add_zero_attn"]
        or (given["training"] and given["dropout_p"])
        or any(given[name] is not None for name in rare)
    ):
        return F.multi_head_attention_forward(*args, **kwargs)
    heads = given["num_heads"]
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in _projections(linear, given))
    mask = _mask(given, n, q.dtype)
    if given["need_weights"]:
        scores = q @ k.mT / q.shape[-1] ** 0.5
        weights = (scores if mask is None else scores + mask).softmax(-1)
        h = weights @ v
        weights = weights.mean(1) if given["average_attn_weights"] else weights
    else:
        causal = given["is_causal"] and given["key_padding_mask"] is None
        h = F.scaled_dot_product_attention(q, k, v, None if causal else mask, is_causal=causal)
        weights = None
    z = linear(h.transpose(1, 2).flatten(2), given["out_proj_weight"], given["out_proj_bias"])
    return z.transpose(0, 1), weights


def _projections(linear: Linear, given: dict[str, Any]) -> list[Tensor]:
    """Queries, keys and values (n, t, d)."""
    inputs = [given[name].transpose(0, 1) for name in ("query", "key", "value")]
    weight, bias = given["in_proj_weight"], given["in_proj_bias"]
    if given["query"] is given["key"] is given["value"] and weight is not None:
        return list(linear(inputs[0], weight, bias).chunk(3, -1))
    names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
    weights = [given[name] for name in names] if weight is None else weight.chunk(3)
    biases = [None] * 3 if bias is None else bias.chunk(3)
    return [linear(*each) for each in zip(inputs, weights, biases, strict=True)]


def _mask(given: dict[str, Any], n: int, dtype: torch.dtype) -> Tensor | None:
    """What is added to the scores (n, heads, t, s)."""
    mask, padding = given["attn_mask"], given["key_padding_mask"]
    if mask is not None:
        mask = _additive(mask, dtype)
        mask = mask.unflatten(0, (n, -1)) if mask.ndim == 3 else mask
    if padding is not None:
        padding = _additive(padding, dtype)[:, None, None]
    return padding if mask is None else mask if padding is None else mask + padding


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, float("-inf"))
