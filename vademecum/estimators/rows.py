"""Examples as the rows of a tensor, and results in the kind of the input."""

from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array, issparse
from sklearn.utils.validation import validate_data
from torch import Tensor

from vademecum.arguments import floats
from vademecum.arrays import power_of_two
from vademecum.estimators.sparse_rows import SparseRows

__all__ = ["as_rows", "like_input", "precision"]

FIRST = 1024  # rows whose size stands for that of all


def as_rows(
    estimator: Any, X: Any, *, reset: bool = False, sparse: bool = False, **checks: Any
) -> Any:
    """Validate the examples and return them as a tensor with one row each.

    Args:
        estimator: The estimator being fitted or asked; learns or checks `n_features_in_`.
        X: An array-like of shape (n, features), or a tensor.
        reset: Whether this is `fit`.
        sparse: Whether sparse matrices are taken, too; they are returned as `SparseRows`.
        checks: Further arguments for scikit-learn's `validate_data`.
    """
    if not isinstance(X, Tensor):
        checks = {"dtype": [np.float64, np.float32], "force_writeable": True} | checks
        kinds = "csr" if sparse else False
        X = validate_data(estimator, X, reset=reset, accept_sparse=kinds, **checks)
        return SparseRows(X) if issparse(X) else torch.from_numpy(np.ascontiguousarray(X))
    if X.layout != torch.strided:
        return _sparse_tensor(estimator, X, reset, sparse)
    if reset:
        estimator.n_features_in_ = floats("X", X, ndim=2).shape[1]
    return floats("X", X, ndim=2, width=estimator.n_features_in_)


def _sparse_tensor(estimator: Any, X: Tensor, reset: bool, sparse: bool) -> SparseRows:
    if not sparse or X.layout != torch.sparse_csr or X.device.type != "cpu":
        wanted = "dense, or in the layout CSR on the CPU" if sparse else "dense"
        raise ValueError(f"X must be {wanted}, got {X.layout} on {X.device}")
    if reset:
        estimator.n_features_in_ = X.shape[1]
    if X.shape[1] != estimator.n_features_in_ or not X.shape[0]:
        shape = f"({len(X) or 'n'}, {estimator.n_features_in_})"
        raise ValueError(f"X must have shape {shape}, got shape {tuple(X.shape)}")
    values = floats("X", X.values().detach(), ndim=1, empty=True)
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    parts = values, X.col_indices(), X.crow_indices()
    return SparseRows(csr_array(tuple(part.numpy() for part in parts), shape=tuple(X.shape)))


def precision(*tensors: Any) -> torch.dtype:
    """The dtype to compute products of the rows in: single precision at least.

    Double precision where the first rows are so large or small that in single precision products
    of theirs would leave the range.

    Example:
        >>> precision(torch.ones(1, 1).bfloat16()), precision(torch.tensor([[1e-24]]))
        (torch.float32, torch.float64)
    """
    dtype = torch.promote_types(tensors[0].dtype, torch.float32)
    first = [x.values() if isinstance(x, SparseRows) else x[:FIRST] for x in tensors]
    extreme = any(x.numel() and power_of_two(x) != 1 for x in first)
    return torch.float64 if extreme else dtype


def like_input(result: Tensor, X: Any) -> Any:
    """A result in the kind of the input: a tensor for a tensor, else a NumPy array or a number."""
    if isinstance(X, Tensor):
        return result
    return result.cpu().numpy() if result.ndim else result.item()
