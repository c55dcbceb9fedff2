r"""What logistic and softmax regression share: weights by penalised maximum likelihood.

With the $K$ logits $z = W x + b$ the fit minimises, over $n$ examples with weights $s_i$,

$$f(W, b) = \frac{1}{\sum_i s_i} \sum_i s_i\, \ell(y_i, z_i) + \frac{\lambda}{2} \|W\|_F^2$$

until no entry of its gradient exceeds `tol`. scikit-learn writes $\frac{1}{2} \|W\|_F^2 + C \sum_i
s_i \ell_i$ for the same function up to a factor: $\lambda = 1 / (C \sum_i s_i)$. Its `tol` bounds
the same entries. The bias is never penalised.

Without decay, $f$ has a minimum only if no hyperplanes separate the classes: if some do, it falls
to its infimum as the weights grow, and whatever is returned depends on `tol`. That is detected and
warned of. Separation by the weights found is a proof; where only some examples are separated and
the others lie on the boundary, the last step, which follows the escaping weights, is the evidence:
that warning is approximate, and can be missing where `tol` is reached early.
"""

from abc import abstractmethod
from typing import Any

import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.estimators import (
    affine,
    as_rows,
    as_weights,
    best_labels,
    class_weights,
    like_input,
    warn_unconverged,
)
from vademecum.linear._lbfgs import Minimum, minimise
from vademecum.linear._penalised_likelihood import PenalisedLikelihood

__all__ = ["AbstractLikelihoodClassifier"]


