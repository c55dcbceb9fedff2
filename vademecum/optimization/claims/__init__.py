"""What the course claims of descent methods."""

from vademecum.optimization.claims import (
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
]  # fmt: skip
