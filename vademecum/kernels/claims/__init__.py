"""What the course claims of kernels, Gaussian processes and networks of great width."""

__all__ = []  # fmt: skip
