r"""Several linear tasks that share a representation of few dimensions.

Task $t$ has examples $X_t, y_t$ of its own and weights $w_t = B^\top a_t$, with one
$B \in \mathbb R^{r \times d}$ for all:

$$\min_{A, B} \sum_t \|y_t - X_t B^\top a_t\|^2 + \frac\alpha2 \big(\|A\|_F^2 + \|B\|_F^2\big),$$

where each task's means are taken off before (the intercepts are not penalised). The least penalty
of a given $W = A B$ is $\alpha \|W\|_*$, so this is a penalty on the nuclear norm among matrices of
rank $r$. Alternating least squares solves for $A$, a ridge regression in $r$ dimensions for each
task, and for $B$, one in $r d$ dimensions; the objective never grows. It begins with the leading
singular vectors of separate ridge regressions, since from a random start it can end in a poor local
minimum.

Each step is exact up to rounding; what it converges to is a local minimum. A step costs
$O((r d)^3)$. Checked by the claim `multi_task`.

References:
    Caruana, Multitask learning, Machine Learning, 1997.
    Srebro, Rennie and Jaakkola, Maximum-margin matrix factorization, NeurIPS, 2004.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_consistent_length, column_or_1d
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.estimators import (
    as_rows,
    as_targets,
    fitted_map,
    like_input,
    predict_linear,
    warn_unconverged,
)

__all__ = ["MultiTaskLinear"]


class _Moments(NamedTuple):
    """What the tasks' data are to least squares, after their means are taken off."""

    gram: Tensor
    """The X^T X of each task, (t, d, d)."""
    cross: Tensor
    """The X^T y of each task, (t, d)."""
    power: float
    """The sum of all y^2."""
    mean_x: Tensor
    mean_y: Tensor

    def objective(self, A: Tensor, B: Tensor, alpha: float) -> float:
        W = A @ B
        fit = ((self.gram @ W[..., None])[..., 0] * W).sum() - 2 * (W * self.cross).sum()
        return float(self.power + fit + alpha / 2 * (A.square().sum() + B.square().sum()))


