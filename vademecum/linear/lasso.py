r"""The lasso: few features at a time, and a certificate over all.

$$\min_{w, b}\ \frac1{2n} \|y - X w - b\|^2 + \alpha \|w\|_1$$

(with weights $s_i$ the mean over examples is $\sum_i s_i (\dots) / \sum_i s_i$)
is solved on few features at a time, with a certificate over all: `vademecum.linear._working_set`
chooses the features, `vademecum.linear.coordinate_descent` finds their weights, and everything
stops at a duality gap of at most $\mathrm{tol} \cdot \frac1n \|y - \bar y\|^2$. The gap bounds how
much the objective could still fall, whatever the way to $w$. It is exact up to the rounding of
products in the dtype of the data. The claim is `lasso`.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from sklearn.base import BaseEstimator, RegressorMixin
from torch import Tensor

from vademecum.arguments import floats, number, whole
from vademecum.estimators import as_rows, as_targets, as_weights, fitted_map, predict_linear
from vademecum.linear._working_set import WorkingSet
from vademecum.results import one_line

__all__ = ["Lasso", "LassoPath", "lasso_path"]

SHARED = 10  # penalties of a path that share their passes over the data


class Lasso(RegressorMixin, BaseEstimator):
    r"""Linear regression with a penalty on the sum of absolute weights.

    Given arrays it is a scikit-learn estimator; given tensors it computes on their device (the
    small problem on the working set on the host) and answers with tensors. The objective is that of
    scikit-learn's `Lasso`. Sparse examples (SciPy's, or torch's in the layout CSR) stay sparse.

    Args:
        alpha: The penalty, positive; see `lasso_path` for many.
        fit_intercept: Whether there is an intercept, which is not penalised.
        tol: The duality gap to stop at, in units of the mean square of the centred targets.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Each is a sweep of
            coordinate descent.

    Attributes:
        coef_: The weights, of shape (d,).
        intercept_: The intercept.
        dual_gap_: The duality gap: the objective is at most so much above its minimum.
        n_iter_: The number of sweeps.
        converged_: Whether the gap is what `tol` asks for.

    References:
        Tibshirani, Regression shrinkage and selection via the lasso, Journal of the Royal
        Statistical Society B, 1996.
        Massias, Gramfort and Salmon, Celer: a fast solver for the lasso with dual extrapolation,
        ICML, 2018.

    Example:
        >>> x, y = torch.tensor([[-1.0], [1.0]]), torch.tensor([2.0, 6.0])
        >>> lasso = Lasso(alpha=0.5).fit(x, y)
        >>> lasso.coef_, lasso.intercept_  # the least-squares slope 2 less alpha
        (tensor([1.5000]), tensor(4.))
    """

    def __init__(self, *, alpha: Any = 1.0, fit_intercept=True, tol: Any = 1e-6, max_iter=10_000):
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "Lasso":
        """Find the weights.

        Raises:
            ValueError: If the data are not finite, there is not one target for each example, or a
                parameter is out of range.
        """
        x = as_rows(self, X, reset=True, sparse=True).detach()
        y = as_targets(y, x, several=False)
        number("alpha", self.alpha, above=0.0)
        options = {"tol": self.tol, "max_iter": self.max_iter}
        weights = as_weights(sample_weight, x)
        problem = WorkingSet(x, y, centre=bool(self.fit_intercept), weights=weights, **options)
        (point,) = problem.solve([self.alpha])
        self.dual_gap_, self.n_iter_ = point.gap, point.sweeps
        self.converged_ = problem.is_solved(point)
        w, b = problem.map(point)
        zero = torch.zeros_like(w)
        self.coef_, self.intercept_ = fitted_map(w[None], zero, b[None], y, X)
        return self

    def predict(self, X: Any) -> Any:
        """The answers of the map."""
        return predict_linear(self, X)


class LassoPath(NamedTuple):
    """Lasso solutions along a path of penalties.

    Example:
        >>> x, y = torch.tensor([[-1.0], [1.0]]), torch.tensor([2.0, 6.0])
        >>> lasso_path(x, y, alphas=torch.tensor([2.0, 1.0])).coefs
        tensor([[0.],
                [1.]])
    """

    alphas: Float[Tensor, " a"]
    """The penalties."""
    coefs: Float[Tensor, " a d"]
    """The weights at each."""
    intercepts: Float[Tensor, " a"]
    """The intercept at each."""
    gaps: Float[Tensor, " a"]
    """The duality gaps, in double precision."""
    converged: Bool[Tensor, " a"]
    """Whether the gap is what `tol` asks for."""

    __repr__ = one_line


def lasso_path(
    x: Float[Tensor, " n d"],
    y: Float[Tensor, " n"],
    *,
    alphas: Float[Tensor, " a"] | int = 100,
    ratio: float = 1e-3,
    fit_intercept: bool = True,
    tol: float = 1e-6,
    max_iter: int = 10_000,
) -> LassoPath:
    r"""The lasso at many penalties, each solution the start of the next.

    Args:
        x: The examples.
        y: Their targets.
        alphas: The penalties, best from the largest to the smallest; or how many, spaced evenly in
            the logarithm from $\alpha_{\max} = \max_j \frac1n |\langle x_j, y - \bar y \rangle|$,
            above which all weights are zero, down to `ratio` times that.
        ratio: See `alphas`.
        fit_intercept: As in `Lasso`.
        tol: As in `Lasso`, for each penalty.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Each is a sweep of
            coordinate descent; the number is for each penalty.

    Raises:
        ValueError: If the data are not finite, shapes do not fit, or a parameter is out of range.

    References:
        Friedman, Hastie and Tibshirani, Regularization paths for generalized linear models via
        coordinate descent, Journal of Statistical Software, 2010.

    Example:
        >>> x, y = torch.tensor([[-1.0], [1.0]]), torch.tensor([2.0, 6.0])
        >>> path = lasso_path(x, y, alphas=3, ratio=0.25)
        >>> path.alphas, path.coefs.T
        (tensor([2.0000, 1.0000, 0.5000]), tensor([[0.0000, 1.0000, 1.5000]]))
    """
    x, y = floats("x", x, ndim=2).detach(), as_targets(y, x, several=False)
    problem = WorkingSet(x, y, centre=fit_intercept, tol=tol, max_iter=max_iter)
    if not isinstance(alphas, Tensor):
        whole("alphas", alphas, low=1)
        number("ratio", ratio, above=0.0, below=1.0)
        top = max(problem.last.alpha, torch.finfo(x.dtype).tiny)
        steps = torch.linspace(0, 1, alphas, dtype=torch.float64, device=x.device)
        alphas = top * ratio**steps
    elif not (floats("alphas", alphas, ndim=1) > 0).all():
        raise ValueError(f"alphas must be > 0, got {alphas.min().item():g}")
    wanted = alphas.tolist()
    points = [
        p for k in range(0, len(wanted), SHARED) for p in problem.solve(wanted[k : k + SHARED])
    ]
    maps = [problem.map(point) for point in points]
    gaps = torch.tensor([point.gap for point in points], dtype=torch.float64, device=x.device)
    converged = torch.tensor([problem.is_solved(point) for point in points], device=x.device)
    coefs, intercepts = (torch.stack(parts).to(x) for parts in zip(*maps, strict=True))
    return LassoPath(alphas.to(x), coefs, intercepts, gaps, converged)
