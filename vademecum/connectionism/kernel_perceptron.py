r"""The kernel perceptron: the rule in its dual form, with inner products only.

The weights of a perceptron that started at zero are $w = \sum_i \alpha_i y_i x_i$, where $\alpha_i$
counts the mistakes on example $i$. So the examples are needed only in inner products, and these can
be those of a feature space, $k(x, x') = \langle \phi(x), \phi(x') \rangle$:

$$f(x) = \sum_i \alpha_i y_i k(x_i, x) + b, \qquad
y_i f(x_i) \le 0 \ \Longrightarrow\ \alpha_i \leftarrow \alpha_i + 1, \quad b \leftarrow b + y_i.$$

With $k(x, x') = \langle x, x' \rangle$ it makes the same mistakes in the same order as
`vademecum.connectionism.Perceptron`, up to the rounding of the scores; the claim `perceptron_span`
checks it in integers.

Examples are shown in blocks, whose corrections are a cascade (`vademecum.connectionism._cascade`).
The kernel matrix of up to 4096 examples is kept. Of more, its rows are computed strip by strip
against the examples that were mistaken before, in every epoch: the memory is that of one strip, the
time that of $n$ times the number of mistaken examples.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from vademecum.arguments import choice, number, whole
from vademecum.arrays import one_blas_thread, portions, views
from vademecum.connectionism._cascade import cascade
from vademecum.connectionism._epochs import corrections, learn
from vademecum.estimators import (
    as_labels,
    as_rows,
    best_labels,
    like_input,
    one_versus_rest,
    precision,
)

__all__ = ["KernelPerceptron"]

BLOCK, STRIP = 32, 256  # examples shown at once, and those whose kernel values are computed at once
ENTRIES = 4096**2  # kernel values held at once, unless the memory is limited
COPIES = 4  # of a block of kernel values, that computing it takes


class KernelPerceptron(ClassifierMixin, BaseEstimator):
    r"""The perceptron in the feature space of a kernel, for two classes or more.

    Given arrays it is a scikit-learn estimator; given tensors it learns on their device and
    answers with tensors. A score of zero is answered with the first of two classes. Half precision
    is learnt in single precision, numbers whose products leave its range in double precision.

    Args:
        kernel: "rbf", $e^{-\gamma \|x - x'\|^2}$; "poly", $(\gamma \langle x, x' \rangle + c)^p$;
            "linear", $\langle x, x' \rangle$; or a function of two tensors with rows $x$ and $x'$
            that returns the matrix of all $k(x, x')$.
        gamma: The $\gamma$; one over the number of features by default.
        degree: The $p$.
        coef0: The $c$.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Each is an epoch,
            which shows all examples once.
        tol: A unit also stops when its mean loss in an epoch has not improved by `tol` for
            `n_iter_no_change` epochs in a row; None waits for an epoch without mistakes.
        n_iter_no_change: See `tol`.
        shuffle: Whether each epoch shows the examples in an order of its own.
        random_state: Where random numbers come from, as in scikit-learn.
        fit_intercept: Whether there is a bias $b$.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest. Kernels
            of one's own may take more.

    Attributes:
        classes_: The labels, sorted.
        alpha_: The number of mistakes on each example, of shape (n,) for two classes, else
            (n, classes).
        support_: The indices of the examples with a mistake.
        support_vectors_: These examples.
        dual_coef_: Their $\alpha_i y_i$, of shape (1, support vectors) or (classes, ...).
        intercept_: The biases, of shape (1,) or (classes,).
        mistakes_: The number of updates; for more than two classes one for each.
        n_iter_: The number of epochs, of the unit that took the most.
        converged_: Whether every unit stopped before `max_iter`.

    References:
        Aizerman, Braverman and Rozonoer, Theoretical foundations of the potential function method
        in pattern recognition learning, Automation and Remote Control, 1964.

    Example:
        >>> x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
        >>> xor = KernelPerceptron(kernel="poly", degree=2, gamma=1.0, shuffle=False, tol=None)
        >>> xor.fit(x, torch.tensor([0, 1, 1, 0])).predict(x)
        tensor([0, 1, 1, 0])
    """

    n_features_in_: int
    mistakes_: Any

    def __init__(
        self,
        *,
        kernel: Any = "rbf",
        gamma=None,
        degree=3,
        coef0=1.0,
        max_iter=1000,
        tol: Any = 1e-3,
        n_iter_no_change=5,
        shuffle=True,
        random_state=None,
        fit_intercept=True,
        memory: Any = None,
    ):
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.shuffle = shuffle
        self.random_state = random_state
        self.fit_intercept = fit_intercept
        self.memory = memory

    def fit(self, X: Any, y: Any) -> "KernelPerceptron":
        """Learn from the examples, starting at zero.

        Raises:
            ValueError: If the data are not finite, not labelled one by one, or of one class; if a
                parameter is out of range; if the kernel gives something else than a finite matrix.
        """
        x = as_rows(self, X, reset=True).detach()
        self.classes_, index = as_labels(y, x)
        x = x.to(precision(x))
        y_units = one_versus_rest(index, len(self.classes_), x.dtype)
        units = _Units(x, y_units, self._kernel(), float(self.fit_intercept), self._entries(x))
        with one_blas_thread():
            run = learn(
                units.epoch,
                *y_units.shape,
                max_iter=self.max_iter,
                tol=self.tol,
                n_iter_no_change=self.n_iter_no_change,
                shuffle=self.shuffle,
                random_state=self.random_state,
            )
        support = units.coef.any(1).nonzero()[:, 0]
        alpha = (units.coef * y_units).long()
        binary = len(self.classes_) == 2
        self.n_iter_, self.converged_ = run.n_iter, run.converged
        self.mistakes_ = run.mistakes.item() if binary else like_input(run.mistakes, X)
        self.alpha_ = like_input(alpha[:, 0] if binary else alpha, X)
        self.support_ = like_input(support, X)
        self.support_vectors_ = like_input(x[support], X)
        self.dual_coef_ = like_input(units.coef[support].T.contiguous(), X)
        self.intercept_ = like_input(units.b, X)
        return self

    def decision_function(self, X: Any) -> Any:
        """The scores: of the second class if there are two, else one column for each class."""
        check_is_fitted(self)
        x = as_rows(self, X)
        x = x.to(precision(x))
        fitted = self.support_vectors_, self.dual_coef_, self.intercept_
        vectors, coef, b = (torch.as_tensor(v).to(x) for v in fitted)
        k, entries = self._kernel(), self._entries(x) or ENTRIES
        parts = portions(len(x), each=len(vectors), memory=entries)
        scores = torch.cat([k(x[part], vectors) @ coef.T + b for part in parts])
        return like_input(scores[:, 0] if len(coef) == 1 else scores, X)

    def predict(self, X: Any) -> Any:
        """The labels of the classes that score best."""
        scores = torch.as_tensor(self.decision_function(X))
        return best_labels(self.classes_, scores)

    def _entries(self, x: Tensor) -> int | None:
        """How many kernel values may be held at once, if that is limited."""
        if self.memory is None:
            return None
        return max(1, whole("memory", self.memory, low=1) // (COPIES * x.element_size()))

    def _kernel(self) -> Callable[[Tensor, Tensor], Tensor]:
        kernel: Any = self.kernel
        if callable(kernel):
            return partial(_checked, kernel)
        choice("kernel", kernel, ("rbf", "poly", "linear"))
        gamma = 1 / self.n_features_in_ if self.gamma is None else self.gamma
        number("gamma", gamma, above=0)
        if kernel == "rbf":
            return partial(_checked, lambda x, z: torch.exp(-gamma * _squared_distances(x, z)))
        if kernel == "linear":
            return partial(_checked, lambda x, z: x @ z.T)
        p, c = whole("degree", self.degree, low=1), number("coef0", self.coef0, low=0)
        return partial(_checked, lambda x, z: (gamma * (x @ z.T) + c) ** p)


class _Units:
    r"""Dual perceptrons that learn side by side: `coef` holds their $\alpha_i y_i$, (n, units)."""

    def __init__(
        self, x: Tensor, y: Tensor, kernel: Callable[..., Tensor], bias: float, entries: int | None
    ):
        self.x, self.y, self.kernel, self.bias = x, y, kernel, bias
        self.coef, self.b = torch.zeros_like(y), torch.zeros_like(y[0])
        n, strip = len(x), STRIP * len(x)
        self.gram = kernel(x, x) if n**2 <= (entries or ENTRIES) else None
        self.strips = portions(n, each=n, memory=min(entries or strip, strip))

    def epoch(self, order: Tensor | None, active: Tensor) -> tuple[Tensor, Tensor]:
        """Show all examples once; the mistakes and the summed loss of each active unit."""
        device = self.x.device
        rows = torch.arange(len(self.x)) if order is None else order
        active = active.to(device)
        coef, b, y = self.coef[:, active], self.b[active], self.y[:, active]
        mistakes = torch.zeros_like(active)
        loss = torch.zeros_like(b, dtype=torch.float64)
        rows = rows.to(device)
        for i in (rows[strip] for strip in self.strips):
            drive, gram = self._meet(i, coef)
            c, scores = _show(drive + b, gram + self.bias, y[i])
            coef[i] += c
            b += self.bias * c.sum(0)
            mistakes += c.count_nonzero(0)
            loss -= (c * scores).sum(0, dtype=torch.float64)
        self.coef[:, active], self.b[active] = coef, b
        return mistakes.cpu(), loss.cpu()

    def _meet(self, i: Tensor, coef: Tensor) -> tuple[Tensor, Tensor]:
        """The scores of examples by the coefficients so far, and their kernel matrix."""
        if self.gram is not None:
            rows = self.gram[i]
            return rows @ coef, rows[:, i]
        before = coef.any(1).nonzero()[:, 0]
        drive = self.kernel(self.x[i], self.x[before]) @ coef[before]
        return drive, self.kernel(self.x[i], self.x[i])


def _show(drive: Tensor, gram: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Show a strip of examples block by block; the corrections and scores."""
    c, scores = torch.zeros_like(y), drive.clone()
    lower_, y_, c_, scores_ = views(gram.tril(-1), y, c, scores)
    for start in range(0, len(y), BLOCK):
        now = slice(start, start + BLOCK)
        scores_[now] += lower_[now, :start] @ c_[:start]
        c_[now] = cascade(partial(corrections, y_[now]), scores_[now], lower_[now, now])
        scores_[now] += lower_[now, now] @ c_[now]
    return c, scores


def _squared_distances(x: Tensor, z: Tensor) -> Tensor:
    centre = z.mean(0)  # far from the origin the difference of squares would lose all digits
    x, z = x - centre, z - centre
    squares = x.square().sum(1, keepdim=True) + z.square().sum(1)
    return (squares - 2 * x @ z.T).clamp(min=0)


def _checked(kernel: Callable[..., Any], x: Tensor, z: Tensor) -> Tensor:
    k = kernel(x, z)
    if not isinstance(k, Tensor) or k.shape != (len(x), len(z)):
        shape = tuple(k.shape) if isinstance(k, Tensor) else type(k).__name__
        raise ValueError(f"kernel must give a tensor of shape ({len(x)}, {len(z)}), got {shape}")
    if not k.isfinite().all():
        raise ValueError("kernel must give finite values, got an infinity or NaN")
    return k
