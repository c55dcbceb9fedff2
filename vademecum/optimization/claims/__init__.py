"""What the course claims of descent methods."""

from vademecum.optimization.claims import (
    curved_steps,
    lipschitz,
    smoothness,
    steepest,
    steps,
    taylor,
)

__all__ = ["steepest", "steps", "taylor", "curved_steps", "lipschitz", "smoothness"]
