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
    "mixing", "scores", "score_sizes", "heads", "directions", "positions", "stacks", "memories",
    "images",
]  # fmt: skip
