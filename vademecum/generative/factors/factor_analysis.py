r"""Factor analysis: examples from few independent factors, and noise of its own in each feature.

$$x = \mu + W z + \eta, \qquad z \sim \mathcal N(0, I_k), \quad \eta \sim \mathcal N(0, \Psi), \quad
\Psi = \mathrm{diag}(\psi_1, \dots, \psi_d), \qquad x \sim \mathcal N(\mu, W W^\top + \Psi) .$$

The most likely mean is that of the examples. Loadings and noise have no closed form: EM and then a
quasi-Newton method climb the likelihood (`vademecum.generative.factors._climb`) in units in which
every feature has variance one, so that the scales of features do not matter. The data are gone
through once, for their covariance; an iteration costs $O(d^2 k)$, whatever the number of rows.
Where entries are missing they are integrated out, and the rows are gone through in every iteration.

Loadings are determined up to a rotation (the claim `factor_rotation`); here $W^\top \Psi^{-1} W$ is
diagonal and descending, and the largest loading of each factor, over the feature's deviation,
positive. The maximum is a local one up to `tol`. The likelihood may grow towards zero noise of a
feature (a Heywood case): this noise is held at `min_noise` of the feature's variance, and reported.
The claims are `factor_em`, `factor_analysis` and the others on factors.
"""

from typing import Any

import torch
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.estimators import like_input, warn_outside, warn_unconverged
from vademecum.generative.factors._climb import Rules, climb
from vademecum.generative.factors._estimator import FactorEstimator, examples
from vademecum.generative.factors._expected_moments import Covariance
from vademecum.generative.factors._prepared import Prepared, named, prepared

__all__ = ["FactorAnalysis"]


class FactorAnalysis(FactorEstimator):
    r"""Factor analysis by maximum likelihood.

    Given arrays it is a scikit-learn estimator; given tensors it computes on their device and
    answers with tensors. NaN marks entries that are missing.

    Args:
        n_components: The number k of factors, from 0 to d.
        min_noise: The least noise variance, as a share of the feature's variance.
        quasi_newton: Whether a quasi-Newton method takes over from EM after some steps; EM alone
            is slow where a noise variance tends to zero.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`.
        tol: It stops when no entry of the gradient of the mean log-likelihood exceeds that, with
            loadings in units of the noise and noise variances in units of themselves.

    Attributes:
        components_: The loadings, $W^\top$, of shape (k, d).
        noise_variance_: The noise variances $\psi$, of shape (d,).
        mean_: The mean $\mu$.
        heywood_: The features whose noise variance is at its least value, or within a factor of
            100 and on the way there.
        loglike_: The mean log-likelihood of an example after each iteration.
        n_iter_: The number of iterations.
        converged_: Whether it stopped because of `tol`.

    References:
        Rubin and Thayer, EM algorithms for ML factor analysis, Psychometrika, 1982.
        Jöreskog, Some contributions to maximum likelihood factor analysis, Psychometrika, 1967.

    Example:
        >>> signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 4)  # uncorrelated columns
        >>> x = signs[:, :1] * torch.tensor([3.0, 2.0, 1.0]) + signs[:, 1:]  # a factor, and noise
        >>> model = FactorAnalysis(1).fit(x)
        >>> model.components_.round(decimals=3), model.noise_variance_.round(decimals=3)
        (tensor([[3., 2., 1.]]), tensor([1., 1., 1.]))
        >>> model.transform(x[-1:])  # (3 * 4 + 2 * 3 + 1 * 2) / (1 + 9 + 4 + 1)
        tensor([[1.3333]])
    """

    heywood_: Any

    def __init__(
        self, n_components: Any = 1, *, min_noise=1e-6, quasi_newton=True, max_iter=1000, tol=1e-6
    ):
        self.n_components = n_components
        self.min_noise = min_noise
        self.quasi_newton = quasi_newton
        self.max_iter = max_iter
        self.tol = tol

    def fit(self, X: Any, y: Any = None) -> "FactorAnalysis":
        """Find the most likely mean, loadings and noise; `y` is ignored.

        Raises:
            ValueError: If there are fewer than two rows, an entry is infinite, a feature is
                constant or has no entry, or a parameter is out of range.
        """
        x = examples(self, X, reset=True)
        k = whole("n_components", self.n_components, low=0, high=x.shape[1])
        floor = number("min_noise", self.min_noise, above=0, below=1)
        whole("max_iter", self.max_iter, low=1)
        number("tol", self.tol, above=0)
        made = prepared(x, common=False)
        noise = torch.full_like(made.unit, 0.5)
        newton = bool(self.quasi_newton)
        rules = Rules(False, floor, self.tol, self.max_iter, quasi_newton=newton)
        found = climb(made.data, made.start(_first(made, k)), noise, rules)
        law = made.law(found)
        kept = law.noise.to(x.dtype)
        if not ((kept > 0) & kept.isfinite()).all():
            low, high = law.noise.aminmax()
            raise ValueError(
                f"X must be rescaled: noise variances of {low:.3g} to {high:.3g} leave the range of"
                f" {x.dtype}"
            )
        self.mean_, self.components_, self.noise_variance_ = (
            like_input(part.to(x.dtype), X) for part in (law.mean, law.loadings.mT, law.noise)
        )
        self.loglike_ = [value + made.shift for value in found.path]
        self.n_iter_, self.converged_ = len(found.path), found.slope <= self.tol
        rise = rules.rise(made.data.moments(*found[:2]), *found[:2])
        # Near the floor a maximum has a slope of either sign, up to `tol`.
        there = (found.noise <= 1.01 * floor) & (rise < 0)
        near = (found.noise <= 100 * floor) & (rise < -self.tol)
        held = (there | near).nonzero()[:, 0]
        self.heywood_ = like_input(held, X)
        if len(held):
            warn_outside(
                f"the likelihood grows as the noise of {named(held)} falls to min_noise={floor:g}"
                " of the variance (a Heywood case); fewer factors may do",
                UserWarning,
            )
        if not self.converged_:
            left = f"a gradient of {found.slope:.3g} > {self.tol:g}"
            warn_unconverged(f"{left} is left after {self.n_iter_} iterations")
        return self


def _first(made: Prepared, k: int) -> Tensor:
    """Loadings that are best for noise of one half: from the leading eigenpairs of the covariance.

    Those of entries that are missing are taken as if they were at the mean.
    """
    data = made.data
    d = len(made.unit)
    if isinstance(data, Covariance) and data.matrix is not None:
        values, vectors = torch.linalg.eigh(data.matrix)
    else:
        rows = (
            data.rows if isinstance(data, Covariance) else torch.cat([p.x for p in data.portions])
        )
        assert rows is not None
        _, s, vh = torch.linalg.svd(rows, full_matrices=False)
        values, vectors = s.flip(0).square() / len(rows), vh.mT.flip(1)
    excess = (values.flip(0)[:k] - 0.5).clamp(min=1e-3)  # none zero: EM would leave it so
    start = made.unit.new_zeros(d, k)
    start[:, : len(excess)] = vectors.flip(1)[:, :k] * excess.sqrt()
    return start
