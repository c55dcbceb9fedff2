r"""Semi-supervised learning by a generative model: a Gaussian for each class, and EM.

With few labels and many inputs without, maximise both likelihoods jointly,

$$F(\theta) = \sum_{\mathrm{labelled}} \log p(x, y; \theta)
+ \lambda \sum_{\mathrm{unlabelled}} \log p(x; \theta)
- \frac r2 \sum_k \operatorname{tr} \Sigma_k^{-1}, \qquad
p(x, y = k) = \pi_k\, \mathcal N(x; \mu_k, \Sigma_k).$$

The last term keeps covariances from collapsing; $r$ is `reg_covar` times the mean variance of a
feature times the number of examples, where unlabelled ones count $\lambda$. EM gives each
unlabelled input the posterior of its class as a label (E), and takes weighted means and covariances
(M), with $r I$ added to the scatter: neither step lowers $F$. It begins with the means of the
labelled examples.

EM is exact in each step and finds a local maximum. Checked by the claim `semi_supervised`.

References:
    Dempster, Laird and Rubin, Maximum likelihood from incomplete data via the EM algorithm, Journal
    of the Royal Statistical Society B, 1977.
    Nigam, McCallum, Thrun and Mitchell, Text classification from labeled and unlabeled documents
    using EM, Machine Learning, 2000.
"""

import math
from typing import Any, NamedTuple

import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_array, check_is_fitted
from torch import Tensor

from vademecum.arguments import choice, floats, number, whole
from vademecum.estimators import as_labels, as_rows, best_labels, like_input, warn_unconverged

__all__ = ["SemiSupervisedGMM"]

_KINDS = ("spherical", "diag", "tied", "full")


class _Law(NamedTuple):
    """Probabilities of classes, means (k, d), and variances (k, d) or covariances (k, d, d)."""

    priors: Tensor
    means: Tensor
    spreads: Tensor

    def joint(self, x: Tensor) -> Tensor:
        r"""The $\log p(x, y = k)$, of shape (n, k)."""
        gaps = x - self.means[:, None]  # (k, n, d)
        if self.spreads.ndim == 2:
            square = (gaps.square() / self.spreads[:, None]).sum(2)
            volume = self.spreads.log().sum(1)
        else:
            roots = torch.linalg.cholesky(self.spreads)
            square = torch.linalg.solve_triangular(roots, gaps.mT, upper=False).square().sum(1)
            volume = 2 * roots.diagonal(dim1=1, dim2=2).log().sum(1)
        constant = x.shape[1] * math.log(2 * math.pi)
        return (self.priors.log()[:, None] - (square + volume[:, None] + constant) / 2).T

    def penalty(self, r: float, kind: str) -> float:
        """What keeps covariances from collapsing."""
        if self.spreads.ndim == 2:
            return r / 2 * float((1 / self.spreads).sum())
        inverse = torch.linalg.inv(self.spreads[:1] if kind == "tied" else self.spreads)
        return r / 2 * float(inverse.diagonal(dim1=1, dim2=2).sum())


