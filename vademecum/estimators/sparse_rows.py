r"""Sparse examples: the products that linear models need, without the zeros.

A matrix $X$ in the format CSR (SciPy's, or torch's on the CPU) stays as it is. Centring is never
done but in products, $(X - 1 \mu^\top) v = X v - (\mu^\top v)\, 1$, which loses digits only where
a column is nearly constant and not zero.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse import csr_array
from torch import Tensor

__all__ = ["SparseRows", "affine"]


class SparseRows:
    """The rows of a sparse matrix, in SciPy's hands; asked like a tensor, it answers with tensors.

    Example:
        >>> x = SparseRows(csr_array([[0.0, 2.0], [3.0, 0.0]]))
        >>> x @ torch.tensor([[1.0], [10.0]]).double()
        tensor([[20.],
                [ 3.]], dtype=torch.float64)
        >>> x[1:].dense()
        tensor([[3., 0.]], dtype=torch.float64)
    """

    device = torch.device("cpu")

    def __init__(self, matrix: Any):
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
        self.matrix = csr_array(matrix)
        self.shape: tuple[int, int] = tuple(matrix.shape)  # pyright: ignore[reportAttributeAccessIssue]
        self.dtype = torch.from_numpy(self.matrix.data[:0]).dtype
        self._columns: Any = None

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> "SparseRows":
        if isinstance(rows, slice) and rows.indices(len(self)) == (0, len(self), 1):
            return self
        return SparseRows(self.matrix[rows.numpy() if isinstance(rows, Tensor) else rows])

    def __matmul__(self, v: Float[Tensor, " d k"]) -> Float[Tensor, " n k"]:
        return torch.from_numpy(self.matrix @ v.numpy())

    def pull(self, r: Float[Tensor, " k n"]) -> Float[Tensor, " k d"]:
        """The product `r @ X`."""
        return torch.from_numpy((self.matrix.T @ np.ascontiguousarray(r.numpy().T)).T)

    def gram(self) -> Float[Tensor, " d d"]:
        r"""The matrix $X^\top X$."""
        return torch.from_numpy((self.matrix.T @ self.matrix).toarray())

    def times(self, roots: Float[Tensor, " n"]) -> "SparseRows":
        """The rows, each times a number."""
        data = self.matrix.data * np.repeat(roots.numpy(), np.diff(self.matrix.indptr))
        return self._with(data.astype(self.matrix.dtype, copy=False))

    def square(self) -> "SparseRows":
        """The squares of all entries."""
        return self._with(self.matrix.data**2)

    def squares_about(
        self, mean: Float[Tensor, " d"], s: Float[Tensor, " n"]
    ) -> Float[Tensor, " d"]:
        r"""The sums $\sum_i s_i (x_{ij} - \mu_j)^2$, also of columns that hardly vary."""
        places, d = self.matrix.indices, self.shape[1]
        weights = np.repeat(s.numpy(), np.diff(self.matrix.indptr))
        gaps = self.matrix.data - mean.numpy()[places]
        stored = np.bincount(places, weights * gaps**2, d)
        absent = s.sum().item() - np.bincount(places, weights, d)
        absent[np.bincount(places, minlength=d) == len(self)] = 0  # and no rounding
        return torch.from_numpy(stored + absent.clip(min=0) * mean.numpy() ** 2)

    def to(self, dtype: torch.dtype) -> "SparseRows":
        """The same numbers in another dtype."""
        if dtype == self.dtype:
            return self
        return self._with(torch.from_numpy(self.matrix.data).to(dtype).numpy())

    def detach(self) -> "SparseRows":
        """Itself: nothing is differentiated."""
        return self

    def columns(self, places: Tensor) -> Float[Tensor, " n k"]:
        """Some columns, dense."""
        if self._columns is None:
            self._columns = self.matrix.tocsc()
        return torch.from_numpy(self._columns[:, places.numpy()].toarray())

    def dense(self) -> Float[Tensor, " n d"]:
        """All entries, zeros included."""
        return torch.from_numpy(self.matrix.toarray())

    def values(self) -> Tensor:
        """The entries that are stored."""
        return torch.from_numpy(self.matrix.data)

    def _with(self, data: Any) -> "SparseRows":
        parts = data, self.matrix.indices, self.matrix.indptr
        made = csr_array(parts, shape=self.shape, copy=False)
        made.has_canonical_format = True
        return SparseRows(made)


def affine(x: Any, w: Tensor, b: Tensor) -> Tensor:
    """The $x w^T + b$ of dense or sparse rows, for weights of shape (d,) or (k, d)."""
    if isinstance(x, Tensor):
        return torch.nn.functional.linear(x, w) + b
    scores = x @ (w[:, None] if w.ndim == 1 else w.T)
    return (scores[:, 0] if w.ndim == 1 else scores) + b
