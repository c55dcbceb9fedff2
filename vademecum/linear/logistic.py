r"""Logistic regression: two classes, one logit, the Bernoulli likelihood.

The probability of the second class is $\sigma(w^\top x + b)$, $\sigma(z) = 1 / (1 + e^{-z})$, and
the loss of a label $y \in \{0, 1\}$ is $\ell(y, z) = \log(1 + e^z) - y z$: convex, with gradient
$(\sigma(z) - y)\, x$ in $w$. `vademecum.linear._likelihood_classifier` states the function that is
minimised, how its decay compares with scikit-learn's $C$, and what happens to separable classes.
The claims `logistic_loss`, `logistic_gradient` and `logistic_regression` check what is said here.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vademecum.estimators import as_labels
from vademecum.linear._likelihood_classifier import AbstractLikelihoodClassifier

__all__ = ["LogisticRegression"]


class LogisticRegression(AbstractLikelihoodClassifier):
    r"""Logistic regression of two classes, to a tolerance of the gradient.

    Given arrays it is a scikit-learn estimator; given tensors it learns on their device and answers
    with tensors. A probability of one half is answered with the first class.

    Args:
        weight_decay: The factor $\lambda$ of $\frac{\lambda}{2} \|w\|^2$ beside the *mean* loss;
            scikit-learn's `C` is $1 / (\lambda n)$ for $n$ examples. With 0 there is a
            `ConvergenceWarning` if the classes are linearly separable, since no weights are best.
        tol: The largest entry of the gradient that is good enough.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`.
        fit_intercept: Whether there is a bias $b$; it is not penalised.
        warm_start: Whether `fit` starts at the weights of the last fit rather than at zero.
        class_weight: None; a dictionary from labels to the weights of their examples; or
            "balanced", which gives all classes the same total weight.

    Attributes:
        classes_: The two labels, sorted.
        coef_: The weights $w$, of shape (1, d).
        intercept_: The bias $b$, of shape (1,).
        gradient_: The largest entry of the gradient where the fit stopped, before the weights were
            rounded to the dtype of the data.
        n_iter_: The number of iterations.
        converged_: Whether that entry is at most `tol`.

    References:
        Cox, The regression analysis of binary sequences, Journal of the Royal Statistical Society
        B, 1958.

    Example:
        >>> x = torch.tensor([[0.0], [0.0], [0.0], [1.0], [1.0], [1.0]], dtype=torch.float64)
        >>> y = torch.tensor([0, 0, 1, 0, 1, 1])
        >>> model = LogisticRegression(weight_decay=0.0).fit(x, y)
        >>> model.predict_proba(x[2:4])[:, 1]  # the shares of ones: 1/3 at 0 and 2/3 at 1
        tensor([0.3333, 0.6667], dtype=torch.float64)
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _targets(self, y: Any, x: Any) -> tuple[Any, Tensor]:
        classes, index = as_labels(y, x)
        if len(classes) > 2:
            raise ValueError(
                f"Only binary classification is supported. y must have two classes, got"
                f" {len(classes)}: SoftmaxRegression takes more"
            )
        return classes, index[None].to(x.dtype)

    def _log_probabilities(self, z: Tensor) -> Tensor:
        return F.logsigmoid(torch.cat([-z, z], 1))
