"""What the course says of Python, NumPy and PyTorch: claims only, nothing to import.

The statements of this room are about the tools, and each is checked on the tools as they are
installed. Most of them are conventions that are easily taken for the opposite: which way `round`
goes at a tie, that `np.linalg.svd` returns *V* already transposed, that `A * B` is no matrix
product, that gradients add up until they are reset.
"""

__all__ = []
