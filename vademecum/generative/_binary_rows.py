"""Binary examples as the rows of a floating-point tensor of zeros and ones.

Numbers that are neither 0 nor 1 are refused, unless there is a threshold to compare them with: a
grey value is no draw of a binary unit, and its likelihood would be a number without a meaning.
"""

from typing import Any

import torch
from torch import Tensor

from vademecum.arguments import number
from vademecum.estimators import as_rows

__all__ = ["binary_rows"]

_INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def binary_rows(estimator: Any, X: Any, *, reset: bool = False) -> Tensor:
    """Validate the examples of an estimator with a `binarize`: zeros and ones, a row each.

    Args:
        estimator: The estimator being fitted or asked.
        X: An array-like of shape (n, features), or a tensor; a tensor of truth values or integers
            is taken in torch's default dtype.
        reset: Whether this is `fit`.

    Raises:
        ValueError: If entries are neither 0 nor 1 and there is no threshold.

    Example:
        >>> class Plain:
        ...     binarize = None
        >>> binary_rows(Plain(), torch.tensor([[True, False]]), reset=True)
        tensor([[1., 0.]])
        >>> binary_rows(Plain(), torch.tensor([[0.5, 0.0]]), reset=True)
        Traceback (most recent call last):
        ValueError: entries of X must be 0 or 1, or binarize a threshold, got 0.5 at (0, 0)
    """
    if isinstance(X, Tensor) and X.dtype in _INTEGERS:
        X = X.to(torch.get_default_dtype())
    x = as_rows(estimator, X, reset=reset).detach()
    if x.is_complex():
        raise ValueError(f"X must be real, got {x.dtype}")
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    if estimator.binarize is not None:
        return (x > number("binarize", estimator.binarize)).to(x)
    strange = (x != 0) & (x != 1)
    if strange.any():
        place = tuple(strange.nonzero()[0].tolist())
        raise ValueError(
            "entries of X must be 0 or 1, or binarize a threshold,"
            f" got {x[place].item():.6g} at {place}"
        )
    return x
