r"""Probabilistic PCA: factor analysis whose noise is the same in every direction.

$$x = \mu + W z + \eta, \quad z \sim \mathcal N(0, I_k), \quad \eta \sim \mathcal N(0, \sigma^2
I_d), \qquad x \sim \mathcal N(\mu, W W^\top + \sigma^2 I) .$$

With the eigenpairs $(\lambda_i, u_i)$ of the covariance with the divisor $n$, in descending order,
the likelihood is largest at the mean and

$$w_i = \sqrt{\max\{0, \lambda_i - \sigma^2\}}\; u_i \quad (i \le k), \qquad
\sigma^2 = \frac1{d - k} \sum_{i > k} \lambda_i ,$$

up to rotations of $z$; for $k = d$, where $\sigma^2$ may be anything up to $\lambda_d$, it is
$\lambda_d$. The eigenpairs are those of `vademecum.linear.PCA`. Where they leave less than
$10^{-6}$ of the variance to the noise they are found once more, from singular values in double
precision, right up to $10^{-16}$ of the largest. Where entries are missing there is no closed form;
EM and then a quasi-Newton method (`vademecum.generative.factors._climb`) integrate them out exactly
and find a local maximum up to `tol`. The claims are `ppca_solution`, `ppca_noise_mle` and
`ppca_to_pca`.
"""

import math
from typing import Any, NamedTuple

import torch
from sklearn.utils import check_random_state
from torch import Tensor

from vademecum.arguments import choice, number, whole
from vademecum.estimators import like_input, warn_unconverged
from vademecum.generative.factors._climb import Rules, climb
from vademecum.generative.factors._estimator import FactorEstimator, examples
from vademecum.generative.factors._law import FactorLaw, has_gaps
from vademecum.generative.factors._prepared import prepared
from vademecum.linear import PCA

__all__ = ["ProbabilisticPCA"]

LEAST = 1e-13  # of the mean variance: noise that EM tells from none, since it subtracts squares


class ProbabilisticPCA(FactorEstimator):
    r"""Probabilistic principal component analysis by maximum likelihood.

    Given arrays it is a scikit-learn estimator; given tensors it computes on their device and
    answers with tensors. With `method="em"` NaN marks entries that are missing; these are
    integrated out.

    Args:
        n_components: The number k of factors, from 0 to d.
        method: "closed", or "em" for EM followed by a quasi-Newton method.
        noise_variance: The $\sigma^2$; by default the most likely one.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`.
        tol: At which "em" stops: when no entry of the gradient of the mean log-likelihood exceeds
            that, with loadings in units of the noise.
        random_state: Where the start of "em" comes from, as in scikit-learn.

    Attributes:
        components_: The loadings, $W^\top$, of shape (k, d): orthogonal rows, the longest first.
        noise_variance_: The $\sigma^2$.
        mean_: The mean $\mu$.
        loglike_: The mean log-likelihood of an example after each iteration of "em".
        n_iter_: The number of iterations; 1 for "closed".
        converged_: Whether "em" stopped because of `tol`; True for "closed".

    References:
        Tipping and Bishop, Probabilistic principal component analysis, Journal of the Royal
        Statistical Society B, 1999.

    Example:
        >>> x = torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]]).double()
        >>> model = ProbabilisticPCA(1).fit(x)  # variances 9/2 and 1/2
        >>> model.components_, round(model.noise_variance_, 4)
        (tensor([[2., 0.]], dtype=torch.float64), 0.5)
        >>> model.transform(x[:1])  # 2 * 3 / (4 + 1/2)
        tensor([[1.3333]], dtype=torch.float64)
        >>> half = torch.tensor([[math.nan, 1.0]]).double()  # tells nothing of the factor
        >>> model.posterior(half).covariance
        tensor([[[1.]]], dtype=torch.float64)
    """

    def __init__(
        self,
        n_components: Any = 1,
        *,
        method="closed",
        noise_variance: Any = None,
        max_iter=1000,
        tol=1e-6,
        random_state: Any = None,
    ):
        self.n_components = n_components
        self.method = method
        self.noise_variance = noise_variance
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> "ProbabilisticPCA":
        """Find the most likely mean, loadings and noise; `y` is ignored.

        Raises:
            ValueError: If there are fewer than two rows, an entry is infinite, a feature has no
                entry, rows are all equal, the data have no variance left for the noise, entries are
                missing and the method is "closed", or a parameter is out of range.
        """
        x = examples(self, X, reset=True)
        k = whole("n_components", self.n_components, low=0, high=x.shape[1])
        choice("method", self.method, ("closed", "em"))
        if self.noise_variance is not None:
            number("noise_variance", self.noise_variance, above=0)
        whole("max_iter", self.max_iter, low=1)
        number("tol", self.tol, above=0)
        try:
            law = self._climb(x, k) if self.method == "em" else self._closed(x, k)
        except ValueError:
            if self.method == "closed" and has_gaps(
                x
            ):  # asked only now: it is a pass over the data
                raise ValueError(
                    "method must be 'em' where X has NaN for missing entries, got 'closed'"
                ) from None
            raise
        self.mean_, self.components_ = (
            like_input(part.to(x.dtype), X) for part in (law.mean, law.loadings.mT)
        )
        self.noise_variance_ = float(law.noise[0])
        return self

    def _closed(self, x: Tensor, k: int) -> FactorLaw:
        d = x.shape[1]
        found = _leading(x, k)
        rounding = 16 * torch.finfo(x.dtype).eps ** 2 * found.total
        if self.noise_variance is not None:
            noise = float(self.noise_variance)
        else:
            noise = found.rest / (d - k) if k < d else float(found.variances[-1])
            if noise * max(d - k, 1) <= rounding:
                rank = int((found.variances > rounding).sum())
                raise ValueError(_no_noise(k, rank))
        loadings = x.new_zeros(d, k, dtype=torch.float64)
        reached = len(found.variances)
        lengths = (found.variances - noise).clamp(min=0).sqrt()
        loadings[:, :reached] = found.directions.mT * lengths
        self.n_iter_, self.converged_ = 1, True
        law = FactorLaw(found.mean, loadings, torch.full_like(found.mean, noise))
        self.loglike_ = [_log_likelihood(found, noise, k, d)]
        return law

    def _climb(self, x: Tensor, k: int) -> FactorLaw:
        made = prepared(x, common=True)
        d, unit = x.shape[1], float(made.unit[0])
        random = check_random_state(self.random_state)
        first = torch.from_numpy(random.standard_normal((d, k))).to(made.unit) / math.sqrt(2 * d)
        fixed = self.noise_variance is not None
        noise = float(self.noise_variance) / unit**2 if fixed else 0.5
        rules = Rules(True, noise if fixed else LEAST, self.tol, self.max_iter, fixed=fixed)
        start = made.start(first), torch.full_like(made.unit, noise)
        found = climb(made.data, *start, rules)
        if not fixed and float(found.noise[0]) <= 10 * LEAST:
            raise ValueError(_no_noise(k, None))
        self.loglike_ = [value + made.shift for value in found.path]
        self.n_iter_, self.converged_ = len(found.path), found.slope <= self.tol
        if not self.converged_:
            left = f"a gradient of {found.slope:.3g} > {self.tol:g}"
            warn_unconverged(f"{left} is left after {self.n_iter_} iterations")
        return made.law(found)


