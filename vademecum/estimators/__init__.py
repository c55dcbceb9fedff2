"""scikit-learn's estimator contract over arrays and tensors.

An estimator given NumPy arrays (or anything scikit-learn accepts) keeps that contract to the
letter. Given a tensor it computes on the tensor's device, in its dtype, and answers with tensors.
`fit` opens with `as_rows` and `as_labels` or `as_targets`, and ends with `like_input`.
"""

from vademecum.estimators.convergence import warn_outside, warn_unconverged
from vademecum.estimators.labels import as_labels, best_labels, labels_among, one_versus_rest
from vademecum.estimators.rows import as_rows, like_input, precision
from vademecum.estimators.sparse_rows import SparseRows, affine
from vademecum.estimators.targets import as_targets, fitted_map, predict_linear
from vademecum.estimators.weights import as_weights, class_weights, weighted_rows

__all__ = [
    "SparseRows", "affine", "as_rows", "like_input", "precision",
    "as_labels", "best_labels", "labels_among", "one_versus_rest",
    "as_targets", "fitted_map", "predict_linear",
    "as_weights", "class_weights", "weighted_rows",
    "warn_outside", "warn_unconverged",
]  # fmt: skip
