r"""Kernel ridge regression: the function that fits, at the least cost in the norm of the kernel.

$$f = \operatorname*{argmin}_f \sum_i s_i \big(y_i - f(x_i)\big)^2 + \alpha \|f\|_{\mathcal H}^2,
\qquad f(x) = k(x)^\top c, \quad (K + \alpha S^{-1})\, c = y,$$

with $k(x) = (k(x, x_i))_i$ and weights $S = \operatorname{diag}(s)$, all 1 by default; an example
of weight 0 has no coefficient. It is the mean of a Gaussian process with the noise $\sqrt\alpha$.
Exact up to rounding by Cholesky's decomposition (`_factor`), one for each penalty; beyond the
memory allowed by conjugate gradients to a tolerance (`_iterative`). The claim is `kernel_ridge`.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from vademecum.arguments import floats, number, square, whole
from vademecum.estimators import as_targets, as_weights, like_input
from vademecum.kernels._covariance import (
    answer,
    as_kernel,
    between,
    covariance,
    inputs,
    refuse_conflicts,
    row_portions,
)
from vademecum.kernels._factor import factorised
from vademecum.kernels._iterative import System
from vademecum.kernels._process import fits
from vademecum.kernels._rounding import Rounding, Wide, rounding
from vademecum.kernels.matrices import evaluated
from vademecum.kernels.radial import RBFKernel

__all__ = ["KernelRidge"]

_PRECOMPUTED = "precomputed"


class KernelRidge(MultiOutputMixin, RegressorMixin, BaseEstimator):
    r"""Ridge regression on the features of a kernel, without an intercept.

    Given arrays it is a scikit-learn estimator; given tensors it computes on their device, in
    their dtype, and answers with tensors. The objective is that of scikit-learn's `KernelRidge`.

    Args:
        kernel: A `Kernel`, any function of x1 and x2 that gives their matrix, or "precomputed":
            then X is the matrix of the training inputs, or its rows for new inputs. By default an
            `RBFKernel`.
        alpha: The penalty, 0 or more, or one for each target. With 0 it interpolates.
        tol: The relative residual at which conjugate gradients stop.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Of conjugate
            gradients; by default $10 n$.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest. That
            is to hold and decompose the matrix. If it would not fit, its rows are computed when
            they are needed.
        progress: Whether to show a progress bar on standard error. Of conjugate gradients.

    Attributes:
        dual_coef_: The coefficients c, of shape (n,) or (n, t).
        jitter_: What was added to the diagonal so that it could be decomposed; most often 0.
        residual_: The largest $\|y - (K + \alpha S^{-1}) c\| / \|y\|$ of a target.
        rounding_: What rounding did to predictions, as a share; not known above `memory`.
        n_iter_: The most iterations of conjugate gradients; 1 for a decomposition.

    References:
        Saunders, Gammerman and Vovk, Ridge regression learning algorithm in dual variables, ICML,
        1998.

    Example:
        >>> x, y = torch.tensor([[1.0], [2.0]]), torch.tensor([3.0, 4.0])
        >>> from vademecum.kernels import LinearKernel
        >>> ridge = KernelRidge(LinearKernel(), alpha=1.0).fit(x, y)
        >>> ridge.predict(torch.tensor([[6.0]]))  # a slope of 11 / (5 + 1)
        tensor([11.])
    """

    n_features_in_: int

    def __init__(
        self, kernel=None, *, alpha: Any = 1.0, tol=1e-4, max_iter=None, memory=None, progress=False
    ):
        self.kernel = kernel
        self.alpha = alpha
        self.tol = tol
        self.max_iter = max_iter
        self.memory = memory
        self.progress = progress

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._given
        return tags

    @property
    def _given(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == _PRECOMPUTED

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "KernelRidge":
        """Find the coefficients.

        Raises:
            ValueError: If the data are not finite, there is not one target for each example, a
                penalty is negative, the kernel is not symmetric and positive semidefinite, or equal
                inputs have different targets and there is no penalty.
        """
        x = inputs(self, X, reset=True)
        targets = as_targets(y, x)
        columns = targets.reshape(len(x), -1)
        alphas = _penalties(self.alpha, columns)
        number("tol", self.tol, above=0)
        if self.memory is not None:
            whole("memory", self.memory, low=1)
        if self.max_iter is not None:
            whole("max_iter", self.max_iter, low=1)
        s = as_weights(sample_weight, x)
        kept = torch.arange(len(x), device=x.device) if s is None else s.nonzero()[:, 0]
        weights = 1.0 if s is None else s[kept]
        coefficients = torch.zeros_like(columns)
        coefficients[kept] = self._solved(x, columns[kept], alphas, weights, kept)
        self._x, self._alpha = None if self._given else x.clone(), coefficients
        self._one = targets.ndim == 1
        self.dual_coef_ = like_input(coefficients[:, 0] if self._one else coefficients, X)
        return self

    def _solved(
        self, x: Tensor, y: Tensor, alphas: list[float], weights: Any, kept: Tensor
    ) -> Float[Tensor, " m t"]:
        """The coefficients of the examples with weight, target by target or all at once."""
        if self._given:
            kernel, K = None, _symmetric(x)[kept][:, kept]
        else:
            kernel, x = as_kernel(self.kernel, RBFKernel()), x[kept]
            K = covariance(kernel, x) if fits(x, self.memory) else None
        found, self.jitter_, self.n_iter_, ends = torch.empty_like(y), 0.0, 1, []
        for alpha in dict.fromkeys(alphas):
            own = torch.tensor([a == alpha for a in alphas], device=y.device)
            if alpha == 0 and kernel is not None:
                refuse_conflicts(x, y[:, own], "alpha")
            if K is None:
                found[:, own], end = self._iterated(kernel, x, alpha / weights, y[:, own])
            else:
                found[:, own], end = self._decomposed(K, kernel, x, alpha / weights, y[:, own])
            ends.append(end)
        self.residual_ = max(end.residual for end in ends)
        self.rounding_ = max(end.share for end in ends)
        return found

    def _decomposed(
        self, K: Tensor, kernel: Any, x: Tensor, diagonal: Any, y: Tensor
    ) -> tuple[Tensor, Rounding]:
        factor = factorised(K, diagonal=diagonal)
        c = factor.solve(y)
        self.jitter_ = max(self.jitter_, factor.jitter)
        same = K.double() if kernel is None else None
        wide = (
            Wide.of(kernel, x, c, K, memory=self.memory)
            if same is None
            else Wide(same @ c.double(), same)
        )
        known: Any = {"wide": wide, "diagonal": diagonal, "matrix": lambda: K, "name": "alpha"}
        return c, rounding(factor, c, y, **known)

    def _iterated(
        self, kernel: Any, x: Tensor, diagonal: Any, y: Tensor
    ) -> tuple[Tensor, Rounding]:
        memory: Any = self.memory
        system = System(kernel, x, diagonal, memory)
        solved = system.solve(y, tol=self.tol, max_iter=self.max_iter, progress=bool(self.progress))
        self.n_iter_ = max(self.n_iter_, int(solved.iterations.max()))
        norms = y.norm(dim=0).clamp(min=torch.finfo(y.dtype).tiny)
        return solved.x, Rounding(float((solved.residuals[-1] / norms).max()), float("nan"))

    def predict(self, X: Any) -> Any:
        """The values of the function at new inputs, or from their rows of the matrix."""
        check_is_fitted(self)
        x = inputs(self, X).to(self._alpha)
        if self._x is None:
            values = x @ self._alpha
        else:
            kernel = as_kernel(self.kernel, RBFKernel())
            parts = row_portions(len(x), len(self._x), x, self.memory)
            values = torch.cat([between(kernel, x[p], self._x) @ self._alpha for p in parts])
        values = values[:, 0] if self._one else values
        return answer(values, X)


def _penalties(alpha: Any, y: Float[Tensor, " n t"]) -> list[float]:
    """A penalty for each target."""
    values = alpha.detach().cpu().numpy() if isinstance(alpha, Tensor) else np.asarray(alpha)
    if values.dtype.kind not in "fiu" or values.ndim > 1:
        raise ValueError(f"alpha must be a number or one for each target, got {alpha!r}")
    found = [number("alpha", float(v), low=0) for v in values.reshape(-1)]
    if values.ndim and len(found) != y.shape[1]:
        raise ValueError(
            f"alpha must have one entry for each target, {y.shape[1]}, got {len(found)}"
        )
    return found if values.ndim else found * y.shape[1]


def _symmetric(K: Tensor) -> Tensor:
    """A precomputed matrix that is square and symmetric."""
    return evaluated(lambda *_: square("X", floats("X", K)), K, None)
