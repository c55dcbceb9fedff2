r"""Bagging: networks trained on samples of the examples drawn with replacement, and averaged.

Each of $K$ members learns from $n$ examples drawn from the $n$ given ones with replacement; it
misses an example with probability $(1 - 1/n)^n \to 1/e$. Predictions are averaged, for classes the
probabilities $p(y \mid x) = \frac1K \sum_k p(y \mid x; \theta^k)$. The average of equally
correlated predictors of variance $s^2$ has the variance $\rho s^2 + \frac{1 - \rho}{K} s^2$. An
example is predicted *out of bag* by the members that missed it, which costs no held-out data.

All members are trained at once (`vademecum.models.StackedMembers`). The claim is `bagging`.
"""

from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import ClassifierTags, RegressorTags, check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.arguments import choice, number, whole
from vademecum.estimators import (
    as_labels,
    as_rows,
    as_targets,
    best_labels,
    labels_among,
    like_input,
)
from vademecum.models import StackedMembers, mlp
from vademecum.randomness import own_randomness

__all__ = ["Bagging"]

_TASKS = ("classification", "regression")


def _classifies(estimator: Any) -> bool:
    return estimator.task == "classification"


class Bagging(BaseEstimator):
    r"""An ensemble of networks of any kind, each trained on its own bootstrap sample.

    Given arrays it is a scikit-learn estimator; given tensors it learns on their device and answers
    with tensors. Members are trained at once by `torch.func.vmap`; what that cannot do, such as
    batch normalisation with its statistics, is trained one by one with a `SlowPathWarning`.

    Args:
        module: What makes a network: a function of the number of features and the number of outputs
            (classes, for which they are logits, or targets). By default one hidden layer of 32
            units.
        task: "classification" or "regression".
        members: The number $K$ of networks.
        epochs: How often each network sees its sample.
        batch_size: About how many examples a step takes.
        learning_rate: The step size of AdamW.
        weight_decay: Its decay.
        random_state: Where random numbers come from, as in scikit-learn: for samples, initial
            weights, orders and dropout.

    Attributes:
        classes_: The labels, sorted, for classification.
        estimators_: The trained networks, in evaluation mode.
        estimators_samples_: The examples that each of them learnt from, of shape (members, n).
        oob_prediction_: What the members that missed an example predict of it on average:
            probabilities, or targets; NaN where none did.
        oob_score_: How good that is, as `score` counts it.
        loss_: The mean training loss of each member in the last epoch.

    References:
        Breiman, Bagging predictors, Machine Learning, 1996.

    Example:
        >>> x = torch.linspace(-1, 1, 40)[:, None]
        >>> model = Bagging(members=5, epochs=30, random_state=0).fit(x, (x[:, 0] > 0).long())
        >>> model.predict(torch.tensor([[-0.8], [0.8]])).tolist(), len(model.estimators_)
        ([0, 1], 5)
        >>> model.oob_score_ > 0.8
        True
    """

    n_features_in_: int

    def __init__(
        self,
        module: Any = None,
        *,
        task="classification",
        members=10,
        epochs=100,
        batch_size=32,
        learning_rate=1e-2,
        weight_decay=0.0,
        random_state=None,
    ):
        self.module = module
        self.task = task
        self.members = members
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        if _classifies(self):
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
        else:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
            tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> "Bagging":
        """Train all members.

        Raises:
            ValueError: If the data are not finite or not labelled one by one; if a parameter is out
                of range; if the training diverges.
        """
        self._check_parameters()
        x = as_rows(self, X, reset=True).detach()
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        if _classifies(self):
            self.classes_, targets = as_labels(y, x)
            outputs = len(self.classes_)
        else:
            targets = as_targets(y, x)
            self._single = targets.ndim == 1
            targets = targets.reshape(len(x), -1)
            outputs = targets.shape[1]
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with own_randomness(seed), torch.enable_grad():
            stack = StackedMembers(self._networks(x, outputs), outputs=outputs)
            rows = torch.randint(len(x), (self.members, len(x))).to(x.device)
            self.loss_ = like_input(self._train(stack, x, targets, rows), X)
        stack.write_back()
        self._stack, self.estimators_ = stack, stack.modules
        self.estimators_samples_ = like_input(rows, X)
        self._score_out_of_bag(X, x, y, rows)
        return self

    def _check_parameters(self) -> None:
        choice("task", self.task, _TASKS)
        for name in ("members", "epochs", "batch_size"):
            whole(name, getattr(self, name), low=1)
        number("learning_rate", self.learning_rate, above=0)
        number("weight_decay", self.weight_decay, low=0)

    def _networks(self, x: Tensor, outputs: int) -> list[nn.Module]:
        make = self.module or (lambda d, k: mlp([d, 32, k]))
        made = [make(x.shape[1], outputs) for _ in range(self.members)]
        if not all(isinstance(m, nn.Module) for m in made):
            raise ValueError(f"module must make an nn.Module, got {type(made[0]).__name__}")
        return [m.to(x.device, x.dtype) for m in made]

    def _train(self, stack: StackedMembers, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        """Train, and give the members' losses in the last epoch."""
        optimiser = torch.optim.AdamW(
            list(stack.parameters.values()), lr=self.learning_rate, weight_decay=self.weight_decay
        )
        n, loss = len(x), F.cross_entropy if _classifies(self) else F.mse_loss
        losses: list[Tensor] = []
        for _ in range(self.epochs):
            order = torch.rand(rows.shape).argsort(1).to(rows.device)
            losses = []
            for some in rows.gather(1, order).tensor_split(max(1, round(n / self.batch_size)), 1):
                each = stack.losses(x[some], y[some], loss)
                optimiser.zero_grad()
                each.sum().backward()
                optimiser.step()
                losses.append(each.detach())
        found = torch.stack(losses).mean(0)
        if not found.isfinite().all():
            k = int((~found.isfinite()).nonzero()[0])
            raise ValueError(f"learning_rate must be smaller: the loss of member {k} is not finite")
        return found

    def _score_out_of_bag(self, X: Any, x: Tensor, y: Any, rows: Tensor) -> None:
        missed = torch.ones_like(rows, dtype=torch.bool).scatter(1, rows, False)
        weight = missed.to(x.dtype) / missed.sum(0)  # NaN where all have seen an example
        found = torch.einsum("kn,knc->nc", weight, self._predictions(x))
        known = missed.any(0)
        self.oob_prediction_ = like_input(self._squeezed(found), X)
        self.oob_score_ = float("nan")
        if known.any():
            some = y[known] if isinstance(y, Tensor) else _rows_of(y, known)
            self.oob_score_ = self._score(found[known], some, x[known])

    def _predictions(self, x: Tensor) -> Tensor:
        z = self._stack(x)
        return z.softmax(-1) if _classifies(self) else z

    def _squeezed(self, found: Tensor) -> Tensor:
        return found[..., 0] if not _classifies(self) and self._single else found

    def _asked(self, X: Any) -> Tensor:
        check_is_fitted(self)
        x = as_rows(self, X)
        return x.to(next(iter(self._stack.parameters.values())))

    def predict_members(self, X: Any) -> Any:
        """What each member predicts: probabilities (members, n, classes), or targets."""
        return like_input(self._squeezed(self._predictions(self._asked(X))), X)

    @available_if(_classifies)
    def predict_proba(self, X: Any) -> Any:
        """The averages of the members' probabilities, of shape (n, classes)."""
        return like_input(self._predictions(self._asked(X)).mean(0), X)

    def predict(self, X: Any) -> Any:
        """The labels that are most probable on average, or the averages of the targets."""
        mean = self._predictions(self._asked(X)).mean(0)
        if _classifies(self):
            return best_labels(self.classes_, mean)
        return like_input(self._squeezed(mean), X)

    def score(self, X: Any, y: Any) -> float:
        """The share of right answers, or $R^2$, averaged over targets.

        For targets that are all the same $R^2$ is 1 if they are met and 0 if not, as scikit-learn
        has it.
        """
        x = self._asked(X)
        return self._score(self._predictions(x).mean(0), y, x)

    def _score(self, found: Tensor, y: Any, x: Tensor) -> float:
        if _classifies(self):
            return float((found.argmax(1) == labels_among(self.classes_, y, x)).double().mean())
        y = as_targets(y, x).reshape(len(x), -1).double()
        spread, rest = (y - y.mean(0)).square().sum(0), (found - y).square().sum(0)
        share = torch.where(spread > 0, rest / spread, (rest > 0).double())
        return float((1 - share).mean())


def _rows_of(y: Any, known: Tensor) -> Any:
    return np.asarray(y)[known.cpu().numpy()]
