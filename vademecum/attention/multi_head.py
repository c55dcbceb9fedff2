r"""Multi-head attention: $h$ attentions side by side, each in a space of its own.

$$H_i = \mathrm{attention}(X U_Q^i,\; Z U_K^i,\; Z U_V^i), \qquad
\mathrm{MultiHead}(X, Z) = [H_1, \dots, H_h]\, W^O ,$$

with $Z = X$ for self-attention and another sequence for cross-attention. All projections of one
input are one product. With $h_k < h$ heads of keys and values, $h / h_k$ neighbouring query heads
share one of them.

Fused kernels compute it (`scaled_dot_product_attention`); if weights are asked for, the dense
definition does, to the same numbers up to rounding. The claims are `multi_head`,
`multi_head_shapes`, `self_attention`, `cross_attention` and `causal_mask`.
"""

from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Integer, Shaped
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.arguments import number
from vademecum.attention._fused import fused
from vademecum.attention._head_projections import HeadProjections, insist_on_width
from vademecum.attention._masks import admitted
from vademecum.attention.caches import KeyValueCache
from vademecum.attention.dense import Attention, attention
from vademecum.attention.turned_pairs import rotary

__all__ = ["MultiHeadAttention"]

Layer = TypeVar("Layer", bound=nn.Module)


