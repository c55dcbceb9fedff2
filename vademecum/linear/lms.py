r"""Widrow and Hoff's rule of least mean squares (LMS), learnt in blocks.

A linear unit is shown the examples $(x_i, y_i)$ one after the other. Each time it steps against
the gradient of $\frac12 (y_i - \langle x_i, w \rangle - b)^2$, along the error it has just made,

$$e_i = y_i - \langle x_i, w \rangle - b, \qquad
w \leftarrow w + \eta\, e_i x_i, \quad b \leftarrow b + \eta\, e_i.$$

The errors of a block of examples met with weights $(w, b)$ satisfy
$e_i + \eta \sum_{j < i} (\langle x_i, x_j \rangle + 1)\, e_j = y_i - \langle x_i, w \rangle - b$: a
triangular system, whose solution gives the step of the block,
$w \leftarrow w + \eta X^\top e$. This is the sequential rule in matrix products, exact up to
rounding.

With $\tilde x = (x, 1)$, or $x$ where there is no intercept, the distance to weights that fit all
examples never grows for $0 < \eta < 2 / \max_i \|\tilde x_i\|^2$. Weights converge in the mean, for
examples drawn independently, for $0 < \eta < 2 / \lambda_{\max}$ with $\lambda_{\max}$ the largest
eigenvalue of $\mathbb{E}\, \tilde x \tilde x^\top$. If no weights fit, a constant rate does not
lead to least squares but near: the closer, the smaller $\eta$. The claim is `lms`.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from torch import Tensor

from vademecum.arguments import floats, number, whole
from vademecum.arrays import gram
from vademecum.estimators import (
    as_rows,
    as_targets,
    like_input,
    precision,
    predict_linear,
    warn_unconverged,
)
from vademecum.results import one_line

__all__ = ["LMS", "lms_rate_bounds"]

BLOCK = {"cpu": 64, "cuda": 256}


class RateBounds(NamedTuple):
    """The two bounds on the rate.

    Example:
        >>> lms_rate_bounds(torch.tensor([[1.0], [3.0]]), fit_intercept=False)
        RateBounds(every_step=0.2222222222222222, in_mean=0.4)
    """

    every_step: float
    r"""The $2 / \max_i \|\tilde x_i\|^2$."""
    in_mean: float
    r"""The $2 / \lambda_{\max}$, with the mean over the examples for the expectation."""

    __repr__ = one_line


def lms_rate_bounds(x: Float[Tensor, " n d"], *, fit_intercept: bool = True) -> RateBounds:
    """Bounds that a rate of the LMS rule should stay below; infinite if all examples are zero.

    Args:
        x: The examples.
        fit_intercept: Whether the unit has an intercept.

    Raises:
        ValueError: If the examples are no matrix of finite numbers.

    References:
        Widrow and Hoff, Adaptive switching circuits, IRE WESCON Convention Record, 1960.
        Widrow and Stearns, Adaptive Signal Processing, Prentice-Hall, 1985.

    Example:
        >>> lms_rate_bounds(torch.tensor([[1.0], [-1.0]]))  # (1, 1) and (-1, 1) are orthogonal
        RateBounds(every_step=1.0, in_mean=2.0)
    """
    floats("x", x, ndim=2)
    ones = x.new_ones(len(x), int(fit_intercept))
    second = gram(torch.cat([x, ones], 1)).matrix / len(x)
    top = float(torch.linalg.eigvalsh(second)[-1])
    radius2 = _radius2(x, fit_intercept)
    return RateBounds(*(2 / v if v > 0 else math.inf for v in (radius2, top)))


class LMS(MultiOutputMixin, RegressorMixin, BaseEstimator):
    r"""Linear regression by the LMS rule, from all examples or as they come.

    Given arrays it is a scikit-learn estimator; given tensors it learns on their device and
    answers with tensors.

    Args:
        rate: The $\eta$; if None, $1 / \max_i \|\tilde x_i\|^2$ over the examples seen so far, half
            of what is safe at every step.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Each is an epoch
            of `fit`.
        tol: An epoch that moves the weights by at most this share of their norm is the last. In a
            fixed order and at a safe rate there always is one.
        shuffle: Whether each epoch has an order of its own. Then weights keep moving unless some
            fit all examples.
        random_state: Where random numbers come from, as in scikit-learn.
        fit_intercept: Whether there is an intercept $b$.

    Attributes:
        coef_: The weights, of shape (d,) or, for targets of shape (n, t), (t, d).
        intercept_: The intercept, a number or of shape (t,).
        rate_: The $\eta$ used.
        loss_: The mean of $\frac12 \|e_i\|^2$ over the last epoch, at the time each was made.
        n_iter_: The number of epochs.
        converged_: Whether the last epoch of `fit` moved the weights by no more than `tol`.

    References:
        Widrow and Hoff, Adaptive switching circuits, IRE WESCON Convention Record, 1960.

    Example:
        >>> unit = LMS(rate=0.5, fit_intercept=False)
        >>> unit.partial_fit(torch.tensor([[1.0, 0.0]]), torch.tensor([4.0])).coef_
        tensor([2., 0.])
        >>> unit.partial_fit(torch.tensor([[1.0, 1.0]]), torch.tensor([4.0])).coef_
        tensor([3., 1.])
    """

    def __init__(
        self,
        *,
        rate: Any = None,
        max_iter=1000,
        tol: Any = 1e-4,
        shuffle=False,
        random_state=None,
        fit_intercept=True,
    ):
        self.rate = rate
        self.max_iter = max_iter
        self.tol = tol
        self.shuffle = shuffle
        self.random_state = random_state
        self.fit_intercept = fit_intercept

    def fit(self, X: Any, y: Any) -> "LMS":
        """Learn from zero, epoch after epoch.

        Raises:
            ValueError: If the data are not finite, there is not one target for each example, a
                parameter is out of range, or the rate is so large that the weights overflow.
        """
        x = as_rows(self, X, reset=True).detach()
        y = as_targets(y, x)
        whole("max_iter", self.max_iter, low=1)
        number("tol", self.tol, low=0.0)
        rng = check_random_state(self.random_state)
        self._seen = 0.0
        unit, moved = _Unit(x, y.reshape(len(x), -1), self._rate(x), bool(self.fit_intercept)), 0.0
        for n_iter in range(1, self.max_iter + 1):
            order = torch.from_numpy(rng.permutation(len(x))) if self.shuffle else None
            before = unit.weights.clone()
            unit.show(order)
            self.n_iter_, norm = n_iter, float(unit.weights.norm())
            moved = float((unit.weights - before).norm()) / norm if norm > 0 else 0.0
            if moved <= self.tol or not unit.weights.isfinite().all():
                break
        self._keep(unit, y, X)
        self.converged_ = moved <= self.tol
        if not self.converged_:
            message = f"max_iter={self.max_iter} reached: the last epoch moved the weights by"
            warn_unconverged(f"{message} {moved:.3g} of their norm, tol={self.tol}")
        return self

    def partial_fit(self, X: Any, y: Any) -> "LMS":
        """Learn from each example once, in the given order, starting where the last call ended.

        Raises:
            ValueError: As `fit` does, and if the number of features or targets has changed.
        """
        first = not hasattr(self, "coef_")
        x = as_rows(self, X, reset=first).detach()
        y = as_targets(y, x)
        if first:
            self._seen, self.n_iter_ = 0.0, 0
        unit = _Unit(x, y.reshape(len(x), -1), self._rate(x), bool(self.fit_intercept))
        if not first:
            like = {"dtype": unit.x.dtype, "device": unit.x.device}
            w, b = (torch.as_tensor(v, **like) for v in (self.coef_, self.intercept_))
            if w.shape[:-1] != y.shape[1:]:
                raise ValueError(f"y must have the targets of the first call, got {tuple(y.shape)}")
            unit.weights = torch.cat([w.reshape(-1, w.shape[-1]).T, b.reshape(1, -1)])
        unit.show(None)
        self.n_iter_ += 1
        return self._keep(unit, y, X)

    def predict(self, X: Any) -> Any:
        """The answers of the map."""
        return predict_linear(self, X)

    def _rate(self, x: Tensor) -> float:
        self._seen = max(self._seen, _radius2(x, bool(self.fit_intercept)))
        if self.rate is not None:
            return float(number("rate", self.rate, above=0.0))
        return 1 / self._seen if self._seen > 0 else 1.0

    def _keep(self, unit: "_Unit", y: Tensor, like: Any) -> "LMS":
        weights = unit.weights.to(y.dtype)
        if not weights.isfinite().all():
            raise ValueError(
                f"rate must be < {2 / self._seen:.3g} for these examples, got {unit.rate:g}: the"
                f" weights overflow {y.dtype}"
            )
        w, b = weights[:-1].T, weights[-1]
        self.coef_, self.intercept_ = (
            like_input(v if y.ndim > 1 else v[0], like) for v in (w.contiguous(), b)
        )
        self.rate_, self.loss_ = unit.rate, unit.loss
        return self


class _Unit:
    """Weights (d + 1, t), the last row the intercepts, that learn from examples."""

    def __init__(self, x: Tensor, y: Tensor, rate: float, bias: bool):
        dtype = precision(x, y)
        self.x, self.y, self.rate, self.bias = x.to(dtype), y.to(dtype), rate, float(bias)
        self.weights = self.x.new_zeros(x.shape[1] + 1, y.shape[1])
        self.loss = math.nan

    def show(self, order: Tensor | None) -> None:
        """Show all examples once."""
        x, y = (v if order is None else v[order.to(v.device)] for v in (self.x, self.y))
        w, b = self.weights[:-1], self.weights[-1]
        size, total = BLOCK.get(x.device.type, 256), x.new_zeros(())
        for x_k, y_k in zip(x.split(size), y.split(size), strict=True):
            lower = self.rate * (x_k @ x_k.T + self.bias).tril(-1)
            e = torch.linalg.solve_triangular(
                lower, y_k - x_k @ w - b, upper=False, unitriangular=True
            )
            w += self.rate * x_k.T @ e
            b += self.rate * self.bias * e.sum(0)
            total += e.square().sum()
        self.loss = float(total) / (2 * len(x))


def _radius2(x: Tensor, bias: bool) -> float:
    norms = torch.linalg.vector_norm(x.detach(), dim=1, dtype=torch.float64)
    return float(norms.max()) ** 2 + bias