class _Leading(NamedTuple):
    """The leading eigenpairs of the covariance, with the divisor n."""

    mean: Tensor
    directions: Tensor  # as rows
    variances: Tensor  # with the divisor n
    rest: float  # the sum of the others
    total: float


def _leading(x: Tensor, k: int) -> _Leading:
    """The leading eigenpairs of the covariance, as many as there are up to k; in float64."""
    (n, d), reached = x.shape, min(k, *x.shape)
    if not reached:
        wide = x.double()
        mean = wide.mean(0)
        total = float((wide - mean).square().sum()) / n
        if math.isnan(total):
            raise ValueError("X must be finite, got nan")
        return _varied(_Leading(mean, wide[:0], mean[:0], total, total), x)
    for solver in ("auto", "full"):
        pca = PCA(reached, svd_solver=solver).fit(x if solver == "auto" else x.double())
        variances = pca.singular_values_.double().square() / n
        rest = pca.noise_variance_ * (n - 1) / n * (min(n, d) - reached)
        total = rest + float(variances.sum())
        if (rest if reached < min(n, d) else float(variances[-1])) > 1e-6 * total:
            break
    mean, directions = pca.mean_.double(), pca.components_.double()
    return _varied(_Leading(mean, directions, variances, rest, total), x)


def _varied(found: _Leading, x: Tensor) -> _Leading:
    """Refuse rows that are all equal, whose variance rounding may have lifted above zero."""
    slack = (8 * torch.finfo(x.dtype).eps) ** 2 * float(found.mean.square().sum())
    if found.total <= slack and bool((x == x[:1]).all()):
        raise ValueError(f"X must vary, got {len(x)} equal rows")
    return found


def _log_likelihood(found: _Leading, noise: float, k: int, d: int) -> float:
    """The mean log-likelihood of an example, from the eigenvalues."""
    kept = found.variances.clamp(min=noise)
    volume = float(kept.log().sum()) + (d - len(kept)) * math.log(noise)
    distance = float((found.variances / kept).sum()) + found.rest / noise
    return -(volume + distance + d * math.log(2 * math.pi)) / 2


def _no_noise(k: int, rank: int | None) -> str:
    return (
        f"n_components must leave variance to the noise, got {k}"
        + (f" for examples of rank {rank}" if rank is not None else "")
        + ": the likelihood has no maximum; take fewer, or give noise_variance"
    )
