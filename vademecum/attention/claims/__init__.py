"""What the course claims of attention and transformers."""

from vademecum.attention.claims import heads, mixing, scores

__all__ = ["mixing", "scores", "heads"]
"""What the course claims of attention."""

from vademecum.attention.claims import images, memories, positions, scores

__all__ = ["scores", "positions", "memories", "images"]