class AbstractLikelihoodClassifier(ClassifierMixin, BaseEstimator):
    """A linear classifier fitted by penalised maximum likelihood; its subclasses are final."""

    n_features_in_: int
    classes_: Any
    coef_: Any
    intercept_: Any

    def __init__(
        self,
        *,
        weight_decay=1e-4,
        tol=1e-6,
        max_iter=1000,
        fit_intercept=True,
        warm_start=False,
        class_weight: Any = None,
    ):
        self.weight_decay = weight_decay
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.warm_start = warm_start
        self.class_weight = class_weight

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @abstractmethod
    def _targets(self, y: Any, x: Any) -> tuple[Any, Tensor]:
        """The classes, and the targets of the examples: shape (K, n)."""

    @abstractmethod
    def _log_probabilities(self, z: Tensor) -> Tensor:
        """The logarithms of all classes' probabilities, from logits of shape (n, K)."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Learn from the examples.

        Raises:
            ValueError: If the data are not finite, not labelled one by one, or of one class; if a
                parameter is out of range; if the weights leave a class without examples.
        """
        number("weight_decay", self.weight_decay, low=0)
        number("tol", self.tol, above=0)
        whole("max_iter", self.max_iter, low=1)
        x = as_rows(self, X, reset=True, sparse=True).detach()
        if x.dtype.is_complex:
            raise ValueError(f"X must be real, got {x.dtype}")
        classes, targets = self._targets(y, x)
        s = self._weights(sample_weight, x, classes, targets)
        absent = targets if len(targets) > 1 else torch.cat([targets, 1 - targets])
        if not ((absent > 0) & (s > 0)).any(1).all():
            raise ValueError(
                "a class has no weight: y or sample_weight is zero for all its examples"
            )
        options = {"weight_decay": float(self.weight_decay), "bias": bool(self.fit_intercept)}
        f = PenalisedLikelihood(x, targets, s, **options)
        start = self._start(classes, x, len(targets))
        found = minimise(f, start, tol=float(self.tol), max_iter=self.max_iter)
        self._warn(found, f)
        theta = found.theta.view(len(targets), -1)
        if len(targets) > 1:  # what all classes share has no effect
            theta = theta - theta.mean(0)
        self.classes_, self.n_iter_, self.gradient_ = classes, found.n_iter, found.gradient
        self.converged_ = found.gradient <= self.tol
        w, b = theta[:, :-1].to(x.dtype), theta[:, -1].to(x.dtype)
        self.coef_, self.intercept_ = like_input(w, X), like_input(b, X)
        return self

    def _weights(self, s: Any, x: Any, classes: Any, targets: Tensor) -> Tensor:
        """The weights of the examples, all one where none are given, with those of the classes."""
        s = as_weights(s, x)
        s = torch.ones(len(x), dtype=torch.float64, device=x.device) if s is None else s
        if self.class_weight is not None:
            index = targets.argmax(0) if len(targets) > 1 else targets[0].long()
            if not ((targets == 0) | (targets == 1)).all():
                raise ValueError("class_weight must be None where y are probabilities")
            s = class_weights(self.class_weight, classes, index, s)
        s = s / s.max().clamp(min=torch.finfo(s.dtype).tiny)  # in the range of every dtype
        return s.to(torch.promote_types(x.dtype, torch.float32))

    def _start(self, classes: Any, x: Any, k: int) -> Tensor:
        """Zero, or the weights of the last fit."""
        theta = torch.zeros(k, x.shape[1] + 1, dtype=torch.float64, device=x.device)
        if self.warm_start and hasattr(self, "coef_"):
            w, b = (torch.as_tensor(v).to(theta) for v in (self.coef_, self.intercept_))
            if w.shape != (k, x.shape[1]) or list(classes) != list(self.classes_):
                raise ValueError(
                    f"warm_start must continue with the same classes and features, got {k} rows of"
                    f" {x.shape[1]} weights after {tuple(w.shape)}"
                )
            theta = torch.cat([w, b[:, None]], 1)
        return theta.flatten()

    def _warn(self, found: Minimum, f: PenalisedLikelihood) -> None:
        if not found.gradient <= self.tol:
            why = f"max_iter={self.max_iter} reached" if found.n_iter >= self.max_iter else (
                "no further progress at the rounding of double precision"
            )  # fmt: skip
            message = f"{why}: the gradient is {found.gradient:.3g}, tol={self.tol:g}"
            warn_unconverged(message)
        elif self.weight_decay == 0 and _separates(f, found):
            message = (
                "the classes are linearly separable, so that without weight_decay no finite weights"
                f" are best: these are where the gradient fell to {found.gradient:.3g}"
            )
            warn_unconverged(message)

    def _logits(self, X: Any) -> Tensor:
        check_is_fitted(self)
        x = as_rows(self, X, sparse=True)
        like = {"dtype": x.dtype, "device": x.device}
        return affine(x, *(torch.as_tensor(v, **like) for v in (self.coef_, self.intercept_)))

    def decision_function(self, X: Any) -> Any:
        """The logit of the second class against the first if there are two, else all logits."""
        z = self._logits(X)
        if len(self.classes_) == 2:
            z = z[:, -1] - z[:, 0] if z.shape[1] == 2 else z[:, 0]
        return like_input(z, X)

    def predict(self, X: Any) -> Any:
        """The labels of the most probable classes."""
        scores = torch.as_tensor(self.decision_function(X))
        return best_labels(self.classes_, scores)

    def predict_log_proba(self, X: Any) -> Any:
        """The logarithms of the classes' probabilities, finite also where those underflow."""
        logs = self._log_probabilities(self._logits(X))
        p = logs.exp()
        return like_input(torch.where(p > 0.5, p.log(), logs), X)  # of 1 exactly 0

    def predict_proba(self, X: Any) -> Any:
        """The classes' probabilities, of shape (n, classes)."""
        return like_input(self._log_probabilities(self._logits(X)).exp(), X)


def _separates(f: PenalisedLikelihood, found: Minimum) -> bool:
    """Whether the weights separate all classes, or the last step separates some and mixes none."""
    gaps = [[_gap(f, theta, rows) for rows in f.chunks] for theta in (found.theta, found.step)]
    whole, last = (torch.cat(parts) for parts in gaps)
    return bool(whole.min() > 0) or bool(last.min() >= -1e-3 * last.max() and last.max() > 0)


def _gap(f: PenalisedLikelihood, theta: Tensor, rows: slice) -> Tensor:
    """By how much the class of each weighted example leads; of several, less what parts them."""
    z, own = f.logits(theta, rows), f.y[:, rows] > 0
    if len(z) == 1:
        gap = torch.where(own[0], z[0], -z[0])
    else:
        low = z.masked_fill(~own, torch.inf).amin(0)
        high = z.masked_fill(~own, -torch.inf).amax(0)
        other = z.masked_fill(own, -torch.inf).amax(0)
        gap = low - torch.where(own.sum(0) > 1, high, other)
    return gap[f.s[rows] > 0]
