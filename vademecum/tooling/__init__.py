"""What the course says of Python, NumPy and PyTorch: claims only, nothing to import."""

__all__ = []
