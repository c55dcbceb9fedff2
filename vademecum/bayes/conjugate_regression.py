r"""Bayesian linear regression: the one network whose posterior, evidence and predictions are known.

With $y = X w + b + \epsilon$, noise $\epsilon \sim \mathcal N(0, \delta^2 I)$, the prior $w \sim
\mathcal N(0, \sigma^2 I)$ and a flat one (of density 1) on the intercept $b$, the centred rows $Z$
and targets $t$ give

$$\Sigma = \left(\frac{Z^\top Z}{\delta^2} + \frac I{\sigma^2}\right)^{-1}, \quad m = \Sigma
\frac{Z^\top t}{\delta^2}, \quad w \mid S \sim \mathcal N(m, \Sigma), \quad b \mid w, S \sim
\mathcal N\left(\bar y - w^\top \bar x, \frac{\delta^2}n\right),$$

so that a new answer has the law $\mathcal N(x^\top m + b,\ \delta^2 + \frac{\delta^2}n + (x - \bar
x)^\top \Sigma (x - \bar x))$, and the evidence is

$$\log p(S) = -\tfrac{n'}2 \log(2 \pi \delta^2) - \tfrac{\log n}2 - \frac{\|t - Z m\|^2}{2
\delta^2} - \frac{\|m\|^2}{2 \sigma^2} - \tfrac12 \sum_j \log\left(1 + \frac{\sigma^2
s_j^2}{\delta^2}\right)$$

with the singular values $s_j$ of $Z$ and $n' = n - 1$; without intercept $n' = n$ and there is no
$\log n$. Where $\sigma$ or $\delta$ is not given they maximise it: with $\gamma = \sum_j s_j^2 /
(s_j^2 + \delta^2 / \sigma^2)$, at the maximum $\sigma^2 = \|m\|^2 / \gamma$ and $\delta^2 = \|t - Z
m\|^2 / (n' - \gamma)$, which are iterated (MacKay); where $\sigma$ falls towards zero it is held at
a thousandth of what data could tell from it. Exact up to rounding otherwise, in double precision. A
weight $s_i$ is the example $s_i$ times. The claims are `posterior` and `posterior_predictive`.
"""

import math
from typing import Any, NamedTuple

import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.estimators import (
    as_rows,
    as_targets,
    as_weights,
    fitted_map,
    like_input,
    predict_linear,
    warn_unconverged,
    weighted_rows,
)

__all__ = ["BayesianLinearRegression"]

_NOTHING = 1e-3  # prior over noise, in units of the data, below which weights are zero: the square
# is the share of a parameter that the data determine; the evidence may be largest at zero


class _Spectrum(NamedTuple):
    """The centred rows Z = U diag(s) V^T, the targets' parts along U, and what is left of them."""

    s: Tensor
    V: Tensor
    along: Tensor
    rest: float
    n: float  # n', the number of examples less one for an intercept
    constant: float

    def fit(self, noise: float, prior: float) -> tuple[Tensor, float, float]:
        """The mean along V, the squared residuals, and the effective number of parameters."""
        shrunk = self.s.square() + (noise / prior) ** 2
        mean = self.s * self.along / shrunk
        residual = float((self.along - self.s * mean).square().sum()) + self.rest
        return mean, residual, float((self.s.square() / shrunk).sum())

    def log_evidence(self, noise: float, prior: float) -> float:
        """The logarithm of the probability of the targets."""
        mean, residual, _ = self.fit(noise, prior)
        bends = torch.log1p((self.s * prior / noise).square()).sum()
        energy = residual / noise**2 + float(mean.square().sum()) / prior**2 + float(bends)
        return self.constant - self.n / 2 * math.log(2 * math.pi * noise**2) - energy / 2


