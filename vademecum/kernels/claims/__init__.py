"""What the course claims of kernels, Gaussian processes and networks of great width."""

from vademecum.kernels.claims import gradient_steps, tangents

__all__ = ["tangents", "gradient_steps"]  # fmt: skip