class SemiSupervisedGMM(ClassifierMixin, BaseEstimator):
    r"""A Gaussian for each class, fitted to labelled and unlabelled examples together.

    Given arrays it is a scikit-learn classifier; given tensors it computes on their device and
    answers with tensors. Inputs without labels are an argument of `fit` of their own; with none, or
    with `unlabelled_weight=0`, this is the discriminant analysis of the labelled ones.

    Args:
        covariance: "spherical", "diag" or "full" for each class its own, "tied" for one matrix of
            all; or a positive number, the known variance of round classes.
        unlabelled_weight: The factor $\lambda$ of the unlabelled examples.
        reg_covar: What is added to variances, in units of the mean variance of a feature.
        tol: By how much $F$ must grow for each example, or the fit ends.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`.

    Attributes:
        classes_: The labels, sorted.
        weights_: The probabilities $\pi_k$ of the classes.
        means_: The means $\mu_k$, of shape (k, d).
        covariances_: Of shape (k,), (k, d), (d, d) or (k, d, d); a known variance as it is.
        objective_: The $F$ before each iteration and after the last.
        n_iter_: The number of iterations.
        converged_: Whether the last of them gained no more than `tol`.

    Example:
        >>> x, y = torch.tensor([[-1.0], [1.0]]), torch.tensor([0, 1])
        >>> cloud = torch.tensor([[-3.1], [-2.9], [2.9], [3.1]])
        >>> model = SemiSupervisedGMM(covariance=1.0).fit(x, y, unlabelled=cloud)
        >>> model.means_.flatten()  # (-1 - 3.1 - 2.9) / 3 and its mirror image
        tensor([-2.3333,  2.3333])
        >>> model.predict(torch.tensor([[0.1]]))
        tensor([1])
    """

    n_features_in_: int

    def __init__(
        self,
        *,
        covariance: Any = "spherical",
        unlabelled_weight=1.0,
        reg_covar=1e-6,
        tol=1e-6,
        max_iter=200,
    ):
        self.covariance = covariance
        self.unlabelled_weight = unlabelled_weight
        self.reg_covar = reg_covar
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any, unlabelled: Any = None) -> "SemiSupervisedGMM":
        """Learn from labelled examples, and from inputs without labels if there are any.

        Raises:
            ValueError: If the data are not finite, not labelled one by one, or of one class; if a
                parameter is out of range.
        """
        weight = number("unlabelled_weight", self.unlabelled_weight, low=0)
        number("tol", self.tol, above=0)
        whole("max_iter", self.max_iter, low=1)
        number("reg_covar", self.reg_covar, above=0)
        self._kind()
        x = as_rows(self, X, reset=True).detach()
        if x.is_complex():
            raise ValueError(f"X must be real, got {x.dtype}")
        self.classes_, index = as_labels(y, x)
        own = torch.nn.functional.one_hot(index, len(self.classes_)).double()
        rows, dtype = x.double(), x.dtype
        others = rows[:0] if unlabelled is None else self._others(unlabelled).to(rows)
        law = self._ascend(torch.cat([rows, others[: None if weight else 0]]), own, weight)
        self._law = law
        spreads = law.spreads
        if self._kind() == "tied":
            spreads = spreads[0]
        elif self._kind() in ("spherical", "known"):
            spreads = spreads[:, 0]
        self.weights_, self.means_ = (like_input(v.to(dtype), X) for v in law[:2])
        known = self._kind() == "known"
        self.covariances_ = float(self.covariance) if known else like_input(spreads.to(dtype), X)
        return self

    def _others(self, unlabelled: Any) -> Tensor:
        if not isinstance(unlabelled, Tensor):
            unlabelled = torch.tensor(check_array(unlabelled, input_name="unlabelled")).double()
        return floats("unlabelled", unlabelled.detach(), ndim=2, width=self.n_features_in_)

    def _kind(self) -> str:
        if isinstance(self.covariance, str):
            return choice("covariance", self.covariance, _KINDS)
        number("covariance", self.covariance, above=0)
        return "known"

    def _ascend(self, x: Tensor, own: Tensor, weight: float) -> _Law:
        n = len(own)
        counts = torch.full((len(x),), weight, dtype=x.dtype, device=x.device)
        counts[:n] = 1
        scale = float(x.var(0, correction=0).mean()) or 1.0
        r = 0.0 if self._kind() == "known" else self.reg_covar * scale * float(counts.sum())
        law, path, gain = self._start(x, own), [], math.inf
        for k in range(self.max_iter + 1):
            logs = law.joint(x)
            whole = logs.logsumexp(1)
            value = float((own * logs[:n]).sum() + weight * whole[n:].sum())
            path.append(value - law.penalty(r, self._kind()))
            gain = path[-1] - path[-2] if k else math.inf
            if gain <= self.tol * len(x) or k == self.max_iter:
                break
            shares = (logs - whole[:, None]).exp()
            shares[:n] = own
            law = self._fitted(x, shares * counts[:, None], r)
        self.n_iter_, self.converged_ = len(path) - 1, gain <= self.tol * len(x)
        self.objective_ = torch.tensor(path, dtype=torch.float64)
        if not self.converged_:
            warn_unconverged(f"max_iter={self.max_iter} reached: the last step gained {gain:.3g}")
        return law

    def _start(self, x: Tensor, own: Tensor) -> _Law:
        """Means of the labelled examples; one covariance, theirs with a share of that of all."""
        n, k = own.shape
        priors, means = own.mean(0), (own.T @ x[:n]) / own.sum(0)[:, None]
        gaps, around = x[:n] - own @ means, x - x.mean(0)
        joint = (gaps.T @ gaps + around.T @ around / len(x)) / (n + 1)
        level = float(joint.diagonal().mean()) or 1.0
        joint = joint + self.reg_covar * level * torch.eye(x.shape[1]).to(x)
        if self._kind() in ("tied", "full"):
            return _Law(priors, means, joint.expand(k, -1, -1))
        spreads = joint.diagonal().expand(k, -1)
        if self._kind() != "diag":
            spreads = torch.full_like(spreads, level)
        if self._kind() == "known":
            spreads = torch.full_like(spreads, self.covariance)
        return _Law(priors, means, spreads)

    def _fitted(self, x: Tensor, shares: Tensor, r: float) -> _Law:
        """The law that maximises the objective for given shares of classes in examples."""
        d, kind, counts = x.shape[1], self._kind(), shares.sum(0)
        means = (shares.T @ x) / counts[:, None]
        priors = counts / counts.sum()
        if kind == "known":
            return _Law(priors, means, torch.full_like(means, self.covariance))
        if kind in ("spherical", "diag"):
            columns = zip(shares.T, means, strict=True)
            squares = torch.stack([s @ (x - mean).square() for s, mean in columns])
            if kind == "spherical":
                squares = squares.mean(1, keepdim=True).expand(-1, d)
            return _Law(priors, means, (squares + r) / counts[:, None])
        gaps = x - means[:, None]
        scatter = (gaps * shares.T[..., None]).mT @ gaps
        eye = torch.eye(d).to(x)
        if kind == "tied":
            one = (scatter.sum(0) + r * eye) / counts.sum()
            return _Law(priors, means, one.expand(len(means), -1, -1))
        return _Law(priors, means, (scatter + r * eye) / counts[:, None, None])

    def _joint(self, X: Any) -> tuple[Tensor, Tensor]:
        check_is_fitted(self)
        x = as_rows(self, X)
        law = _Law(*(v.to(x.device) for v in self._law))
        return law.joint(x.double()), x

    def predict(self, X: Any) -> Any:
        """The labels of the most probable classes."""
        logs, _ = self._joint(X)
        return best_labels(self.classes_, logs)

    def predict_log_proba(self, X: Any) -> Any:
        """The logarithms of the classes' probabilities, finite also where those underflow."""
        logs, x = self._joint(X)
        logs = logs.log_softmax(1).to(x.dtype)
        p = logs.exp()
        return like_input(torch.where(p > 0.5, p.log(), logs), X)  # of 1 exactly 0

    def predict_proba(self, X: Any) -> Any:
        """The classes' probabilities, of shape (n, classes)."""
        logs, x = self._joint(X)
        return like_input(logs.softmax(1).to(x.dtype), X)

    def score_samples(self, X: Any) -> Any:
        r"""The $\log p(x)$ of inputs."""
        logs, x = self._joint(X)
        return like_input(logs.logsumexp(1).to(x.dtype), X)
