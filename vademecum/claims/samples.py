r"""Random things to check claims on, with which arithmetic is exact or the answer is planted.

All draw from the global generator, which a claim's run has seeded.
"""

import torch
from torch import Tensor

__all__ = ["finite_law", "integers", "with_eigenvalues"]


def integers(*shape: int, most: int = 9) -> Tensor:
    """Random integers from -most to most in double precision: sums and products are exact.

    Example:
        >>> float(integers(3, 100, most=2).abs().max())
        2.0
    """
    return torch.randint(-most, most + 1, shape).double()


def finite_law(d: int, *, points: int = 6, most: int = 3) -> tuple[Tensor, Tensor]:
    """A law on integer points of d dimensions: the points, a row each, and their probabilities.

    Example:
        >>> x, p = finite_law(2)
        >>> x.shape, bool(p.min() > 0)
        (torch.Size([6, 2]), True)
    """
    weights = torch.randint(1, 9, (points,)).double()
    return integers(points, d, most=most), weights / weights.sum()


def with_eigenvalues(values: Tensor) -> Tensor:
    """A symmetric matrix with these eigenvalues, and random eigenvectors.

    Example:
        >>> torch.linalg.eigvalsh(with_eigenvalues(torch.tensor([1.0, 2.0]))).round()
        tensor([1., 2.])
    """
    n = len(values)
    Q = torch.linalg.qr(torch.randn(n, n, dtype=values.dtype)).Q
    A = (Q * values) @ Q.T
    return (A + A.T) / 2
