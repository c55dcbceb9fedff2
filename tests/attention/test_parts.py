"""Every module of attention keeps the laws of parts."""

import pytest
import torch
from torch import nn

from vademecum.attention import (
    MultiHeadAttention,
    Transformer,
    TransformerDecoder,
    TransformerEncoder,
)
from vademecum.testing import check_part


def sequences(*lengths: int):
    return tuple(torch.randn(3, T, 8) for T in lengths)


PARTS = {
    "MultiHeadAttention": lambda: (MultiHeadAttention(8, 4, kv_heads=2, d_v=3, dropout=0.2), (5,)),
    "rotary": lambda: (MultiHeadAttention(8, 2, rotary=100.0), (5,)),
    "across": lambda: (MultiHeadAttention(8, 2, bias=False), (5, 4)),
    "TransformerEncoder": lambda: (TransformerEncoder(8, 2, depth=2, norm_first=True), (5,)),
    "TransformerDecoder": lambda: (TransformerDecoder(8, 2, depth=2, kv_heads=1), (5, 4)),
    "Transformer": lambda: (Transformer(8, 2, depth=(1, 2)), (5, 4)),
}


@pytest.mark.parametrize("name", PARTS)
def test_laws(name):
    part, lengths = PARTS[name]()
    for p in part.parameters():  # a bias of keys moves nothing, and zeros hide what they multiply
        nn.init.normal_(p, 0, 0.5)
    check_part(part, sequences(*lengths), devices=("cpu", "meta"))
