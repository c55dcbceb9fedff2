"""Attention, transformers, vision transformers and memory networks.

*Attention* reads a memory by content: a query is compared with keys, and the answer is the average
of the values, weighted by how well their keys match. Heads do so side by side, a *transformer*
stacks them with networks that treat each position alone, and positions must be told, since nothing
else in it knows of order.
"""

from vademecum.attention.caches import KeysAndValues, KeyValueCache
from vademecum.attention.dense import Attention, attention
from vademecum.attention.memories import MemoryNetwork, MemoryReading
from vademecum.attention.multi_head import MultiHeadAttention
from vademecum.attention.positions import encoding_rotation, sinusoidal_encoding
from vademecum.attention.transformer import Transformer, TransformerDecoder, TransformerEncoder
from vademecum.attention.turned_pairs import rotary
from vademecum.attention.vision import ViT, patchify, unpatchify
from vademecum.attention.weights_seen import (
    AttentionEntropy,
    AttentionMaps,
    AttentionRank,
    attention_entropy,
    attention_maps,
    attention_rank,
    draw_attention,
)

__all__ = [
    # attention
    "Attention", "attention", "MultiHeadAttention", "KeyValueCache", "KeysAndValues",
    # transformers
    "Transformer", "TransformerDecoder", "TransformerEncoder",
    # positions
    "encoding_rotation", "rotary", "sinusoidal_encoding",
    # images
    "ViT", "patchify", "unpatchify",
    # external memory
    "MemoryNetwork", "MemoryReading",
    # where any model looks
    "AttentionEntropy", "AttentionMaps", "AttentionRank", "attention_entropy", "attention_maps",
    "attention_rank", "draw_attention",
]  # fmt: skip