class BayesianLinearRegression(RegressorMixin, BaseEstimator):
    r"""Linear regression with Gaussian prior and noise, exactly.

    Given arrays it is a scikit-learn estimator; given tensors it computes on their device and
    answers with tensors.

    Args:
        noise: The standard deviation $\delta$ of the noise; by default that of largest evidence.
        prior: The standard deviation $\sigma$ of the weights' prior; likewise.
        fit_intercept: Whether there is an intercept, with a flat prior.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`.
        tol: It stops when their logarithms change by no more than that.

    Attributes:
        coef_: The posterior's mean $m$ of the weights, of shape (d,).
        intercept_: That of the intercept.
        covariance_: The covariance $\Sigma$ of the weights, of shape (d, d).
        noise_: The standard deviation of the noise.
        prior_: That of the prior.
        log_evidence_: The logarithm of the evidence.
        effective_parameters_: How many parameters $\gamma$ the data determine.
        n_iter_: The number of iterations; 0 where both were given.

    References:
        MacKay, Bayesian interpolation, Neural Computation, 1992.

    Example:
        >>> x, y = torch.tensor([[-1.0], [1.0]]).double(), torch.tensor([-2.0, 2.0]).double()
        >>> model = BayesianLinearRegression(noise=1.0, prior=1.0, fit_intercept=False)
        >>> model.fit(x, y).coef_, model.covariance_  # 4 / (2 + 1), 1 / (2 + 1)
        (tensor([1.3333], dtype=torch.float64), tensor([[0.3333]], dtype=torch.float64))
        >>> mean, std = model.predict(torch.tensor([[3.0]]).double(), return_std=True)
        >>> round(std.item(), 4)  # sqrt(1 + 9 / 3)
        2.0
    """

    n_features_in_: int

    def __init__(self, *, noise=None, prior=None, fit_intercept=True, max_iter=300, tol=1e-6):
        self.noise = noise
        self.prior = prior
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "BayesianLinearRegression":
        """Find the posterior.

        Raises:
            ValueError: If the data are not finite, there is not one target for each example, or a
                parameter is out of range.
        """
        x = as_rows(self, X, reset=True).detach()
        y = as_targets(y, x, several=False)
        for name in ("noise", "prior"):
            if getattr(self, name) is not None:
                number(name, getattr(self, name), above=0)
        whole("max_iter", self.max_iter, low=1)
        number("tol", self.tol, low=0)
        s = as_weights(sample_weight, x)
        s = torch.ones(len(x), dtype=torch.float64, device=x.device) if s is None else s
        centre = bool(self.fit_intercept)
        rows = weighted_rows(x.double(), y.double()[:, None], s, centre=centre)
        found = _spectrum(rows.x, rows.y[:, 0], float(s.sum()), centre)
        self._choose(found)
        mean, _, self.effective_parameters_ = found.fit(self.noise_, self.prior_)
        self.log_evidence_ = found.log_evidence(self.noise_, self.prior_)
        w = (found.V @ mean)[None]
        self.coef_, self.intercept_ = fitted_map(w, rows.mean_x, rows.mean_y, y, X)
        less = found.s.square() / (found.s.square() + (self.noise_ / self.prior_) ** 2)
        eye = torch.eye(x.shape[1], dtype=torch.float64, device=x.device)
        covariance = self.prior_**2 * (eye - (found.V * less) @ found.V.T)
        self.covariance_ = like_input(covariance.to(x.dtype), X)
        self._centre = rows.mean_x.cpu().numpy()
        self._shared = self.noise_**2 / float(s.sum()) if centre else 0.0
        return self

    def _choose(self, found: _Spectrum) -> None:
        """Set the standard deviations: those given, or those that maximise the evidence."""
        power = float(found.along.square().sum()) + found.rest
        floor = math.sqrt(torch.finfo(torch.float64).eps * max(power / max(found.n, 1), 1e-280))
        start = math.sqrt(max(power / max(found.n, 1), floor**2))
        noise, prior = (
            float(given) if given is not None else guess
            for given, guess in ((self.noise, start / 2), (self.prior, 1.0))
        )
        self.n_iter_, change = 0, math.inf
        unknown = self.noise is None or self.prior is None
        while unknown and self.n_iter_ < self.max_iter and change > self.tol:
            mean, residual, gamma = found.fit(noise, prior)
            before, size = (noise, prior), float(mean.square().sum())
            if self.prior is None and gamma > 0 and size > 0:
                prior = max(math.sqrt(size / gamma), _NOTHING * noise / float(found.s[0]))
            if self.noise is None and found.n > gamma:
                noise = max(math.sqrt(residual / (found.n - gamma)), floor)
            pairs = zip((noise, prior), before, strict=True)
            change = max(abs(math.log(a / b)) for a, b in pairs)
            self.n_iter_ += 1
        if unknown and change > self.tol:
            warn_unconverged(f"max_iter={self.max_iter} reached with a change of {change:.3g}")
        self.noise_, self.prior_ = noise, prior

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The means of the answers, and with `return_std` their standard deviations as well."""
        mean = predict_linear(self, X)
        if not return_std:
            return mean
        x = as_rows(self, X)
        centre, covariance = (
            torch.as_tensor(v, dtype=torch.float64, device=x.device)
            for v in (self._centre, self.covariance_)
        )
        z = x.double() - centre
        variance = self.noise_**2 + self._shared + ((z @ covariance) * z).sum(1)
        return mean, like_input(variance.sqrt().to(x.dtype), X)

    def sample(self, draws: int = 1, random_state: Any = None) -> tuple[Any, Any]:
        """Draw weights and intercepts from the posterior, of shapes (draws, d) and (draws,)."""
        check_is_fitted(self)
        whole("draws", draws, low=1)
        random = check_random_state(random_state)
        like = self.coef_ if isinstance(self.coef_, Tensor) else None
        m, covariance, b = (
            torch.as_tensor(v, dtype=torch.float64, device="cpu")
            for v in (self.coef_, self.covariance_, self.intercept_)
        )
        values, vectors = torch.linalg.eigh(covariance)
        drawn = torch.from_numpy(random.standard_normal((draws, len(m) + 1)))
        off = (drawn[:, 1:] * values.clamp(min=0).sqrt()) @ vectors.T
        shifts = drawn[:, 0] * math.sqrt(self._shared) - off @ torch.from_numpy(self._centre)
        found = m + off, b + shifts * bool(self.fit_intercept)
        if like is not None:
            return tuple(v.to(like) for v in found)
        return tuple(v.numpy() for v in found)


def _spectrum(z: Tensor, t: Tensor, n: float, centre: bool) -> _Spectrum:
    U, s, Vh = torch.linalg.svd(z, full_matrices=False)
    along = U.T @ t
    rest = float((t - U @ along).square().sum())
    constant = -math.log(n) / 2 if centre else 0.0
    return _Spectrum(s, Vh.T, along, rest, n - centre, constant)
