"""What the course claims of attention and transformers."""

from vademecum.attention.claims import heads, mixing, scores

__all__ = ["mixing", "scores", "heads"]