class MultiTaskLinear(MultiOutputMixin, RegressorMixin, BaseEstimator):
    r"""Linear regression of several tasks through one representation of few dimensions.

    Given arrays it is a scikit-learn regressor; given tensors it computes on their device and
    answers with tensors. All tasks have the same inputs and a column of `y` each, or, with the
    argument `tasks` of `fit`, each example belongs to one task.

    Args:
        rank: The dimension $r$ of the representation; at most that of tasks and features counts.
        alpha: The penalty $\alpha$.
        fit_intercept: Whether each task has an intercept, which is not penalised.
        tol: The decrease of the objective, over what it is at zero, at which the fit ends.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`.

    Attributes:
        coef_: The weights $w_t$, of shape (t, d), or (d,) for one column.
        intercept_: The intercepts, a number or of shape (t,).
        representation_: Orthonormal rows that span the representation, of shape (r, d), each with
            its largest entry positive.
        loadings_: Their coefficients in each task, of shape (t, r).
        tasks_: The names of the tasks, sorted, where `tasks` was given.
        objective_: The objective after each iteration.
        n_iter_: The number of iterations.
        converged_: Whether the last of them gained no more than `tol`.

    Example:
        >>> x = torch.eye(2).double()
        >>> y = torch.tensor([[1.0, 2.0], [2.0, 4.0]]).double()  # weights (1, 2) and (2, 4)
        >>> model = MultiTaskLinear(alpha=1e-9, fit_intercept=False).fit(x, y)
        >>> model.coef_.round(decimals=6)
        tensor([[1., 2.],
                [2., 4.]], dtype=torch.float64)
        >>> model.representation_  # (1, 2) over the root of 5
        tensor([[0.4472, 0.8944]], dtype=torch.float64)
    """

    n_features_in_: int

    def __init__(self, *, rank=1, alpha=1e-2, fit_intercept=True, tol=1e-8, max_iter=500):
        self.rank = rank
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any, tasks: Any = None) -> "MultiTaskLinear":
        """Learn all tasks together.

        Args:
            X: The examples.
            y: The targets, a column for each task; one column with `tasks`.
            tasks: The task of each example, of any kind that can be sorted.

        Raises:
            ValueError: If the data are not finite, there is not one target for each example, or a
                parameter is out of range.
        """
        number("alpha", self.alpha, above=0)
        number("tol", self.tol, above=0)
        whole("max_iter", self.max_iter, low=1)
        whole("rank", self.rank, low=1)
        x = as_rows(self, X, reset=True).detach()
        y = as_targets(y, x, several=tasks is None)
        if tasks is None:
            self.tasks_ = None
            found = self._shared(x.double(), y.reshape(len(x), -1).double())
        else:
            self.tasks_, index = _named(tasks, x)
            found = self._apart(x.double(), y.double(), index, len(self.tasks_))
        A, B = self._alternate(found)
        W = A @ B
        directions = torch.linalg.svd(W, full_matrices=False).Vh[: len(B)]
        largest = directions.gather(1, directions.abs().argmax(1, keepdim=True))
        directions = directions * torch.where(largest < 0, -1.0, 1.0)
        like = y if tasks is None else y[:, None]
        b = found.mean_y - (W * found.mean_x).sum(1)
        self.coef_, self.intercept_ = fitted_map(W, torch.zeros_like(W[0]), b, like, X)
        self.representation_ = like_input(directions.to(x.dtype), X)
        self.loadings_ = like_input((W @ directions.T).to(x.dtype), X)
        return self

    def _shared(self, x: Tensor, y: Tensor) -> _Moments:
        t = y.shape[1]
        mean_x, mean_y = x.mean(0) * self.fit_intercept, y.mean(0) * self.fit_intercept
        x, y = x - mean_x, y - mean_y
        gram, means = (x.T @ x).expand(t, -1, -1), mean_x.expand(t, -1)
        return _Moments(gram, (x.T @ y).T, float(y.square().sum()), means, mean_y)

    def _apart(self, x: Tensor, y: Tensor, index: Tensor, t: int) -> _Moments:
        parts = [self._shared(x[index == k], y[index == k, None]) for k in range(t)]
        gram, cross, power, mean_x, mean_y = zip(*parts, strict=True)
        joined = (torch.cat(v) for v in (gram, cross, mean_x, mean_y))
        gram, cross, mean_x, mean_y = joined
        return _Moments(gram, cross, math.fsum(power), mean_x, mean_y)

    def _alternate(self, data: _Moments) -> tuple[Tensor, Tensor]:
        (t, d), half = data.cross.shape, self.alpha / 2
        r = min(self.rank, t, d)
        eye = torch.eye(d).to(data.cross)
        level = data.gram.diagonal(dim1=1, dim2=2).mean(1)[:, None, None] + half
        alone = torch.linalg.solve(data.gram + level * eye, data.cross[..., None])[..., 0]
        B = torch.linalg.svd(alone, full_matrices=False).Vh[:r]
        A, path, gain = alone @ B.T, [], math.inf
        for _ in range(self.max_iter):
            A = _ridge(B @ data.gram @ B.T, (data.cross @ B.T)[..., None], half)[..., 0]
            M = torch.einsum("ta,tb,tij->aibj", A, A, data.gram).reshape(r * d, r * d)
            B = _ridge(M, (A.T @ data.cross).reshape(-1, 1), half).view(r, d)
            A, B = _balanced(A, B)
            path.append(data.objective(A, B, self.alpha))
            gain = path[-2] - path[-1] if len(path) > 1 else math.inf
            if gain <= self.tol * data.power:
                break
        self.n_iter_, self.objective_ = len(path), torch.tensor(path, dtype=torch.float64)
        self.converged_ = gain <= self.tol * data.power
        if not self.converged_:
            warn_unconverged(f"max_iter={self.max_iter} reached: the last step gained {gain:.3g}")
        return A, B

    def predict(self, X: Any, tasks: Any = None) -> Any:
        """The answers of all tasks, a column each; or, with the task of each example, of that one.

        Raises:
            ValueError: If a task was not among those of `fit`.
        """
        answers = predict_linear(self, X)
        if tasks is None:
            return answers
        if self.tasks_ is None:
            raise ValueError("tasks must be None: fit had a column of y for each task")
        found = torch.as_tensor(answers)
        names, index = _named(tasks, found)
        known = {name: k for k, name in enumerate(self.tasks_)}
        strange = [name for name in names if name not in known]
        if strange:
            raise ValueError(f"tasks must be among those of fit, got {strange[0]!r}")
        columns = torch.tensor([known[name] for name in names], device=found.device)[index]
        return like_input(found.gather(1, columns[:, None])[:, 0], X)


def _named(tasks: Any, x: Tensor) -> tuple[list[Any], Tensor]:
    """The names of tasks, sorted, and the place of each example's among them."""
    given = tasks.numpy(force=True) if isinstance(tasks, Tensor) else tasks
    names = column_or_1d(given, input_name="tasks").tolist()
    check_consistent_length(np.empty(len(x)), names)
    if any(name != name for name in names):
        raise ValueError("tasks must be names or numbers, got NaN")
    kinds = sorted(set(names))
    place = {name: k for k, name in enumerate(kinds)}
    return kinds, torch.tensor([place[name] for name in names], device=x.device)


def _ridge(gram: Tensor, right: Tensor, penalty: float) -> Tensor:
    eye = torch.eye(gram.shape[-1]).to(gram)
    return torch.linalg.solve(gram + penalty * eye, right)


def _balanced(A: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:
    """Factors of the same product with the least penalty."""
    q, s = torch.linalg.qr(A)
    p, u = torch.linalg.qr(B.T)
    left, values, right = torch.linalg.svd(s @ u.T)
    root = values.sqrt()
    return q @ left * root, root[:, None] * (right @ p.T)
