"""What the course claims of attention and transformers."""

from vademecum.attention.claims import (
    heads,
    images,
    memories,
    mixing,
    positions,
    score_sizes,
    scores,
)

__all__ = [
    "mixing", "scores", "heads", "positions", "memories", "images", "score_sizes",
]  # fmt: skip
from vademecum.attention.claims import directions, heads, mixing, scores, stacks

__all__ = ["mixing", "scores", "heads", "directions", "stacks"]
