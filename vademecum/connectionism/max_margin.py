r"""The maximum-margin classifier: the hard-margin support vector machine, without a QP solver.

Among all hyperplanes that separate two classes $P$ and $Q$ the one with the largest margin,

$$(w^*, b^*) \in \operatorname*{argmax}_{w, b}\
\min_i \frac{y_i (\langle x_i, w \rangle + b)}{\|w\|},$$

is unique. It bisects the shortest vector $v$ from the convex hull of $Q$ to that of $P$, and its
margin is half the length of $v$. Here $v$ is found by `vademecum.connectionism.nearest_point`,
which takes a few products with the data, so that many examples are no obstacle. The result
is scaled as usual, $\min_i y_i (\langle x_i, w^* \rangle + b^*) = 1$, so that
$w^* = 2 v / \|v\|^2 = \sum_i \alpha_i y_i x_i$ with dual weights $\alpha_i \ge 0$ of which at most
$2 (d + 1)$ are positive. Without a bias $v$ is the point of least norm in the hull of the
$y_i x_i$, the margin is $\|v\|$ and $w^* = v / \|v\|^2$.

Everything is computed in double precision. That the classes are separated is verified on the data,
and `gap_` certifies how far the margin can be from the largest one. The claim is `max_margin`.
"""

from typing import Any

import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from vademecum.arrays import power_of_two
from vademecum.connectionism.convex_hulls import shortest_vector
from vademecum.estimators import as_labels, as_rows, best_labels, like_input, warn_unconverged

__all__ = ["MaxMarginClassifier"]


class MaxMarginClassifier(ClassifierMixin, BaseEstimator):
    r"""The hyperplane with the largest margin between two linearly separable classes.

    Given arrays it is a scikit-learn estimator; given tensors it learns on their device and
    answers with tensors. A score of zero is answered with the first class.

    Args:
        tol: The relative gap between the margin and its upper bound at which to stop.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Each is a cycle of
            Wolfe's algorithm.
        fit_intercept: Whether there is a bias $b$; without, the hyperplane passes through zero.

    Attributes:
        classes_: The two labels, sorted.
        coef_: The weights $w^*$, of shape (1, d).
        intercept_: The bias $b^*$, of shape (1,).
        margin_: The geometric margin on the training data.
        gap_: An upper bound on how much larger the margin of another hyperplane could be.
        support_: The indices of the examples with positive dual weight.
        dual_coef_: Their $y_i \alpha_i$, of shape (1, support vectors).
        n_iter_: The number of cycles.
        converged_: Whether `tol` or the end of the precision was reached, and not `max_iter`.

    References:
        Wolfe, Finding the nearest point in a polytope, Mathematical Programming, 1976.
        Bennett and Bredensteiner, Duality and geometry in SVM classifiers, ICML, 2000.

    Example:
        >>> x = torch.tensor([[0.0, 0.0], [0.0, 10.0], [1.0, 0.0]])
        >>> best = MaxMarginClassifier().fit(x, torch.tensor([0, 0, 1]))
        >>> best.margin_, best.coef_, best.intercept_
        (0.5, tensor([[2., 0.]]), tensor([-1.]))
    """

    def __init__(self, *, tol=1e-10, max_iter=100_000, fit_intercept=True):
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: Any, y: Any) -> "MaxMarginClassifier":
        """Find the hyperplane.

        Raises:
            ValueError: If the classes are not two, are not linearly separable (by more than
                rounding), or have not been separated within `max_iter` cycles.
        """
        x = as_rows(self, X, reset=True).detach()
        self.classes_, index = as_labels(y, x)
        if len(self.classes_) > 2:
            raise ValueError(
                "Only binary classification is supported. y must have two classes, "
                f"got {len(self.classes_)}"
            )
        sign = 2.0 * index.double() - 1
        z = x.double()
        scale = power_of_two(z)
        z = z if scale == 1 else z / scale
        centre = z.mean(0) * self.fit_intercept
        z = z - centre
        v, alpha = self._shortest(z, sign)
        scores = z @ v
        low, high = scores[sign > 0].min(), scores[sign < 0].max()
        b = -(low + high) / 2 * self.fit_intercept
        functional = (sign * (scores + b)).min()
        self._explain(bool(functional > _rounding(z, v)), scale)
        v, b, alpha = v / functional, b / functional, alpha / functional
        self.margin_, self.gap_ = scale / float(v.norm()), scale * self.gap_
        self.support_ = like_input(alpha.nonzero()[:, 0], X)
        self.dual_coef_ = like_input((sign * alpha / scale / scale)[alpha > 0][None].to(x), X)
        self.coef_ = like_input((v / scale)[None].to(x), X)
        self.intercept_ = like_input((b - centre @ v)[None].to(x), X)
        return self

    def _shortest(self, z: Tensor, sign: Tensor) -> tuple[Tensor, Tensor]:
        """The normal, as a combination of signed examples, and the weights; sets the gap."""
        positive = sign > 0
        options = {"tol": self.tol, "max_iter": self.max_iter}
        alpha = torch.zeros_like(sign)
        if self.fit_intercept:
            found = shortest_vector(z[positive], z[~positive], **options)
            alpha[positive], alpha[~positive] = found.weights, found.others
            self.gap_ = found.gap / 2
        else:
            found = shortest_vector(sign[:, None] * z, **options)
            alpha = found.weights
            self.gap_ = found.gap
        self.n_iter_, self.converged_ = found.n_iter, found.converged
        return found.point, alpha

    def _explain(self, separated: bool, scale: float) -> None:
        """Say what went wrong, if anything did."""
        if not separated and not self.converged_:
            raise ValueError(f"max_iter must be larger, got {self.max_iter}: no separation so far")
        if not separated:
            raise ValueError(
                "X must be linearly separable into the two classes of y, it is not by more than"
                " rounding"
            )
        if not self.converged_:
            short = f"{scale * self.gap_:.3g}"
            warn_unconverged(f"max_iter={self.max_iter} reached: the margin lacks {short} at most")

    def decision_function(self, X: Any) -> Any:
        """The scores, at least 1 in absolute value for every training example."""
        check_is_fitted(self)
        x = as_rows(self, X)
        w, b = (torch.as_tensor(v).to(x) for v in (self.coef_, self.intercept_))
        return like_input(x @ w[0] + b, X)

    def predict(self, X: Any) -> Any:
        """The labels: the second class where the score is positive, else the first."""
        scores = torch.as_tensor(self.decision_function(X))
        return best_labels(self.classes_, scores)


def _rounding(z: Tensor, v: Tensor) -> Tensor:
    """What the rounding of the scores can amount to."""
    eps = torch.finfo(z.dtype).eps
    return 4 * z.shape[1] * eps * torch.linalg.vector_norm(z, dim=1).max() * v.norm()
