"""Class labels of any kind, as the indices that an estimator computes with.

A classifier learns from labels given as anything scikit-learn accepts, or as a tensor. Within, a
label is its index in the sorted `classes_`; the answers are labels of the kind that was learnt.
"""

from typing import Any

import numpy as np
import torch
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, check_consistent_length, column_or_1d
from torch import Tensor

from vademecum.arguments import floats

__all__ = ["as_labels", "best_labels", "labels_among", "one_versus_rest"]


def as_labels(y: Any, x: Any) -> tuple[Any, Tensor]:
    """Validate the labels of the examples `x`: the sorted classes, and each label's index in them.

    Raises:
        ValueError: If there is not one label for each example, or fewer than two classes.
    """
    classes, index = _of_tensor(y, x) if isinstance(y, Tensor) else _of_array(y, x)
    if len(classes) < 2:
        raise ValueError(f"y must have at least two classes, got one class: {classes[0]}")
    return classes, index.to(x.device)


def labels_among(classes: Any, y: Any, x: Any) -> Tensor:
    """Validate the labels of the examples `x`, some of the sorted `classes`: their indices.

    Raises:
        ValueError: If there is not one label for each example, or one that is no class.

    Example:
        >>> labels_among(torch.tensor([3, 5, 7]), [5, 5], torch.zeros(2, 1))
        tensor([1, 1])
    """
    found, index = _of_tensor(y, x) if isinstance(y, Tensor) else _of_array(y, x)
    places = {label: k for k, label in enumerate(classes.tolist())}
    strange = [label for label in found.tolist() if label not in places]
    if strange:
        raise ValueError(f"y must be labels among classes, got {strange[0]!r}")
    return torch.tensor([places[label] for label in found.tolist()])[index.cpu()].to(x.device)


def _of_array(y: Any, x: Any) -> tuple[Any, Tensor]:
    y = column_or_1d(y, warn=True)
    assert_all_finite(y, input_name="y")
    check_consistent_length(np.empty(len(x)), y)
    check_classification_targets(y)
    classes = np.unique(y)
    return classes, torch.from_numpy(np.searchsorted(classes, y))  # quicker than unique's inverse


def _of_tensor(y: Tensor, x: Any) -> tuple[Tensor, Tensor]:
    if y.shape != (len(x),):
        raise ValueError(f"y must have shape ({len(x)},), got shape {tuple(y.shape)}")
    if y.is_floating_point() and not torch.equal(floats("y", y), y.round()):
        raise ValueError(f"y must be class labels, got the fraction {y[y != y.round()][0].item()}")
    return torch.unique(y, return_inverse=True)


def one_versus_rest(index: Tensor, k: int, dtype: torch.dtype) -> Tensor:
    """Signs of shape (n, units): +1 where a unit's class is the example's, -1 elsewhere.

    Two classes need one unit, whose positive class is the second; more need one unit each.

    Example:
        >>> one_versus_rest(torch.tensor([0, 2, 1]), 3, torch.float64)
        tensor([[ 1., -1., -1.],
                [-1., -1.,  1.],
                [-1.,  1., -1.]], dtype=torch.float64)
    """
    own = torch.arange(k, device=index.device) if k > 2 else torch.ones_like(index[:1])
    return (index[:, None] == own).to(dtype) * 2 - 1


def best_labels(classes: Any, scores: Tensor) -> Any:
    """The class that scores best; of two classes the second where its one score is positive."""
    index = (scores > 0).long() if scores.ndim == 1 else scores.argmax(1)
    return classes[index if isinstance(classes, Tensor) else index.cpu().numpy()]
