"""What the course claims of attention and transformers."""

from vademecum.attention.claims import mixing, scores

__all__ = ["mixing", "scores"]
