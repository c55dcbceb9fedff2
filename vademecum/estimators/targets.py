r"""What the regressions share: targets of one column or several, and a linear map's answers.

A regression learns weights $w$ of shape (t, d) and intercepts $b = \bar y - w \bar x$, computed in
double precision and rounded once, to the dtype of the examples; of one target the first axis goes,
and with arrays its intercept is a Python float.
"""

from typing import Any

import torch
from jaxtyping import Float
from sklearn.utils import get_tags
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
)
from torch import Tensor

from vademecum.arguments import floats
from vademecum.estimators.rows import as_rows, like_input
from vademecum.estimators.sparse_rows import affine

__all__ = ["as_targets", "fitted_map", "predict_linear"]


def as_targets(y: Any, x: Any, *, several: bool = True) -> Tensor:
    """Validate the targets of the examples `x`: a tensor like `x` of shape (n,) or (n, t).

    Raises:
        ValueError: If there is not one finite number, or row of numbers, for each example; or if
            examples or targets are complex.
    """
    if x.dtype.is_complex:
        raise ValueError(f"X must be real, got {x.dtype}")
    if isinstance(y, Tensor):
        if y.is_complex():
            raise ValueError(f"y must be real, got {y.dtype}")
        y = floats("y", y if y.is_floating_point() else y.double()).detach()
        if y.shape[:1] != x.shape[:1] or y.ndim > 1 + several:
            wanted = f"({len(x)},)" + f" or ({len(x)}, targets)" * several
            raise ValueError(f"y must have shape {wanted}, got shape {tuple(y.shape)}")
        y = y.to(dtype=x.dtype, device=x.device)
        if not y.isfinite().all():
            raise ValueError(f"y must be smaller: it overflows the {x.dtype} of X")
        return y
    if y is None:
        raise ValueError("fit requires y to be passed, but the target y is None")
    dtype = str(x.dtype).removeprefix("torch.")
    y = check_array(y, ensure_2d=False, dtype=dtype, input_name="y", force_writeable=True)
    if not several or y.ndim != 2:
        y = column_or_1d(y, warn=True)
    check_consistent_length(x, y)
    return torch.from_numpy(y).to(x.device)


def fitted_map(
    w: Float[Tensor, " *paths t d"],
    mean_x: Float[Tensor, " d"],
    mean_y: Float[Tensor, " t"],
    y: Tensor,
    like: Any,
) -> tuple[Any, Any]:
    """The weights and the intercepts: dtype and axes as in `y`, kind as in `like`.

    Raises:
        ValueError: If they are too large for the dtype.
    """
    b = mean_y - w @ mean_x
    w, b = w.to(y.dtype), b.to(y.dtype)
    if not (w.isfinite().all() and b.isfinite().all()):
        raise ValueError(f"X must be larger or y smaller: the weights overflow {y.dtype}")
    if y.ndim == 1:
        w, b = w[..., 0, :], b[..., 0]
    return like_input(w, like), like_input(b, like)


def predict_linear(estimator: Any, X: Any) -> Any:
    """What the weights `coef_` and the intercept `intercept_` of a fitted estimator predict."""
    check_is_fitted(estimator)
    x = as_rows(estimator, X, sparse=get_tags(estimator).input_tags.sparse)
    fitted = estimator.coef_, estimator.intercept_
    w, b = (torch.as_tensor(v, dtype=x.dtype, device=x.device) for v in fitted)
    return like_input(affine(x, w, b), X)
