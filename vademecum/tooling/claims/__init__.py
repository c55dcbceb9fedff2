"""What the course claims of Python, NumPy and PyTorch."""

from vademecum.tooling.claims import arrays, decompositions, language, tensors

__all__ = ["arrays", "decompositions", "language", "tensors"]
