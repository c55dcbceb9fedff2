r"""Rosenblatt's perceptron, learnt in blocks.

A unit with weights $w \in \mathbb{R}^d$ and bias $b$ is shown the examples $(x_i, y_i)$,
$y_i = \pm 1$, one after the other, from $w = 0$, $b = 0$. At a mistake, and a tie is one,

$$y_i (\langle x_i, w \rangle + b) \le 0 \quad\Longrightarrow\quad
w \leftarrow w + y_i x_i, \quad b \leftarrow b + y_i.$$

Of a block of examples met with weights $(w, b)$, example $i$ has the score
$\langle x_i, w \rangle + b + \sum_{j < i} (\langle x_i, x_j \rangle + 1)\, c_j$, where $c_j = y_j$
if example $j$ of the block was a mistake and $0$ if not. These corrections are a cascade
(`vademecum.connectionism._cascade`), and the block ends with $w \leftarrow w + \sum_j c_j x_j$:
matrix products with the outcome of the sequential rule. In exact arithmetic, so for integers below
$2^{53}$ in double precision, the outcome is the same to the last bit; otherwise up to the rounding
of the scores, which can decide an example on the boundary either way.

Several classes are learnt by one unit each, its class against the rest. A single unit on a CPU,
for which the Gram matrices would be most of the work, goes from mistake to mistake instead
(`vademecum.connectionism._single_unit`). The claims `perceptron_update` and `novikov_bound` check
what is said here.
"""

import math
from functools import partial
from typing import Any

import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from vademecum.arrays import lengths, one_blas_thread, views
from vademecum.connectionism._cascade import cascade
from vademecum.connectionism._epochs import corrections, learn
from vademecum.connectionism._single_unit import show
from vademecum.estimators import (
    as_labels,
    as_rows,
    best_labels,
    like_input,
    one_versus_rest,
    precision,
)

__all__ = ["Perceptron"]

BLOCK = {"cpu": 32, "cuda": 256}  # more examples at once cost more in their Gram matrix
STRIP = 128  # blocks whose Gram matrices are computed in one call, while others are shown


class Perceptron(ClassifierMixin, BaseEstimator):
    r"""The perceptron classifier, for two classes or more.

    Given arrays it is a scikit-learn estimator; given tensors it learns on their device and
    answers with tensors. A score of zero is answered with the first of two classes. Half precision
    is learnt in single precision, numbers whose products leave its range in double precision; so
    are the weights.

    Args:
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Each is an epoch,
            which shows all examples once.
        tol: A unit also stops when its mean loss in an epoch, $\max\{0, -y f(x)\}$ at the time each
            example was shown, has not improved by `tol` for `n_iter_no_change` epochs in a row.
            None waits for an epoch without mistakes, which Novikov's bound promises for
            separable examples only.
        n_iter_no_change: See `tol`.
        shuffle: Whether each epoch shows the examples in an order of its own.
        random_state: Where random numbers come from, as in scikit-learn.
        fit_intercept: Whether there is a bias $b$.

    Attributes:
        classes_: The labels, sorted.
        coef_: The weights, of shape (1, d) for two classes, else (classes, d).
        intercept_: The biases, of shape (1,) or (classes,).
        n_iter_: The number of epochs, of the unit that took the most.
        converged_: Whether every unit stopped before `max_iter`.
        mistakes_: The number of updates; for more than two classes one for each.
        margin_: The geometric margin $\min_i y_i (\langle x_i, w \rangle + b) / \|w\|$ on the
            training data, negative if some example is on the wrong side ($-\infty$ for $w = 0$);
            for more than two classes one for each.
        novikov_bound_: $R^2 / \gamma^2$ with $R = \max_i \|\tilde x_i\|$ and $\gamma$ the margin of
            *the separator found*, $\min_i y_i \langle \tilde x_i, \tilde w \rangle / \|\tilde w\|$,
            where $\tilde x = (x, 1)$, $\tilde w = (w, b)$ with a bias and $\tilde x = x$,
            $\tilde w = w$ without; infinity if it does not separate. It bounds `mistakes_`. The
            bound with the largest margin is smaller: `vademecum.connectionism.novikov_bound`.

    References:
        Rosenblatt, The perceptron: a probabilistic model for information storage and organization
        in the brain, Psychological Review, 1958.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
        >>> unit = Perceptron(shuffle=False, fit_intercept=False).fit(x, torch.tensor([1, 1, -1]))
        >>> unit.coef_, unit.mistakes_, unit.n_iter_
        (tensor([[1., 1.]]), 2, 2)
    """

    n_features_in_: int
    mistakes_: Any
    margin_: Any
    novikov_bound_: Any

    def __init__(
        self,
        *,
        max_iter=1000,
        tol: Any = 1e-3,
        n_iter_no_change=5,
        shuffle=True,
        random_state=None,
        fit_intercept=True,
    ):
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.shuffle = shuffle
        self.random_state = random_state
        self.fit_intercept = fit_intercept

    def fit(self, X: Any, y: Any) -> "Perceptron":
        """Learn from the examples, starting at zero.

        Raises:
            ValueError: If the data are not finite, not labelled one by one, or of one class; if a
                parameter is out of range; if weights or scores overflow.
        """
        x = as_rows(self, X, reset=True).detach()
        self.classes_, index = as_labels(y, x)
        x = x.to(precision(x))
        units = _Units(x, one_versus_rest(index, len(self.classes_), x.dtype), self.fit_intercept)
        with one_blas_thread():
            run = learn(
                units.epoch,
                len(x),
                len(units.w),
                max_iter=self.max_iter,
                tol=self.tol,
                n_iter_no_change=self.n_iter_no_change,
                shuffle=self.shuffle,
                random_state=self.random_state,
            )
        self.n_iter_, self.converged_ = run.n_iter, run.converged
        self.coef_, self.intercept_ = like_input(units.w, X), like_input(units.b, X)
        found = run.mistakes, *units.margins()
        self.mistakes_, self.margin_, self.novikov_bound_ = (
            v.item() if len(v) == 1 else like_input(v, X) for v in found
        )
        return self

    def decision_function(self, X: Any) -> Any:
        """The scores: of the second class if there are two, else one column for each class."""
        check_is_fitted(self)
        x = as_rows(self, X)
        x = x.to(precision(x))
        w, b = (torch.as_tensor(v).to(x) for v in (self.coef_, self.intercept_))
        scores = torch.addmm(b, x, w.T)
        return like_input(scores[:, 0] if len(w) == 1 else scores, X)

    def predict(self, X: Any) -> Any:
        """The labels of the classes that score best."""
        scores = torch.as_tensor(self.decision_function(X))
        return best_labels(self.classes_, scores)