class MultiHeadAttention(HeadProjections):
    r"""Attention with several heads, over the input itself or over another sequence.

    Where `nn.MultiheadAttention` has the same shapes, parameters have its names and its initial
    law, so that state dicts fit both ways; there `batch_first` is meant, and a mask is True where
    attention is forbidden, here where it is allowed.

    Args:
        d: How wide inputs and outputs are.
        heads: The number $h$ of heads.
        kv_heads: The number $h_k$ of heads of keys and values, a divisor of `heads`; as many as
            `heads` by default, and one is called multi-query attention.
        d_k: How wide queries and keys are in a head; `d / heads` by default.
        d_v: How wide values are in a head; `d / heads` by default.
        kdim: How wide the keys' sequence is, if not d.
        vdim: How wide the values' sequence is, if not d.
        bias: Whether projections have constants.
        dropout: How many of the weights are dropped while training.
        rotary: The base of rotary positions, usually 10000; None for none.

    Raises:
        ValueError: If a size is below 1, or is not divisible where it must be.

    References:
        Vaswani et al., Attention is all you need, 2017. Ainslie et al., GQA: training generalized
        multi-query transformer models from multi-head checkpoints, EMNLP, 2023.

    Example:
        >>> layer = MultiHeadAttention(16, 4)
        >>> x = torch.randn(2, 5, 16)
        >>> layer(x, causal=True).shape
        torch.Size([2, 5, 16])
        >>> layer(x, torch.randn(2, 7, 16), weights=True).weights.shape
        torch.Size([2, 4, 5, 7])
        >>> cache = layer.cache(2, 8)
        >>> with torch.no_grad():
        ...     steps = [layer(x[:, t : t + 1], causal=True, cache=cache) for t in range(5)]
        >>> torch.allclose(torch.cat(steps, 1), layer(x, causal=True), atol=1e-6)
        True
    """

    def __init__(
        self,
        d: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        d_k: int | None = None,
        d_v: int | None = None,
        kdim: int | None = None,
        vdim: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        rotary: float | None = None,
    ):
        super().__init__(d, heads, kv_heads, (d_k, d_v), (kdim, vdim), bias=bias)
        self.dropout = number("dropout", dropout, low=0, below=1)
        self.rotary = None if rotary is None else number("rotary", rotary, above=1)
        if rotary is not None and self.d_k % 2:
            raise ValueError(f"d_k must be even for rotary positions, got {self.d_k}")

    def forward(
        self,
        x: Float[Tensor, " n T d"],
        keys: Float[Tensor, " n S kdim"] | None = None,
        *,
        values: Float[Tensor, " n S vdim"] | None = None,
        mask: Bool[Tensor, " ..."] | None = None,
        lengths: Integer[Tensor, " n"] | None = None,
        causal: bool = False,
        positions: Shaped[Tensor, " *rows T"] | None = None,
        cache: KeyValueCache | None = None,
        weights: bool = False,
    ) -> Float[Tensor, " n T d"] | Attention:
        """Attend from every token of x.

        Args:
            x: Where queries come from.
            keys: Where keys come from; x by default, which is self-attention.
            values: Where values come from; the same as keys by default.
            mask: True where attention is allowed: (T, S), (n, T, S) or (n, heads, T, S), any of
                which may be 1; padding that a mask (n, S) tells is `mask[:, None]`.
            lengths: How many keys of each row are real; padding comes after them.
            causal: Whether a query looks at no key after its own time; the last query belongs to
                the last key.
            positions: Those of the tokens for rotary positions; by default 0, 1, ..., after what
                is in the cache.
            cache: Keys and values of earlier tokens, which those of x join; `lengths` then says
                how many tokens of x are real. From a frozen one (`remember`) is only read.
            weights: Whether to return the weights (n, heads, T, S), too; they are computed densely.

        Returns:
            The outputs, one for each query; with `weights` an `Attention`. A query that may look
            at no key gets zeros from all heads, so its output is the constant of the last map.
        """
        insist_on_width("x", x, None, None, self.d)
        if keys is not None or values is not None:
            self._insist_on_other(x, keys, values, cache)
        elif self.in_proj_weight is None and (cache is None or not cache.frozen):
            raise ValueError(f"keys must be given, {self.kdim} wide, and values {self.vdim}")
        if positions is not None and self.rotary is None:
            raise ValueError("positions must be None without rotary positions")
        if cache is not None and cache.frozen and (causal or lengths is not None):
            raise ValueError("causal must be False and lengths None with a frozen cache")
        shape = (len(x), self.heads, x.shape[1])
        if cache is None:
            q, k, v = self._projected(x, keys, values)
            mask = admitted((*shape, k.shape[2]), mask, lengths, x.device)
            q, k = self._turned(q, k, positions)
        else:
            T = 0 if cache.frozen else x.shape[1]
            mask = admitted((*shape, cache.slots(T)), mask, None, x.device)
            places = cache.positions(x.shape[1])
            q, k, v = self._joined(x, lengths, places if positions is None else positions, cache)
            filled = cache.admitted(places, causal=causal)
            if filled is not None:
                mask, causal = filled if mask is None else mask & filled, False
        dropout = self.dropout if self.training else 0.0
        if weights:
            y, maps = self._dense(q, k, v, mask, causal, dropout)
            return Attention(self.out_proj(y.transpose(1, 2).flatten(2)), maps)
        y = fused(q, k, v, mask, causal=causal, dropout=dropout)
        return self.out_proj(y.transpose(1, 2).flatten(2))

    def cache(self, n: int, capacity: int, *, all_slots: bool = False) -> KeyValueCache:
        """Memory for the keys and values of n rows of up to `capacity` tokens each.

        Its numbers are those of the layer; where `torch.autocast` is on, those that it casts to.

        Args:
            n: How many rows there are.
            capacity: How many tokens a row holds at most.
            all_slots: Whether no shape changes as rows grow, as CUDA graphs need it.
        """
        like = self.out_proj.weight
        kind, dtype = like.device.type, like.dtype
        if torch.is_autocast_enabled(kind) and dtype != torch.float64:
            dtype = torch.get_autocast_dtype(kind)
        sizes = {"kv_heads": self.kv_heads, "d_k": self.d_k, "d_v": self.d_v}
        return KeyValueCache(
            n, capacity, **sizes, all_slots=all_slots, dtype=dtype, device=like.device
        )

    @torch.no_grad()
    def remember(
        self,
        keys: Float[Tensor, " n S kdim"],
        values: Float[Tensor, " n S vdim"] | None = None,
        *,
        lengths: Integer[Tensor, " n"] | None = None,
    ) -> KeyValueCache:
        """A sequence to attend to again and again: its keys and values, in a frozen cache.

        Args:
            keys: Where keys come from.
            values: Where values come from; the same as keys by default.
            lengths: How many tokens of each row are real.
        """
        self._insist_on_memory(len(keys), keys, values)
        cache = self.cache(*keys.shape[:2])
        cache.append(*self._memories(keys, keys if values is None else values), lengths=lengths)
        cache.frozen = True
        return cache

    def _joined(
        self, x: Tensor, lengths: Tensor | None, positions: Tensor, cache: KeyValueCache
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, and all keys and values of a cache, to which those of x are added."""
        if cache.frozen:
            k, v = cache.contents()
            if len(k) != len(x):
                raise ValueError(f"x must have the {len(k)} rows of the cache, got {len(x)}")
            return self._queries(x), k, v
        q, k, v = self._projected(x, None, None)
        q, k = self._turned(q, k, positions)
        k, v = cache.append(k, v, lengths=lengths)
        return q, k, v

    def _turned(self, q: Tensor, k: Tensor, positions: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.rotary is None:
            return q, k
        if positions is None:
            positions = torch.arange(q.shape[2], device=q.device)
        at = positions[:, None] if positions.ndim == 2 else positions
        return rotary(q, at, base=self.rotary), rotary(k, at, base=self.rotary)

    def _dense(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, dropout: float
    ) -> Attention:
        if self.kv_heads < self.heads:
            k, v = (x.repeat_interleave(self.heads // self.kv_heads, 1) for x in (k, v))
        found = attention(q, k, v, mask=mask, causal=causal)
        if dropout:
            return found._replace(output=F.dropout(found.weights, dropout) @ v)
        return found

    def _insist_on_other(
        self, x: Tensor, keys: Tensor | None, values: Tensor | None, cache: KeyValueCache | None
    ) -> None:
        if keys is None:
            raise ValueError("keys must be given with values")
        if cache is not None or self.rotary is not None:
            which = "a cache" if cache is not None else "rotary positions"
            raise ValueError(f"keys must be None with {which}")
        self._insist_on_memory(len(x), keys, values)

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention) -> "MultiHeadAttention":
        """The same layer with copies of the same weights, in the same mode, frozen where it is.

        Args:
            module: A layer of torch, without `add_bias_kv` and `add_zero_attn`.
        """
        if module.bias_k is not None or module.add_zero_attn:
            raise ValueError("module must have neither add_bias_kv nor add_zero_attn")
        with torch.device("meta"):  # which draws no random numbers
            made = cls(
                module.embed_dim, module.num_heads, kdim=module.kdim, vdim=module.vdim,
                bias=module.in_proj_bias is not None, dropout=module.dropout,
            )  # fmt: skip
        return _like(module, made)

    def to_torch(self) -> nn.MultiheadAttention:
        """The same layer of torch, `batch_first`, with copies of the same weights.

        Raises:
            ValueError: If torch has no such layer: grouped heads, own widths, rotary positions.
        """
        if self.rows != (self.d,) * 3 or self.d_k * self.heads != self.d or self.rotary:
            raise ValueError("torch has no layer with grouped heads, d_k, d_v or rotary positions")
        with torch.device("meta"):
            made = nn.MultiheadAttention(
                self.d, self.heads, self.dropout, self.in_proj_bias is not None,
                kdim=self.kdim, vdim=self.vdim, batch_first=True,
            )  # fmt: skip
        return _like(self, made)

    def extra_repr(self) -> str:
        """The sizes, as the constructor takes them."""
        usual = self.d // self.heads
        options = {
            "kv_heads": (self.kv_heads, self.heads), "d_k": (self.d_k, usual),
            "d_v": (self.d_v, usual), "kdim": (self.kdim, self.d), "vdim": (self.vdim, self.d),
            "bias": (self.in_proj_bias is not None, True), "dropout": (self.dropout, 0.0),
            "rotary": (self.rotary, None),
        }  # fmt: skip
        own = [f"{name}={value}" for name, (value, default) in options.items() if value != default]
        return ", ".join([f"{self.d}", f"{self.heads}", *own])


def _like(module: nn.Module, made: Layer) -> Layer:
    """The layer with copies of a module's weights, in its mode, and frozen where it is."""
    state = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
    made.load_state_dict(state, assign=True)
    for name, p in module.named_parameters():
        made.get_parameter(name).requires_grad_(p.requires_grad)
    return made.train(module.training)
