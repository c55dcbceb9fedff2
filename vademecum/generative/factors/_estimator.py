"""What probabilistic PCA and factor analysis have in common once they are fitted."""

import abc
import math
from typing import Any

import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from vademecum.arguments import floats, whole
from vademecum.estimators import as_rows, like_input
from vademecum.generative.factors._law import (
    FactorLaw,
    FactorPosterior,
    has_gaps,
    posterior,
    rows_by_pattern,
)
from vademecum.randomness import source

__all__ = ["FactorEstimator"]


class FactorEstimator(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, metaclass=abc.ABCMeta
):
    """A fitted law of examples with latent factors: scores, posteriors, draws."""

    n_features_in_: int
    mean_: Any
    components_: Any
    noise_variance_: Any

    @abc.abstractmethod
    def fit(self, X: Any, y: Any = None) -> Any:
        """Find the most likely parameters; `y` is ignored."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.allow_nan = getattr(self, "method", "em") == "em"
        return tags

    def transform(self, X: Any) -> Any:
        """The posterior means of the factors; NaN marks entries that are missing."""
        return self.posterior(X).mean

    def inverse_transform(self, X: Any) -> Any:
        r"""The examples $W z + \mu$ that factors stand for, without noise."""
        check_is_fitted(self)
        z = X if isinstance(X, Tensor) else torch.as_tensor(X)
        z = floats("X", z if z.is_floating_point() else z.double(), ndim=2, empty=True)
        if z.shape[1] != self._n_features_out:
            raise ValueError(f"X must be {self._n_features_out} wide, got shape {tuple(z.shape)}")
        law = self._law(z.device)
        return like_input((z.double() @ law.loadings.mT + law.mean).to(z), X)

    def posterior(self, X: Any) -> FactorPosterior:
        """The normal law of the factors of each example, given what there is of the example.

        Args:
            X: The examples; NaN marks entries that are missing, and all may be.
        """
        x, law = self._asked(X)
        n, k = len(x), law.loadings.shape[1]
        mean = x.new_empty(n, k)
        covariance = None
        for rows in rows_by_pattern(x, k):
            found = posterior(law, rows)
            mean[rows.places] = found.mean.to(x)
            if rows.pattern is None:
                covariance = found.covariance.to(x)
            else:
                covariance = x.new_empty(n, k, k) if covariance is None else covariance
                covariance[rows.places] = found.covariance[rows.pattern].to(x)
        assert covariance is not None
        return FactorPosterior(like_input(mean, X), like_input(covariance, X))

    def score_samples(self, X: Any) -> Any:
        """The log-density of each example; of what is there, where entries are missing (NaN)."""
        x, law = self._asked(X)
        density = x.new_empty(len(x))
        for rows in rows_by_pattern(x, law.loadings.shape[1]):
            density[rows.places] = posterior(law, rows).log_density.to(x)
        return like_input(density, X)

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log-density of the examples; `y` is ignored."""
        x, law = self._asked(X)
        parts = rows_by_pattern(x, law.loadings.shape[1])
        return math.fsum(float(posterior(law, rows).log_density.sum()) for rows in parts) / len(x)

    def get_covariance(self) -> Any:
        r"""The model's covariance $W W^\top + \Psi$."""
        check_is_fitted(self)
        law = self._law(None)
        covariance = law.loadings @ law.loadings.mT + law.noise.diag()
        return like_input(covariance.to(torch.as_tensor(self.components_)), self.components_)

    def sample(self, n: int = 1, *, generator: torch.Generator | None = None) -> Any:
        """Draw examples, of shape (n, d), of the kind, the dtype and the device of the fit.

        Args:
            n: How many.
            generator: Where random numbers come from; torch's global generator by default.
        """
        check_is_fitted(self)
        law = self._law(None)
        whole("n", n, low=1)
        d, k = law.loadings.shape
        place = source(generator, law.mean.device)
        drawn = torch.randn(n, k + d, dtype=torch.float64, **place).to(law.mean.device)
        x = law.mean + drawn[:, :k] @ law.loadings.mT + drawn[:, k:] * law.noise.sqrt()
        return like_input(x.to(torch.as_tensor(self.components_)), self.components_)

    def _asked(self, X: Any) -> tuple[Tensor, FactorLaw]:
        check_is_fitted(self)
        x = examples(self, X)
        return x, self._law(x.device)

    def _law(self, device: torch.device | None) -> FactorLaw:
        parts = (self.mean_, self.components_, self.noise_variance_)
        mean, components, noise = (torch.as_tensor(part, dtype=torch.float64) for part in parts)
        noise = noise.expand(len(mean))
        device = device or mean.device
        return FactorLaw(mean.to(device), components.mT.to(device), noise.to(device))

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)


def examples(estimator: Any, X: Any, *, reset: bool = False) -> Tensor:
    """The rows, real, with NaN where an entry is missing; at least two in `fit`."""
    if not isinstance(X, Tensor):
        least = 2 if reset else 1
        return as_rows(
            estimator, X, reset=reset, ensure_all_finite="allow-nan", ensure_min_samples=least
        )
    x = X.detach()
    real = x.is_floating_point() and x.layout == torch.strided and x.numel() > 0
    gone = real and has_gaps(x)
    kept = x.nan_to_num(nan=0.0, posinf=math.inf, neginf=-math.inf) if gone else x
    if as_rows(estimator, kept, reset=reset).is_complex():
        raise ValueError(f"X must be real, got {X.dtype}")
    if reset and len(x) < 2:
        raise ValueError(f"X must have at least 2 rows, got {len(x)}")
    return x
