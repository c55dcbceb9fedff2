r"""Rosenblatt's perceptron, learnt in blocks.

A unit with weights $w \in \mathbb{R}^d$ and bias $b$ is shown the examples $(x_i, y_i)$,
$y_i = \pm 1$, one after the other, from $w = 0$, $b = 0$. At a mistake, and a tie is one,

$$y_i (\langle x_i, w \rangle + b) \le 0 \quad\Longrightarrow\quad
w \leftarrow w + y_i x_i, \quad b \leftarrow b + y_i.$$

Examples are met in blocks with matrix products (`vademecum.connectionism._perceptron_units`), with
the outcome of the sequential rule up to the rounding of scores. Several classes are learnt by one
unit each, its class against the rest. The claims `perceptron_update` and `novikov_bound` check what
is said here.
"""

from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from vademecum.arrays import one_blas_thread
from vademecum.connectionism._epochs import learn
from vademecum.connectionism._perceptron_units import Units
from vademecum.estimators import (
    affine,
    as_labels,
    as_rows,
    best_labels,
    labels_among,
    like_input,
    one_versus_rest,
    precision,
)

__all__ = ["Perceptron"]


class Perceptron(ClassifierMixin, BaseEstimator):
    r"""The perceptron classifier, for two classes or more.

    Given arrays it is a scikit-learn estimator; given tensors it learns on their device and
    answers with tensors. A score of zero is answered with the first of two classes. Half precision
    is learnt in single precision, numbers whose products leave its range in double precision; so
    are the weights. Sparse examples (SciPy's, or torch's in the layout CSR) stay sparse.

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
        x = as_rows(self, X, reset=True, sparse=True).detach()
        self.classes_, index = as_labels(y, x)
        x = x.to(precision(x))
        units = Units(x, one_versus_rest(index, len(self.classes_), x.dtype), self.fit_intercept)
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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _weights(self, like: Any) -> list[Tensor]:
        kind = {"dtype": like.dtype, "device": like.device}
        return [torch.as_tensor(v, **kind) for v in (self.coef_, self.intercept_)]

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> "Perceptron":
        """Learn from each example once, in the given order, starting where the last call ended.

        The margin and the bound of `fit`, which are of all examples, go; mistakes add up.

        Args:
            X: Examples.
            y: Their labels.
            classes: All labels there are; needed in the first call.

        Raises:
            ValueError: As `fit` does, and if classes are missing, or change.
        """
        first = not hasattr(self, "coef_")
        x = as_rows(self, X, reset=first, sparse=True).detach()
        if first and classes is None:
            raise ValueError("classes must be given in the first call of partial_fit, got None")
        if classes is not None:
            kind = torch.unique if isinstance(classes, Tensor) else np.unique
            known = kind(classes)
            if len(known) < 2:
                raise ValueError(f"classes must be two or more, got {known.tolist()}")
            if not first and known.tolist() != self.classes_.tolist():
                raise ValueError(
                    f"classes must stay {self.classes_.tolist()}, got {known.tolist()}"
                )
            self.classes_ = known
        x = x.to(precision(x))
        index = labels_among(self.classes_, y, x)
        units = Units(x, one_versus_rest(index, len(self.classes_), x.dtype), self.fit_intercept)
        if not first:
            units.w, units.b = (v.clone() for v in self._weights(x))
        with one_blas_thread():
            mistakes, _ = units.epoch(None, torch.arange(len(units.w)))
        self.n_iter_, self.converged_ = 1 if first else self.n_iter_ + 1, not mistakes.any()
        self.coef_, self.intercept_ = like_input(units.w, X), like_input(units.b, X)
        before = 0 if first else torch.as_tensor(self.mistakes_).cpu()
        total = mistakes + before
        self.mistakes_ = total.item() if len(total) == 1 else like_input(total, X)
        for name in ("margin_", "novikov_bound_"):
            vars(self).pop(name, None)
        return self

    def decision_function(self, X: Any) -> Any:
        """The scores: of the second class if there are two, else one column for each class."""
        check_is_fitted(self)
        x = as_rows(self, X, sparse=True)
        x = x.to(precision(x))
        scores = affine(x, *self._weights(x))
        return like_input(scores[:, 0] if scores.shape[1] == 1 else scores, X)

    def predict(self, X: Any) -> Any:
        """The labels of the classes that score best."""
        scores = torch.as_tensor(self.decision_function(X))
        return best_labels(self.classes_, scores)
