"""Where models look: the weights of attention in any module, their entropies and ranks."""

from vademecum.attention.weights_seen.entropies import AttentionEntropy, attention_entropy
from vademecum.attention.weights_seen.map_drawing import draw_attention
from vademecum.attention.weights_seen.map_ranks import AttentionRank, attention_rank
from vademecum.attention.weights_seen.whole_maps import AttentionMaps, attention_maps

__all__ = [
    "AttentionEntropy", "AttentionMaps", "AttentionRank", "attention_entropy", "attention_maps",
    "attention_rank", "draw_attention",
]  # fmt: skip
