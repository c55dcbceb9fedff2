"""Examples as the rows of a tensor, and results in the kind of the input."""

from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import validate_data
from torch import Tensor

from vademecum.arguments import floats
from vademecum.arrays import power_of_two

__all__ = ["as_rows", "like_input", "precision"]

FIRST = 1024  # rows whose size stands for that of all


def as_rows(estimator: Any, X: Any, *, reset: bool = False, **checks: Any) -> Tensor:
    """Validate the examples and return them as a tensor with one row each.

    Args:
        estimator: The estimator being fitted or asked; learns or checks `n_features_in_`.
        X: An array-like of shape (n, features), or a tensor.
        reset: Whether this is `fit`.
        checks: Further arguments for scikit-learn's `validate_data`.
    """
    if not isinstance(X, Tensor):
        checks = {"dtype": [np.float64, np.float32], "force_writeable": True} | checks
        X = validate_data(estimator, X, reset=reset, **checks)
        return torch.from_numpy(np.ascontiguousarray(X))
    if reset:
        estimator.n_features_in_ = floats("X", X, ndim=2).shape[1]
    return floats("X", X, ndim=2, width=estimator.n_features_in_)


def precision(*tensors: Tensor) -> torch.dtype:
    """The dtype to compute products of the rows in: single precision at least.

    Double precision where the first rows are so large or small that in single precision products
    of theirs would leave the range.

    Example:
        >>> precision(torch.ones(1, 1).bfloat16()), precision(torch.tensor([[1e-24]]))
        (torch.float32, torch.float64)
    """
    dtype = torch.promote_types(tensors[0].dtype, torch.float32)
    extreme = any(power_of_two(x[:FIRST]) != 1 for x in tensors)
    return torch.float64 if extreme else dtype


def like_input(result: Tensor, X: Any) -> Any:
    """A result in the kind of the input: a tensor for a tensor, else a NumPy array or a number."""
    if isinstance(X, Tensor):
        return result
    return result.cpu().numpy() if result.ndim else result.item()
