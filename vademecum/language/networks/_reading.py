"""How one pass of a causal network looks back: at its own tokens alone, or at a cache as well.

What is the same in all layers is made once: where new keys go, and who may look at which key. A
pass over a cache waits for no device, and with `all_slots` its shapes never change.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.attention import KeyValueCache

__all__ = ["Reading"]


class Reading:
    """Causal attention of T new tokens in n rows, layer by layer.

    Args:
        T: How many tokens each row brings.
        lengths: How many of them are real; padding comes after them.
        caches: What earlier tokens left, a cache for each layer.
        dropout: How many weights are dropped.
    """

    def __init__(
        self,
        T: int,
        lengths: Tensor | None,
        caches: Sequence[KeyValueCache] | None,
        dropout: float,
    ):
        self.T, self.lengths, self.caches, self.dropout = T, lengths, caches, dropout
        self.mask: Tensor | None = None
        self.filled: int | None = 0
        if caches is not None:
            first = caches[0]
            self.filled = first.filled
            self.slots = first.slots_for(T, lengths)
            self.places = None if self.filled is not None else first.positions(T)

    def positions(self, table: Tensor) -> Tensor:
        """The rows of a table that belong to the positions of the tokens: (T, d) or (n, T, d)."""
        if self.filled is not None:
            return table[self.filled : self.filled + self.T]
        assert self.places is not None
        return F.embedding(self.places.clamp(max=len(table) - 1), table)  # some are padding

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention of queries (n, h, T, d) over the keys and values of a layer so far."""
        if self.caches is None:
            return F.scaled_dot_product_attention(q, k, v, None, self.dropout, self.T > 1)
        cache = self.caches[layer]
        keys, values = cache.append(k, v, lengths=self.lengths, slots=self.slots)
        if self.filled == 0:  # padding is after what is real, where nobody looks
            return F.scaled_dot_product_attention(q, k, v, None, self.dropout, self.T > 1)
        if layer == 0:
            self.mask = self._mask(keys.shape[2], q)
        return F.scaled_dot_product_attention(q, keys, values, self.mask, self.dropout)

    def _mask(self, S: int, like: Tensor) -> Tensor | None:
        """0 where attention is allowed and minus infinity elsewhere: kernels add it as it is."""
        if self.places is None and self.T == 1:
            return None
        slots = torch.arange(S, device=like.device)
        if self.places is not None:
            forbidden = (slots > self.places[..., None])[:, None]
        else:
            assert self.filled is not None
            own = torch.arange(self.filled, self.filled + self.T, device=like.device)
            forbidden = slots > own[:, None]
        mask = torch.zeros(forbidden.shape, dtype=like.dtype, device=like.device)
        return mask.masked_fill_(forbidden, -torch.inf)
