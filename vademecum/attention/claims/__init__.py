"""What the course claims of attention and transformers."""

from vademecum.attention.claims import (
    directions,
    heads,
    images,
    memories,
    mixing,
    positions,
    score_sizes,
    scores,
    stacks,
)

__all__ = [
    "mixing", "scores", "heads", "positions", "memories", "images", "score_sizes", "directions",
    "stacks",
]  # fmt: skip
