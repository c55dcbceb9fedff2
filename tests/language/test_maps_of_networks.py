"""Where GPT and BERT look, as the instrument for any module sees it."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from vademecum.attention import attention_maps
from vademecum.language import BERT, GPT

SIZES: dict[str, Any] = {"V": 11, "d": 12, "layers": 2, "heads": 3, "context": 9}
TOKENS = torch.randint(11, (3, 6), generator=torch.Generator().manual_seed(0))


def spread(model: Any) -> Any:
    for p in model.parameters():
        p.data.normal_(0, 0.4)
    return model.double().eval()


def kept(model: Any, ends: str, store: list[Tensor]) -> None:
    """Keep what the maps with such names give, in the order of calls."""
    for name, module in model.named_modules():
        if name.endswith(ends):
            module.register_forward_hook(lambda _, __, y: store.append(y.detach()))


def weights(q: Tensor, k: Tensor, allowed: Tensor) -> Tensor:
    """Weights of 3 heads by the definition, from queries and keys (T, d)."""
    q, k = (x.unflatten(-1, (3, -1)).transpose(0, 1) for x in (q, k))
    return (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~allowed, -math.inf).softmax(-1)


def test_maps_of_gpt_are_those_of_its_queries_and_keys():
    model, seen = spread(GPT(**SIZES)), []
    kept(model, "c_attn", seen)
    found = attention_maps(model, TOKENS)
    assert found.names == ("transformer.h.0.attn", "transformer.h.1.attn")
    assert not found.unseen
    before = torch.ones(6, 6, dtype=torch.bool).tril()
    for qkv, maps in zip(seen, found.weights, strict=True):
        for row in range(3):
            q, k, _ = qkv[row].chunk(3, -1)
            torch.testing.assert_close(maps[row], weights(q, k, before))


@pytest.mark.parametrize("lengths", [None, [4, 6, 4]])
def test_maps_of_bert_are_those_of_its_queries_and_keys(lengths):
    model, queries, keys = spread(BERT(**SIZES)), [], []
    kept(model, "self.query", queries)
    kept(model, "self.key", keys)
    x: Any = TOKENS if lengths is None else {"tokens": TOKENS, "lengths": torch.tensor(lengths)}
    found = attention_maps(model, x)
    sizes = [[6] * 3] if lengths is None else [[6], [4, 4]]  # a call for each length
    assert found.names == tuple(
        f"encoder.layer.{i}.attention.self" for i in range(2) for _ in sizes
    )
    assert not found.unseen
    maps = iter(found.weights)
    for q, k in zip(queries, keys, strict=True):
        first = 0
        for group in sizes:
            for one, T in zip(next(maps), group, strict=True):
                part = slice(first, first + T)
                every = torch.ones(T, T, dtype=torch.bool)
                torch.testing.assert_close(one, weights(q[part], k[part], every))
                first += T
