r"""Attention by torch's fused kernels, with causality aligned at the end and zeros without keys.

`scaled_dot_product_attention` aligns `is_causal` at the beginning, so that one query over a cache
would see the first key alone; that flag is used where both alignments agree. And what it gives to
a query that may look at no key depends on the backend: zeros, or NaN. Here such a query looks at
all keys, and its output is overwritten by zeros, which also stops its gradient. Nothing waits for
the device.

Grouped heads share keys: $h$ query heads over $h_k$ key heads, each for $h / h_k$ neighbours. With
a single query the heads of a group are the queries of one head, and nothing is copied.
"""

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from vademecum.attention._masks import bottom_right

__all__ = ["fused"]


def fused(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, causal: bool, dropout: float = 0.0
) -> Tensor:
    """Attention of q (n, h, T, d) over k (n, h_k, S, d) and v (n, h_k, S, d_v).

    Args:
        q: Queries.
        k: Keys.
        v: Values.
        mask: With four axes that broadcast to (n, h, T, S), True where attention is allowed.
        causal: Whether a query looks at no key after its own time.
        dropout: How many of the weights are dropped.
    """
    T, S = q.shape[2], k.shape[2]
    some_see_nothing = mask is not None or (causal and T > S)
    causal = causal and T > 1  # the last query sees all keys
    if causal and (mask is not None or T != S):
        earlier, causal = bottom_right(T, S, q.device)[None, None], False
        mask = earlier if mask is None else mask & earlier
    alone = None
    if mask is not None and some_see_nothing:
        alone = ~mask.any(-1, keepdim=True)
        mask = mask | alone
    y = _grouped(q, k, v, mask, causal, dropout)
    return y if alone is None else y.masked_fill(alone, 0)


def _grouped(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, dropout: float
) -> Tensor:
    (n, h, T, _), groups = q.shape, k.shape[1]
    if groups == h:
        return scaled_dot_product_attention(q, k, v, mask, dropout, causal)
    if T > 1:
        return scaled_dot_product_attention(q, k, v, mask, dropout, causal, enable_gqa=True)
    if mask is not None and mask.shape[1] > 1:
        mask = mask.reshape(len(mask), groups, h // groups, mask.shape[3])
    q = q.reshape(n, groups, h // groups, q.shape[3])
    return scaled_dot_product_attention(q, k, v, mask, dropout).reshape(n, h, 1, v.shape[3])
