"""What the course claims of descent methods."""

from vademecum.optimization.claims import steepest, steps

__all__ = ["steepest", "steps"]
