r"""Softmax regression: K classes, K logits, the categorical likelihood.

The probability of class $k$ is $\mathrm{softmax}(W x + b)_k$, and the loss of a target $y$, a class
as a one-hot vector or any probability vector, is
$\ell(y, z) = \log \sum_j e^{z_j} - \langle y, z \rangle$: convex, with gradient
$(\mathrm{softmax}(z)_k - y_k)\, x$ in $w_k$. A vector added to all $w_k$ changes no probability, so
the weights are returned with $\sum_k w_k = 0$ and $\sum_k b_k = 0$, where the decay drives them
anyhow. `vademecum.linear._likelihood_classifier` states the function that is minimised, how its
decay compares with scikit-learn's $C$, and what happens to separable classes. The claims
`cross_entropy`, `softmax_gradient` and `softmax_redundancy` check what is said here.
"""

from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_array, check_consistent_length
from torch import Tensor

from vademecum.arguments import probabilities
from vademecum.estimators import as_labels
from vademecum.linear._likelihood_classifier import AbstractLikelihoodClassifier

__all__ = ["SoftmaxRegression"]


class SoftmaxRegression(AbstractLikelihoodClassifier):
    r"""Softmax (multinomial logistic) regression, to a tolerance of the gradient.

    Given arrays it is a scikit-learn estimator; given tensors it learns on their device and answers
    with tensors. The targets `y` are labels, or a matrix of shape (n, classes) whose rows are
    probabilities; then the classes are 0, 1, 2, ...

    Args:
        weight_decay: The factor $\lambda$ of $\frac{\lambda}{2} \|W\|_F^2$ beside the *mean* loss;
            scikit-learn's `C` is $1 / (\lambda n)$ for $n$ examples. With 0 there is a
            `ConvergenceWarning` if the classes are linearly separable, since no weights are best.
        tol: The largest entry of the gradient that is good enough.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`.
        fit_intercept: Whether there are biases $b$; they are not penalised.
        warm_start: Whether `fit` starts at the weights of the last fit rather than at zero.
        class_weight: None; a dictionary from labels to the weights of their examples; or
            "balanced", which gives all classes the same total weight.

    Attributes:
        classes_: The labels, sorted.
        coef_: The weights $W$, of shape (classes, d), for two classes too; the rows sum to zero.
        intercept_: The biases $b$, of shape (classes,); they sum to zero.
        gradient_: The largest entry of the gradient where the fit stopped, before the weights were
            rounded to the dtype of the data.
        n_iter_: The number of iterations.
        converged_: Whether that entry is at most `tol`.

    References:
        Bridle, Probabilistic interpretation of feedforward classification network outputs, with
        relationships to statistical pattern recognition, Neurocomputing, 1990.

    Example:
        >>> x = torch.zeros(4, 1, dtype=torch.float64)
        >>> model = SoftmaxRegression().fit(x, torch.tensor([0, 1, 1, 2]))
        >>> model.predict_proba(x[:1])  # without information: the shares of the classes
        tensor([[0.2500, 0.5000, 0.2500]], dtype=torch.float64)
        >>> soft = SoftmaxRegression().fit(x[:1], torch.tensor([[0.2, 0.3, 0.5]]))
        >>> soft.predict_proba(x[:1])
        tensor([[0.2000, 0.3000, 0.5000]], dtype=torch.float64)
    """

    def _targets(self, y: Any, x: Any) -> tuple[Any, Tensor]:
        shape = (y if isinstance(y, Tensor) else np.asarray(y)).shape
        if len(shape) == 2 and shape[1] > 1:
            return _soft(y, x)
        classes, index = as_labels(y, x)
        own = torch.arange(len(classes), device=x.device)[:, None] == index
        return classes, own.to(x.dtype)

    def _log_probabilities(self, z: Tensor) -> Tensor:
        return z.log_softmax(1)


def _soft(y: Any, x: Any) -> tuple[Any, Tensor]:
    """Rows of probabilities, as targets."""
    soft = isinstance(y, Tensor)
    if not soft:
        y = torch.from_numpy(check_array(y, dtype="float64", input_name="y", force_writeable=True))
    check_consistent_length(np.empty(len(x)), y)
    y = probabilities("y", y).detach().to(dtype=x.dtype, device=x.device)
    classes = torch.arange(y.shape[1], device=x.device)
    return classes if soft else classes.cpu().numpy(), y.T.contiguous()
