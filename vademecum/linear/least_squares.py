r"""Linear regression: the least-squares map of least norm, for any rank and any shape.

$$(w, b) \in \operatorname*{argmin}_{w, b} \sum_i \|y_i - w x_i - b\|^2, \qquad
w = (Z^+ Y)^\top,\quad b = \bar y - w \bar x,$$

where the rows of $Z$ and $Y$ are $x_i - \bar x$ and $y_i - \bar y$ (without an intercept $x_i$ and
$y_i$). Among all minimisers the Moore-Penrose inverse $Z^+$ picks the one with the least norm of
$w$. Which singular values of $Z$ count as zero, and so its rank, is said in
`vademecum.linear._row_space`; the units of the features do not matter where there are more
examples than features.

Where the columns of $Z$, scaled to unit norm, have a Gram matrix $C$ with
$\|C\|_1 \|C^{-1}\|_1 \le \varepsilon^{-1/2}$ for the precision $\varepsilon$ of the dtype, and $Z$
certainly has full rank, the normal equations are solved by Cholesky, with one step of refinement by
residuals from the data (Björck's corrected seminormal equations): then the error is that of an
orthogonal method. Elsewhere $Z$ is decomposed in double precision. Both are exact up to rounding.
The claims are `normal_equations` and `minimum_norm_solution`.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from torch import Tensor

from vademecum.estimators import (
    SparseRows,
    as_rows,
    as_targets,
    as_weights,
    fitted_map,
    precision,
    predict_linear,
    weighted_rows,
)
from vademecum.linear._moments import Moments, blocks, moments
from vademecum.linear._row_space import minimum_norm, zero_level
from vademecum.linear._sparse_least_squares import sparse_least_squares

__all__ = ["LinearRegression"]


class LinearRegression(MultiOutputMixin, RegressorMixin, BaseEstimator):
    r"""Least squares; among several minimisers the one of least norm.

    Given arrays it is a scikit-learn estimator; given tensors it computes on their device and
    answers with tensors. Sparse examples (SciPy's, or torch's in the layout CSR) stay sparse, and
    are dealt with by `vademecum.linear._sparse_least_squares`.

    Args:
        fit_intercept: Whether there is an intercept $b$.

    Attributes:
        coef_: The weights, of shape (d,) or, for targets of shape (n, t), (t, d).
        intercept_: The intercept, a number or of shape (t,).
        rank_: The rank of the (centred) examples; None if they are sparse.

    References:
        Penrose, On best approximate solutions of linear matrix equations, Mathematical Proceedings
        of the Cambridge Philosophical Society, 1956.
        Björck, Stability analysis of the method of seminormal equations for linear least squares
        problems, Linear Algebra and its Applications, 1987.

    Example:
        >>> x, y = torch.tensor([[1.0, 1.0]]), torch.tensor([1.0])
        >>> LinearRegression(fit_intercept=False).fit(x, y).coef_  # not (1, 0), nor (0, 1)
        tensor([0.5000, 0.5000])
        >>> line = LinearRegression().fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
        >>> line.predict([[10.0]]).round(9)
        array([21.])
    """

    def __init__(self, *, fit_intercept=True):
        self.fit_intercept = fit_intercept

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "LinearRegression":
        """Find the map.

        Raises:
            ValueError: If the data are not finite, or there is not one target for each example.
        """
        x = as_rows(self, X, reset=True, sparse=True).detach()
        y = as_targets(y, x)
        columns, s = y.reshape(len(x), -1), as_weights(sample_weight, x)
        centre = bool(self.fit_intercept)
        if isinstance(x, SparseRows):
            fit = means = sparse_least_squares(x, columns, centre=centre, weights=s)
            self.rank_ = None
        elif s is None:
            fit = means = _least_squares(x, columns, centre)
            self.rank_ = fit.rank
        else:
            means = weighted_rows(x, columns, s, centre=centre)
            fit = _least_squares(means.x, means.y, centre=False, offset=means.offset)
            self.rank_ = fit.rank
        self.coef_, self.intercept_ = fitted_map(fit.w.T, means.mean_x, means.mean_y, y, X)
        return self

    def predict(self, X: Any) -> Any:
        """The answers of the map."""
        return predict_linear(self, X)


class _Fit(NamedTuple):
    w: Float[Tensor, " d t"]
    rank: int
    mean_x: Float[Tensor, " d"]
    mean_y: Float[Tensor, " t"]


def _least_squares(
    x: Float[Tensor, " n d"],
    y: Float[Tensor, " n t"],
    centre: bool,
    offset: Float[Tensor, " d"] | None = None,
) -> _Fit:
    norms = None
    if len(x) > x.shape[1]:
        about = moments(x, y, centre=centre)
        norms = about.gram.diagonal().clamp(min=0).sqrt()
        w = _by_cholesky(x, y, about, norms, about.mean_x if offset is None else offset)
        if w is not None:
            return _Fit(w, x.shape[1], about.mean_x, about.mean_y)
    mean_x, mean_y = (v.double().mean(0) * centre for v in (x, y))
    return _Fit(*minimum_norm(x, mean_x, y - mean_y, norms, offset), mean_x, mean_y)


def _by_cholesky(
    x: Float[Tensor, " n d"],
    y: Float[Tensor, " n t"],
    about: Moments,
    norms: Float[Tensor, " d"],
    offset: Float[Tensor, " d"],
) -> Float[Tensor, " d t"] | None:
    """The weights by the normal equations, or None where they would not do."""
    scaled = about.gram / (norms[:, None] * norms)  # NaN, which fails, for a column of zeros
    factor, info = torch.linalg.cholesky_ex(scaled)
    if info:
        return None
    inverse_size = torch.linalg.matrix_norm(torch.cholesky_inverse(factor), 1)
    condition = torch.linalg.matrix_norm(scaled, 1) * inverse_size
    if not condition <= torch.finfo(x.dtype).eps ** -0.5:
        return None
    least = 1 / inverse_size.sqrt()  # a lower bound on the singular values
    if not least > zero_level(x, offset / norms, norms.new_tensor(len(norms)).sqrt()):
        return None

    def solve(cross: Tensor) -> Tensor:
        return torch.cholesky_solve(cross / norms[:, None], factor) / norms[:, None]

    w = solve(about.cross)
    return w + solve(_remainder(x, y, about, w))


def _remainder(
    x: Float[Tensor, " n d"], y: Float[Tensor, " n t"], about: Moments, w: Float[Tensor, " d t"]
) -> Float[Tensor, " d t"]:
    r"""What the weights leave of the normal equations, summed in double precision."""
    like = x.new_zeros((), dtype=precision(x, y))
    mean_x, mean_y, w = (v.to(like) for v in (about.mean_x, about.mean_y, w))
    total = torch.zeros_like(about.cross)
    for here in blocks(len(x)):
        z = x[here].to(like) - mean_x
        total += z.T @ (y[here].to(like) - mean_y - z @ w)
    return total
