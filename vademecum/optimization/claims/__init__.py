"""What the course claims of descent methods."""

from vademecum.optimization.claims import (
    convexity,
    convexity_ladder,
    curved_steps,
    lipschitz,
    smoothness,
    steepest,
    steps,
    taylor,
    upper_bounds,
)

__all__ = [
    "steepest", "steps", "taylor", "curved_steps", "lipschitz", "smoothness", "upper_bounds",
    "convexity", "convexity_ladder",
]  # fmt: skip
