"""Examples as the rows of a tensor, and results in the kind of the input."""

from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import validate_data
from torch import Tensor

from vademecum.arguments import floats

__all__ = ["as_rows", "like_input"]


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


def like_input(result: Tensor, X: Any) -> Any:
    """A result in the kind of the input: a tensor for a tensor, else a NumPy array."""
    return result if isinstance(X, Tensor) else result.cpu().numpy()
