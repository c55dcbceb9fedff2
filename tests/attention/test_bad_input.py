"""What attention refuses, and in which words."""

import re
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.attention import (
    KeyValueCache,
    MultiHeadAttention,
    Transformer,
    TransformerDecoder,
    TransformerEncoder,
    attention,
)

Q, K, V = torch.zeros(4, 3), torch.zeros(6, 3), torch.zeros(6, 2)
X, Z = torch.zeros(2, 5, 8), torch.zeros(2, 7, 8)


def odd(thing) -> Any:
    return thing


def layer(**knobs):
    return MultiHeadAttention(8, 4, **knobs).requires_grad_(False)


def yes(*shape: int):
    return torch.ones(shape, dtype=torch.bool)


def cache():
    return KeyValueCache(2, 4, kv_heads=1, d_k=3)


def remembered(**how):
    net = layer()
    return net(X, cache=net.remember(Z), **how)


def appended(keys, values=None, **how):
    return cache().append(keys, keys if values is None else values, **how)


INTEGERS = "must be boolean, True where attention is allowed, got torch.int64"
MISTAKES = [
    (lambda: attention(Q, K[:, :2], V), "k must be as wide as q, got 2 and 3"),
    (lambda: attention(Q[:, :0], K[:, :0], V), "q must be at least 1 wide, got 0"),
    (lambda: attention(Q, K, V[:5]), "v must have a value for each key, got 5 and 6"),
    (lambda: attention(Q[0], K, V),
     "q must be a floating-point tensor (..., T, d), got torch.float"),
    (lambda: attention(Q.long(), K, V),
     "q must be a floating-point tensor (..., T, d), got torch.i"),
    (lambda: attention(Q, K.double(), V),
     "k must be torch.float32 on cpu as q is, got torch.float64"),
    (lambda: attention(Q, K, odd("v")), "v must be a floating-point tensor (..., T, d), got str"),
    (lambda: attention(Q, K, V, mask=yes(6, 4)),
     "mask and weights must broadcast, got mask: (6, 4)"),
    (lambda: attention(Q, K, V, mask=torch.ones(4, 6).long()), INTEGERS),
    (lambda: attention(Q, K, V, mask=torch.zeros(4, 6)), "allowed, got torch.float32"),
    (lambda: attention(Q, K, V, mask=odd([True])), "allowed, got list"),
    (lambda: attention(Q, K, V, scale=float("nan")), "scale must be a number, got nan"),
    (lambda: attention(Q[None].expand(2, 4, 3), K.expand(3, 6, 3), V),
     "leading axes must broadcast, got q: (2,), k: (3,), v: ()"),
    (lambda: MultiHeadAttention(8, 3), "d must be divisible by heads = 3, got 8"),
    (lambda: MultiHeadAttention(0, 3), "d must be >= 1, got 0"),
    (lambda: layer(kv_heads=3), "heads must be divisible by kv_heads = 3, got 4"),
    (lambda: layer(d_k=0), "d_k must be >= 1, got 0"),
    (lambda: layer(kdim=0), "kdim must be >= 1, got 0"),
    (lambda: layer(dropout=1.0), "dropout must be < 1, got 1.0"),
    (lambda: layer(rotary=1.0), "rotary must be > 1, got 1.0"),
    (lambda: layer(rotary=10.0, d_k=3), "d_k must be even for rotary positions, got 3"),
    (lambda: layer()(X[0]), "x must have the shape (n, T, 8), got (5, 8)"),
    (lambda: layer()(X[:, :, :7]), "x must have the shape (n, T, 8), got (2, 5, 7)"),
    (lambda: layer()(X[:, :0]), "x must have the shape (n, T, 8), got (2, 0, 8)"),
    (lambda: layer()("x"), "x must have the shape (n, T, 8), got str"),
    (lambda: layer()(X, Z[:1]), "keys must have the shape (2, T, 8), got (1, 7, 8)"),
    (lambda: layer()(X, Z, values=X), "values must have the shape (2, 7, 8), got (2, 5, 8)"),
    (lambda: layer()(X, values=Z), "keys must be given with values"),
    (lambda: layer(kdim=3)(X), "keys must be given, 3 wide, and values 8"),
    (lambda: layer(kdim=3)(X, Z[..., :3]), "values must have the shape (2, 7, 8), got NoneType"),
    (lambda: layer(rotary=10.0)(X, Z), "keys must be None with rotary positions"),
    (lambda: layer()(X, positions=torch.arange(5)), "positions must be None without rotary"),
    (lambda: layer(rotary=10.0)(X, positions=torch.tensor(3)), "positions must be (5,), or"),
    (lambda: layer()(X, mask=torch.ones(5, 5).long()), INTEGERS),
    (lambda: layer()(X, mask=torch.zeros(5, 5)), "allowed, got torch.float32"),
    (lambda: layer()(X, Z, mask=yes(7, 5)),
     "mask must broadcast to (5, 7), (2, 5, 7) or (2, 4, 5, 7),"
     " got (7, 5); padding is mask[:, None]"),
    (lambda: layer()(X, Z, mask=yes(2, 7)), "got (2, 7); padding is mask[:, None]"),
    (lambda: layer()(X, Z, mask=yes(4, 5, 7)), "got (4, 5, 7)"),
    (lambda: layer()(X, Z, mask=yes(7)), "got (7,)"),
    (lambda: layer()(X, Z, mask=yes(1, 2, 4, 5, 7)), "got (1, 2, 4, 5, 7)"),
    (lambda: layer()(X, lengths=torch.tensor([5, 6])),
     "lengths must be between 0 and 5, got [5, 6]"),
    (lambda: layer()(X, lengths=torch.tensor([-1, 3])),
     "lengths must be between 0 and 5, got [-1, 3]"),
    (lambda: layer()(X, lengths=torch.tensor([5])),
     "lengths must be 2 integers, one for each row, got"),
    (lambda: layer()(X, lengths=torch.ones(2)),
     "lengths must be 2 integers, one for each row, got"),
    (lambda: layer()(X, lengths=torch.ones(2, dtype=torch.complex64)),
     "lengths must be 2 integers, one for each row, got torch.complex64"),
    (lambda: layer()(X, lengths=[5, 5]),
     "lengths must be 2 integers, one for each row, got [5, 5]"),
    (lambda: layer()(X, Z, cache=layer().cache(2, 5)), "keys must be None with a cache"),
    (lambda: layer()(X, cache=layer().cache(3, 5)),
     "keys must have the shape (3, 4, T, 2), got (2, 4"),
    (lambda: layer()(X, cache=layer().cache(2, 4)),
     "the cache is full: 5 tokens exceed capacity=4"),
    (lambda: remembered(causal=True), "causal must be False and lengths None with a frozen cache"),
    (lambda: remembered(lengths=torch.tensor([1, 1])), "lengths None with a frozen cache"),
    (lambda: remembered(mask=yes(5, 5)), "mask must broadcast to (5, 7)"),
    (lambda: layer()(X[:1], cache=layer().remember(Z)),
     "x must have the 2 rows of the cache, got 1"),
    (lambda: layer()(X, cache=layer().remember(Z[:1])),
     "x must have the 1 rows of the cache, got 2"),
    (lambda: MultiHeadAttention(8, 4)(X, cache=layer().cache(2, 5)), "must not want gradients"),
    (lambda: layer(kv_heads=2).to_torch(), "torch has no layer with grouped heads"),
    (lambda: layer(rotary=10.0).to_torch(), "torch has no layer with grouped heads"),
    (lambda: layer(d_k=4, kv_heads=2).to_torch(), "torch has no layer with grouped heads"),
    (lambda: MultiHeadAttention.from_torch(nn.MultiheadAttention(8, 2, add_bias_kv=True)),
     "module must have neither add_bias_kv nor add_zero_attn"),
    (lambda: MultiHeadAttention.from_torch(nn.MultiheadAttention(8, 2, add_zero_attn=True)),
     "module must have neither add_bias_kv nor add_zero_attn"),
    (lambda: KeyValueCache(0, 4, kv_heads=1, d_k=3), "n must be >= 1, got 0"),
    (lambda: KeyValueCache(2, 0, kv_heads=1, d_k=3), "capacity must be >= 1, got 0"),
    (lambda: appended(torch.zeros(2, 1, 2, 4)),
     "keys must have the shape (2, 1, T, 3), got (2, 1, 2, 4)"),
    (lambda: appended(torch.zeros(2, 1, 2, 3), torch.zeros(2, 1, 1, 3)), "as many values as keys"),
    (lambda: appended(torch.zeros(2, 1, 2, 3).double()), "keys must be torch.float32 on cpu, got"),
    (lambda: appended(torch.zeros(2, 1, 5, 3)), "the cache is full: 5 tokens exceed capacity=4"),
    (lambda: cache().reorder(torch.tensor([0, 2])), "rows must be between 0 and 1, got [0, 2]"),
    (lambda: cache().reorder(torch.tensor([-1])), "rows must be between 0 and 1, got [-1]"),
    (lambda: cache().reorder(yes(2)), "rows must be a vector of integers, got torch.bool (2,)"),
    (lambda: cache().reorder(odd([0])), "rows must be a vector of integers, got [0]"),
    (lambda: cache().reserve(5), "the cache is full: 5 tokens exceed capacity=4"),
    (lambda: TransformerEncoder(8, 2, depth=0), "depth must be >= 1, got 0"),
    (lambda: TransformerEncoder(0, 2), "d must be >= 1, got 0"),
    (lambda: TransformerDecoder(-1, 2), "d must be >= 1, got -1"),
    (lambda: Transformer(8, 2, depth=odd((1, 2, 3))), "blocks or a pair of them, got (1, 2, 3)"),
    (lambda: Transformer(8, 2, depth=odd(2.0)), "depth must be an integer, got 2.0"),
    (lambda: TransformerEncoder(8, 3), "d must be divisible by heads = 3, got 8"),
    (lambda: TransformerEncoder(8, 2, hidden=0), "hidden must be >= 1, got 0"),
    (lambda: TransformerEncoder(8, 2, dropout=-0.1), "dropout must be >= 0, got -0.1"),
    (lambda: TransformerEncoder(8, 2, activation=odd("tanh")),
     "activation must be one of 'relu', 'gelu'"),
    (lambda: TransformerEncoder(8, 2, layer_norm_eps=-1.0), "layer_norm_eps must be >= 0, got -1"),
    (lambda: TransformerEncoder(8, 4, depth=2)(X, cache=[cache()]),
     "cache must hold 2 caches, one"),
    (lambda: TransformerEncoder(8, 4, depth=2)(X, cache=cache()), "for each attention, got 1"),
    (lambda: TransformerDecoder(8, 4, depth=1)(X),
     "either source or a cache that holds it must be"),
    (lambda: Transformer(8, 4, depth=(1, 1))(X, Z[:1]),
     "keys must have the shape (1, T, 8), got (2,"),
]  # fmt: skip


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "message"), MISTAKES)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
