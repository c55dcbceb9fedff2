r"""The expected squared error of a method, split into bias, variance and noise.

Let $\hat f$ be fitted to a training set that is drawn anew each time, and $y = f^*(x) + \epsilon$
with independent noise of mean 0 and variance $\sigma^2$. At a fixed input

$$\mathbb{E}\, (\hat f(x) - y)^2 = \bigl(\mathbb{E} \hat f(x) - f^*(x)\bigr)^2 + \operatorname{Var}
\hat f(x) + \sigma^2 .$$

From R fits with errors $e_r = \hat f_r(x) - f^*(x)$, of mean $\bar e$ and sample variance $s^2$,
the estimates are $s^2$ and $\bar e^2 - s^2 / R$, which have no bias of their own (the second may
come out negative) and add up to the mean of all $e_r^2$. Their standard errors are

$$\operatorname{se}(s^2)^2 = \frac{1}{R} \Bigl(m_4 - \frac{R - 3}{R - 1}\, s^4\Bigr), \qquad
\operatorname{se}(\text{bias}^2)^2 = \frac{4 \bar e^2 s^2}{R} + \frac{2 s^4}{R (R - 1)},$$

with the fourth central moment $m_4$.

**Linear smoothers.** Where the inputs are fixed and predictions are linear in the targets, as those
of ridge regression, splines, kernel smoothers and nearest neighbours are, $\hat f(x) = a^\top y$
with weights that n fits to unit vectors give, and both parts are exact: $(a^\top f^*(X) -
f^*(x))^2$ and $\sigma^2 \|a\|^2$. The claim is `bias_variance`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats, number, whole
from vademecum.progress import ticking
from vademecum.randomness import own_randomness, source
from vademecum.results import one_line

__all__ = ["BiasVariance", "bias_variance"]


_SEEDS = 2**31 - 1


class BiasVariance(NamedTuple):
    """The parts of the expected squared error at each input.

    Example:
        >>> def mean(X, y):
        ...     return lambda x: y.mean().expand(len(x))
        >>> X, at = torch.zeros(4, 1), torch.ones(1, 1)
        >>> bias_variance(mean, X, at, truth=lambda x: 3 * x[:, 0], noise=1.0, linear=True).error
        tensor([10.2500])
    """

    bias_squared: Float[Tensor, " m"]
    r"""The squared bias $(\mathbb{E} \hat f(x) - f^*(x))^2$; an estimate may be negative."""
    variance: Float[Tensor, " m"]
    """The variance of the prediction over training sets."""
    noise: float
    r"""The variance $\sigma^2$ of the noise, which no method can avoid."""
    error: Float[Tensor, " m"]
    """The expected squared error against noisy targets: the sum of the three."""
    bias_squared_error: Float[Tensor, " m"]
    """The standard error of the squared bias; 0 where it is exact."""
    variance_error: Float[Tensor, " m"]
    """The standard error of the variance; 0 where it is exact."""
    fits: int
    """How many fits were made."""
    exact: bool
    """Whether the parts are exact, up to rounding."""

    __repr__ = one_line


def bias_variance(
    fit: Any,
    design: Float[Tensor, " n d"] | Callable[[torch.Generator], Tensor],
    x: Float[Tensor, " m d"],
    *,
    truth: Callable[[Tensor], Tensor],
    noise: float,
    linear: bool = False,
    repeats: int = 200,
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> BiasVariance:
    r"""Bias, variance and noise of a method's squared error at given inputs.

    Args:
        fit: A function of training inputs (n, d) and targets (n,) that returns a function from
            inputs (m, d) to predictions (m,); or an estimator with scikit-learn's `fit` and
            `predict`, of which clones are fitted to NumPy arrays.
        design: The training inputs, the same each time; or a function of a generator that draws
            them anew.
        x: The inputs at which to look.
        truth: The function $f^*$, from inputs (n, d) to values (n,).
        noise: The standard deviation $\sigma$ of the noise in the targets; in training sets it is
            Gaussian.
        linear: Whether predictions are linear in the targets for a fixed design, which is verified;
            then the parts are exact, for noise of any law.
        repeats: How many training sets are drawn; without effect where `linear`.
        generator: Where random numbers come from; torch's global generator by default. What a fit
            draws from global generators of torch, NumPy and Python is seeded from it, too.
        progress: Whether to show a progress bar on standard error. It counts fits.

    Raises:
        ValueError: If shapes do not fit, predictions are not finite, or the method is said to be
            linear and is not.

    Example:
        >>> from sklearn.neighbors import KNeighborsRegressor
        >>> X, at = torch.linspace(0, 1, 11)[:, None], torch.tensor([[0.5]])
        >>> nearest = KNeighborsRegressor(n_neighbors=5)
        >>> found = bias_variance(nearest, X, at, truth=lambda x: x[:, 0] ** 2, noise=1.0, linear=True)
        >>> found.variance, found.bias_squared  # 1/5, and the square of (0.04 + 0.01) 2 / 5
        (tensor([0.2000]), tensor([0.0004]))
    """  # noqa: E501
    x = floats("x", x, ndim=2).detach()
    sigma, wanted = number("noise", noise, low=0), _values("truth", truth(x), len(x)).to(x)
    whole("repeats", repeats, low=4)
    solve = _fitted(fit)
    seeds = _seeds(repeats + 1, generator)
    if linear:
        return _exact(solve, design, x, truth, wanted, sigma, seeds, progress=progress)
    errors = x.new_empty(repeats, len(x))
    with ticking("fits", repeats, progress=progress) as tick:
        for seed, row in zip(seeds, errors, strict=False):
            own = torch.Generator(x.device).manual_seed(seed)
            X = _inputs(design, own, x)
            clean = _values("truth", truth(X), len(X)).to(X)
            drawn = torch.randn(len(X), dtype=X.dtype, device=X.device, generator=own)
            row.copy_(solve(X, clean + sigma * drawn, x, seed) - wanted)
            tick(1)
    return _estimated(errors, sigma)


def _estimated(errors: Tensor, sigma: float) -> BiasVariance:
    """The parts and their standard errors, from the errors of all fits."""
    R = len(errors)
    mean, s2 = errors.mean(0), errors.var(0)
    m4 = (errors - mean).pow(4).mean(0)
    of_variance = ((m4 - (R - 3) / (R - 1) * s2.square()).clamp(min=0) / R).sqrt()
    of_bias = (4 * mean.square() * s2 / R + 2 * s2.square() / (R * (R - 1))).sqrt()
    bias = mean.square() - s2 / R
    return BiasVariance(
        bias, s2, sigma**2, bias + s2 + sigma**2, of_bias, of_variance, R, exact=False
    )


def _exact(
    solve: Callable[[Tensor, Tensor, Tensor, int], Tensor],
    design: Any,
    x: Tensor,
    truth: Callable[[Tensor], Tensor],
    wanted: Tensor,
    sigma: float,
    seeds: list[int],
    *,
    progress: bool,
) -> BiasVariance:
    """From the weights of the targets, which fits to unit vectors show."""
    if not isinstance(design, Tensor):
        raise ValueError(f"design must be a tensor where linear=True, got {design!r}")
    X, seed = _inputs(design, torch.Generator(x.device), x), seeds[0]
    n, probe = len(X), torch.Generator(x.device).manual_seed(seed)
    with ticking("fits", n + 2, progress=progress) as tick:
        weights = x.new_empty(len(x), n)
        for column, unit in zip(weights.T, torch.eye(n).to(X), strict=True):
            column.copy_(solve(X, unit, x, seed))
            tick(1)
        for y in torch.randn(2, n, dtype=X.dtype, device=X.device, generator=probe):
            found = solve(X, y, x, seed)
            room = n * torch.finfo(x.dtype).eps ** 0.5 * (weights.abs() @ y.abs()).max()
            if (off := (weights @ y - found).abs().max()) > room:
                raise ValueError(
                    "fit must be linear in the targets where linear=True, got predictions that"
                    f" are off by {float(off):.3g}"
                )
            tick(1)
    bias = (weights @ _values("truth", truth(X), n).to(X) - wanted).square()
    variance, none = sigma**2 * weights.square().sum(1), torch.zeros_like(bias)
    error = bias + variance + sigma**2
    return BiasVariance(bias, variance, sigma**2, error, none, none, n + 2, exact=True)


def _fitted(fit: Any) -> Callable[[Tensor, Tensor, Tensor, int], Tensor]:
    """Predictions at x of what is fitted to (X, y), with the random numbers of a seed."""
    estimator = hasattr(fit, "fit") and hasattr(fit, "predict")
    call: Any = fit
    if not estimator and not callable(fit):
        raise ValueError(f"fit must be a function, or have fit and predict, got {fit!r}")

    def solve(X: Tensor, y: Tensor, x: Tensor, seed: int) -> Tensor:
        with own_randomness(seed):
            found = _by_estimator(fit, X, y, x, seed) if estimator else call(X, y)(x)
        return _values("predictions of fit", found, len(x)).to(x)

    return solve


def _by_estimator(estimator: Any, X: Tensor, y: Tensor, x: Tensor, seed: int) -> Tensor:
    from sklearn.base import clone

    own: Any = clone(estimator)
    params = own.get_params()
    own.set_params(
        **{
            name: seed
            for name, value in params.items()
            if name.rpartition("__")[2] == "random_state" and value is None
        }
    )
    at, targets, points = (t.detach().cpu().numpy() for t in (X, y, x))
    return torch.as_tensor(own.fit(at, targets).predict(points))


def _inputs(design: Any, generator: torch.Generator, x: Tensor) -> Tensor:
    X = design if isinstance(design, Tensor) else design(generator)
    X = floats("design", X, ndim=2, width=x.shape[1]).detach()
    if (X.dtype, X.device) != (x.dtype, x.device):
        raise ValueError(
            f"design must be {x.dtype} on {x.device} as x is, got {X.dtype} on {X.device}"
        )
    return X


def _values(name: str, z: Any, n: int) -> Tensor:
    z = floats(name, z)
    if z.shape not in ((n,), (n, 1)):
        raise ValueError(f"{name} must be one number for each of {n} inputs, got {tuple(z.shape)}")
    return z.detach().reshape(n)


def _seeds(count: int, generator: torch.Generator | None) -> list[int]:
    return torch.randint(_SEEDS, (count,), **source(generator, "cpu")).tolist()
