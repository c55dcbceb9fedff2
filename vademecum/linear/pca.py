r"""Principal component analysis.

With the mean $\mu$ of the rows of $X \in \mathbb R^{n \times d}$ and
$X - 1 \mu^\top = U \Sigma V^\top$, $\sigma_1 \ge \sigma_2 \ge \dots$, the $i$-th principal
direction is the column $v_i$, along which the data have variance

$$\lambda_i = \frac{\sigma_i^2}{n - 1}, \qquad z_i = v_i^\top (x - \mu).$$

The first $k$ directions span the subspace of least squared reconstruction error (the claims
`eckart_young` and `autoencoder_pca`). Signs are chosen such that the largest entry of $v_i$ is
positive. Exact up to rounding, unless the randomised solver is asked for; what each solver's
rounding amounts to is said in `vademecum.linear._principal`.
"""

import math
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from vademecum.arguments import choice, floats, whole
from vademecum.estimators import as_rows, like_input
from vademecum.linear._principal import SOLVERS, Principal, principal_directions

__all__ = ["PCA"]


class PCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Principal components, exact or randomised.

    Given arrays it is a scikit-learn transformer; given tensors it works on their device and
    answers with tensors. `svd_solver="auto"` is always exact: the eigenpairs of the covariance
    matrix where there are ten times as many rows as columns or more, else a singular value
    decomposition. The covariance squares the singular values, so those below $\sqrt\epsilon$ of the
    largest are rounding there; ask for "full" where they matter.

    Args:
        n_components: How many to keep; all min(n, d) by default; a number between 0 and 1 keeps as
            many as explain at least that share of the variance.
        whiten: Whether to scale components to variance one.
        svd_solver: "auto", "full", "covariance_eigh" or "randomized".
        n_oversamples: By how many columns the randomised solver's block is wider than needed.
        iterated_power: How many powers of the covariance the randomised solver looks at. Where
            they would cost more than the covariance matrix, it takes that and is exact.
        random_state: Where random numbers come from, as in scikit-learn.

    Attributes:
        components_: The directions $v_i$ as rows, of shape (k, d).
        explained_variance_: The variances $\lambda_i$.
        explained_variance_ratio_: Their shares of the total variance.
        singular_values_: The $\sigma_i$.
        mean_: The mean $\mu$.
        noise_variance_: The mean of the min(n, d) - k variances that were left out.
        n_components_: The number k.
        n_samples_: The number n.

    References:
        Pearson, On lines and planes of closest fit to systems of points in space, Philosophical
        Magazine, 1901.
        Musco, Musco, Randomized block Krylov methods for stronger and faster approximate singular
        value decomposition, NeurIPS, 2015.

    Example:
        >>> x = torch.tensor([[1.0, 1.0], [3.0, 1.0], [1.0, 2.0], [3.0, 2.0]])
        >>> pca = PCA(1).fit(x)
        >>> pca.components_, pca.explained_variance_ratio_  # variances 4/3 and 1/3
        (tensor([[1., 0.]]), tensor([0.8000]))
        >>> pca.inverse_transform(pca.transform(x[:1]))
        tensor([[1.0000, 1.5000]])
    """

    n_features_in_: int

    def __init__(
        self,
        n_components: Any = None,
        *,
        whiten=False,
        svd_solver="auto",
        n_oversamples=10,
        iterated_power=4,
        random_state: Any = None,
    ):
        self.n_components = n_components
        self.whiten = whiten
        self.svd_solver = svd_solver
        self.n_oversamples = n_oversamples
        self.iterated_power = iterated_power
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(self, X: Any, y: Any = None) -> "PCA":
        """Find the principal directions; `y` is ignored.

        Raises:
            ValueError: If the data are not finite, not real or a single row; if a parameter is out
                of range.
        """
        x = as_rows(self, X, reset=True, ensure_min_samples=2).detach()
        if x.is_complex():
            raise ValueError(f"X must be real, got {x.dtype}")
        if len(x) < 2:
            raise ValueError(f"X must have at least 2 rows, got {len(x)}")
        found = self._find(x)
        variances = found.values.double().square() / (len(x) - 1)
        total = found.total / (len(x) - 1)
        k, rest = len(variances), min(x.shape) - len(variances)
        self.n_components_, self.n_samples_ = k, len(x)
        self.noise_variance_ = found.rest / (len(x) - 1) / rest if rest else 0.0
        shares = variances / total if total > 0 else torch.zeros_like(variances)
        self.mean_, self.components_ = like_input(found.mean, X), like_input(found.directions, X)
        self.singular_values_ = like_input(found.values, X)
        self.explained_variance_ = like_input(variances.to(x), X)
        self.explained_variance_ratio_ = like_input(shares.to(x), X)
        return self

    def transform(self, X: Any) -> Any:
        """The components $z_i$, divided by their standard deviations if `whiten`."""
        check_is_fitted(self)
        x = as_rows(self, X)
        mean, directions = self._fitted(x)
        z = (x - mean) @ directions.mT
        return like_input(z / self._scale(x) if self.whiten else z, X)

    def inverse_transform(self, X: Any) -> Any:
        """The points with the given components, in the subspace that was found."""
        check_is_fitted(self)
        z = X if isinstance(X, Tensor) else torch.as_tensor(X)
        z = floats("X", z if z.is_floating_point() else z.double(), ndim=2)
        z = floats("X", z, width=self.n_components_)
        mean, directions = self._fitted(z)
        return like_input((z * self._scale(z) if self.whiten else z) @ directions + mean, X)

    def get_covariance(self) -> Any:
        r"""The model's covariance $V \operatorname{diag}(\lambda - \sigma^2) V^\top + \sigma^2 I$.

        The $\sigma^2$ is `noise_variance_`, and the model probabilistic PCA (see `score_samples`).
        """
        check_is_fitted(self)
        v, variances = (torch.as_tensor(a) for a in (self.components_, self.explained_variance_))
        excess = (variances - self.noise_variance_).clamp(min=0)
        noise = self.noise_variance_ * torch.eye(v.shape[1]).to(v)
        return like_input((v.mT * excess) @ v + noise, self.components_)

    def score_samples(self, X: Any) -> Any:
        r"""The log-likelihood of each example under probabilistic PCA.

        That is the normal distribution with the mean $\mu$ and the covariance of
        `get_covariance`, whose directions beyond the first k all have the variance $\sigma^2$.

        Raises:
            ValueError: If that variance, or one of the first k, is zero: there is no density.

        References:
            Tipping and Bishop, Probabilistic principal component analysis, Journal of the Royal
            Statistical Society B, 1999.
        """
        check_is_fitted(self)
        x = as_rows(self, X)
        mean, directions = self._fitted(x)
        sigma = torch.as_tensor(self.singular_values_).to(x.device).double()
        variances, noise = sigma.square() / (self.n_samples_ - 1), self.noise_variance_
        rest = self.n_features_in_ - self.n_components_
        if not (variances > 0).all() or (rest and not noise > 0):
            raise ValueError("n_components must leave variance to all directions, got a zero")
        z = (x - mean).double()
        scores = z @ directions.mT.double()
        distance = (scores.square() / variances).sum(1)
        volume = variances.log().sum() + self.n_features_in_ * math.log(2 * math.pi)
        if rest:
            left = z - scores @ directions.double()  # squares' difference would lose it in rounding
            distance = distance + left.square().sum(1) / noise
            volume = volume + rest * math.log(noise)
        return like_input((-(distance + volume) / 2).to(x), X)

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log-likelihood of the examples under probabilistic PCA; `y` is ignored."""
        return float(self.score_samples(X).mean())

    def _find(self, x: Tensor) -> Principal:
        choice("svd_solver", self.svd_solver, SOLVERS)
        wanted, most = self.n_components, min(x.shape)
        share = float(wanted) if isinstance(wanted, float | np.floating) else None
        if share is not None and not 0 < share < 1:
            raise ValueError(f"n_components must be between 0 and 1 as a share, got {share}")
        free = wanted is None or share is not None
        k = most if free else whole("n_components", wanted, low=1, high=most)
        options: dict[str, Any] = {
            "oversamples": whole("n_oversamples", self.n_oversamples, low=0),
            "power": whole("iterated_power", self.iterated_power, low=0),
        }
        if self.svd_solver == "randomized":
            seed = check_random_state(self.random_state).randint(2**31 - 1)
            options["generator"] = torch.Generator().manual_seed(seed)
        found = principal_directions(x, k, centre=True, solver=self.svd_solver, **options)
        if share is None:
            return found
        reached = found.values.double().square().cumsum(0) >= share * found.total
        k = min(int((~reached).sum()) + 1, most)
        rest = float(found.values[k:].double().square().sum())
        return found._replace(directions=found.directions[:k], values=found.values[:k], rest=rest)

    def _fitted(self, like: Tensor) -> tuple[Tensor, Tensor]:
        return torch.as_tensor(self.mean_).to(like), torch.as_tensor(self.components_).to(like)

    def _scale(self, like: Tensor) -> Tensor:
        """The standard deviations; one where there is none."""
        scale = torch.as_tensor(self.singular_values_).to(like) / (self.n_samples_ - 1) ** 0.5
        floor = torch.finfo(like.dtype).eps * scale.amax()
        return scale.clamp(min=torch.where(floor > 0, floor, 1.0))

    @property
    def _n_features_out(self) -> int:
        return self.n_components_
