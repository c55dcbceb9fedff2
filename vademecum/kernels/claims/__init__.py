"""What the course claims of kernels, Gaussian processes and networks of great width."""

from vademecum.kernels.claims import (
    deep_limits,
    gradient_steps,
    tangent_limits,
    tangents,
    wide_layers,
)

__all__ = [
    "wide_layers", "deep_limits", "tangents", "gradient_steps", "tangent_limits",
]  # fmt: skip