class _Units:
    """Perceptrons that learn side by side from the rows of `x`, with targets `y` (n, units)."""

    def __init__(self, x: Tensor, y: Tensor, bias: bool):
        self.x, self.y, self.bias = x, y, float(bias)
        self.w, self.b = x.new_zeros(y.shape[1], x.shape[1]), x.new_zeros(y.shape[1])
        self.kept: dict[int, Any] = {}

    def epoch(self, order: Tensor | None, active: Tensor) -> tuple[Tensor, Tensor]:
        """Show all examples once; the mistakes and the summed loss of each active unit."""
        if len(active) == 1 and self.x.device.type == "cpu":
            mistakes, loss = self._alone(order, int(active))
        else:
            mistakes, loss = self._together(order, active)
        if not loss.isfinite().all():
            raise ValueError(f"X must be smaller: scores overflow {self.x.dtype}")
        return mistakes, loss

    def _alone(self, order: Tensor | None, k: int) -> tuple[Tensor, Tensor]:
        x, w = views(self.x, self.w[k])
        y = self.y[:, k].contiguous().numpy()
        shown = None if order is None else order.numpy()
        b, mistakes, loss = show(x, y, w, float(self.b[k]), bias=self.bias, order=shown)
        self.b[k] = b
        return torch.tensor([mistakes]), torch.tensor([loss], dtype=torch.float64)

    def _together(self, order: Tensor | None, active: Tensor) -> tuple[Tensor, Tensor]:
        device = self.x.device
        active = active.to(device)
        w, b = self.w[active], self.b[active]
        y = self.y if len(active) == len(self.w) else self.y.index_select(1, active)
        c, scores = torch.empty_like(y), torch.empty_like(y, dtype=torch.float64)
        w_, b_, c_, scores_ = views(w, b, c, scores)
        k = 0
        for strip in _strips(len(y), BLOCK.get(device.type, 256)):
            for x_k, y_k, lower in zip(*views(*self._strip(order, y, *strip)), strict=True):
                here = slice(k, k := k + len(y_k))
                drive = x_k @ w_.T + b_
                c_k = c_[here] = cascade(partial(corrections, y_k), drive, lower)
                scores_[here] = lower @ c_k + drive
                w_ += c_k.T @ x_k
                b_ += self.bias * c_k.sum(0)
        self.w[active], self.b[active] = w, b
        return c.count_nonzero(0).cpu(), -(c * scores).sum(0).cpu()

    def _strip(
        self, order: Tensor | None, y: Tensor, start: int, stop: int, block: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Examples, targets and strictly lower Gram matrices of a strip, block by block."""
        if order is None:
            x, y = self.x[start:stop], y[start:stop]
        else:
            rows = order[start:stop].to(y.device)
            x, y = self.x.index_select(0, rows), y.index_select(0, rows)
        x, y = (v.reshape(-1, block, v.shape[1]) for v in (x, y))
        if order is None and start in self.kept:
            return x, y, self.kept[start]
        gram = torch.bmm(x, x.mT).add_(self.bias).tril_(-1)
        if order is None and block <= x.shape[2]:  # so that they take no more memory than the data
            self.kept[start] = gram
        return x, y, gram

    def margins(self) -> tuple[Tensor, Tensor]:
        """The geometric margin and Novikov's bound of each unit."""
        scores = torch.empty_like(self.y)
        x_, w_, b_, scores_ = views(self.x, self.w, self.b, scores)
        for start, stop, block in _strips(len(scores), BLOCK.get(self.x.device.type, 256)):
            x_s = x_[start:stop].reshape(-1, block, x_.shape[1])  # quicker than in one product
            scores_[start:stop] = (x_s @ w_.T + b_).reshape(stop - start, -1)
        if not scores.isfinite().all():
            raise ValueError(f"X must be smaller: scores overflow {self.x.dtype}")
        worst = (scores * self.y).amin(0).double()
        length = lengths(self.w, 1, dtype=torch.float64)
        bound = torch.full_like(worst, math.inf)
        if (worst > 0).any():
            radius = math.hypot(float(lengths(self.x, 1, dtype=torch.float64).max()), self.bias)
            gamma = worst / torch.hypot(length, self.b.double())
            bound = torch.where(worst > 0, (radius / gamma).square(), math.inf)
        return torch.where(length > 0, worst / length, -math.inf), bound


def _strips(n: int, block: int) -> list[tuple[int, int, int]]:
    """Start, stop and block length of strips that hold whole blocks; the rest is a last block."""
    whole = n - n % block
    starts = range(0, whole, STRIP * block)
    strips = [(start, min(start + STRIP * block, whole), block) for start in starts]
    return strips + [(whole, n, n - whole)] * (whole < n)
