r"""Gaussian process regression: a law over functions, conditioned on what was seen.

With $f$ a process of mean zero and covariance $k$, targets $y_i = f(x_i) + \sigma \eta_i$ with
normal $\eta_i$, $A = K + \sigma^2 I$ and $k(x) = (k(x, x_i))_i$,

$$f(x) \mid y \sim \mathcal N\big(k(x)^\top A^{-1} y,\ k(x, x) - k(x)^\top A^{-1} k(x)\big),$$

and likewise jointly for several $x$. Hyperparameters of the kernel, and $\sigma$ where it is not
given, maximise the log marginal likelihood (`_evidence`, `_learning`). Exact up to rounding and the
jitter by Cholesky's decomposition (`_factor`); beyond the memory allowed by conjugate gradients to
a tolerance (`_iterative`). The claims are `gaussian_process`, `gp_moments`, `gp_regression_mean`
and `gp_regression_variance`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.estimators import as_targets, like_input, warn_unconverged
from vademecum.kernels._covariance import answer, as_kernel, covariance, inputs, refuse_conflicts
from vademecum.kernels._evidence import dense_fit
from vademecum.kernels._hyperparameters import NOISE, Hyperparameters, replaced
from vademecum.kernels._iterative import PROBES, iterative_fit
from vademecum.kernels._learning import learnt
from vademecum.kernels._process import Process, check_options, draws, fits, units
from vademecum.kernels._rounding import Wide, rough, rounding
from vademecum.kernels.radial import RBFKernel

__all__ = ["GaussianProcess"]

_WIDTH = 11.5  # of the range of logarithms about the start: a factor of 1e5 both ways


class GaussianProcess(MultiOutputMixin, RegressorMixin, BaseEstimator):
    r"""Gaussian process regression, with the hyperparameters learnt from the data.

    Given arrays it is a scikit-learn estimator; given tensors it computes on their device, in
    their dtype, and answers with tensors. Several targets are independent processes that share
    kernel and noise. Before `fit` it is the prior, which `predict` and `sample_y` then describe.
    Where rounding would be a per cent of the noise, it computes in double precision, if `memory`
    allows; what rounding does to predictions is measured, and from a per cent on it warns.

    Args:
        kernel: The covariance, a `Kernel` or any function of x1 and x2 that gives their matrix. By
            default an `RBFKernel` times a number, which starts at the variance of the targets.
        noise: The standard deviation $\sigma$ of the noise, 0 or more; learnt by default.
        learn: Whether the hyperparameters of the kernel are learnt, from their values on, within
            a factor of $10^5$; those of a function are not known.
        normalize_y: Whether targets are shifted and scaled to mean 0 and variance 1 before, and
            predictions back; kernel and noise are those of the scaled targets then.
        restarts: How many more times to learn, from other starts; the likeliest end is kept.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Of learning.
        tol: Learning stops when no derivative of the likelihood per target exceeds it; conjugate
            gradients stop at this relative residual.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest. That
            is to hold and decompose the matrix. If it would not fit, its rows are computed when
            they are needed, and a thousand vectors of n numbers come on top.
        random_state: Where other starts and the probes of the likelihood above `memory` come from.
        progress: Whether to show a progress bar on standard error.

    Attributes:
        kernel_: The kernel learnt.
        noise_: The standard deviation of the noise.
        alpha_: The coefficients $A^{-1} y$ of the predictive mean, of shape (n,) or (n, t).
        log_marginal_likelihood_: The logarithm of the density of the (scaled) targets.
        log_marginal_likelihood_error_: Its standard error over the probes above `memory`, which
            leaves out the bias of few Lanczos steps; 0 where it is exact.
        jitter_: What was added to the diagonal so that it could be decomposed; most often 0.
        residual_: The largest $\|y - A \alpha\| / \|y\|$ of a target.
        rounding_: What rounding did to the mean, as a share of it; not known above `memory`.
        dtype_: The dtype it was computed in, that of the inputs or torch.float64.
        n_iter_: Iterations of learning; 0 if nothing was to be learnt.

    References:
        Rasmussen and Williams, Gaussian processes for machine learning, MIT Press, 2006.
        Gardner, Pleiss, Bindel, Weinberger and Wilson, GPyTorch: blackbox matrix-matrix Gaussian
        process inference with GPU acceleration, NeurIPS, 2018.

    Example:
        >>> x, y = torch.tensor([[0.0]]).double(), torch.tensor([3.0]).double()
        >>> process = GaussianProcess(RBFKernel(), noise=1.0, learn=False).fit(x, y)
        >>> mean, std = process.predict(x, return_std=True)
        >>> mean, std  # 3 k / (k + 1) with k = 1, and the root of k - k^2 / (k + 1)
        (tensor([1.5000], dtype=torch.float64), tensor([0.7071], dtype=torch.float64))
    """

    n_features_in_: int
    _data: tuple[Tensor, Tensor, int]
    _process: Process

    def __init__(
        self, kernel=None, *, noise=None, learn=True, normalize_y=False, restarts=0, max_iter=100,
        tol=1e-4, memory=None, random_state=None, progress=False,
    ):  # fmt: skip
        self.kernel = kernel
        self.noise = noise
        self.learn = learn
        self.normalize_y = normalize_y
        self.restarts = restarts
        self.max_iter = max_iter
        self.tol = tol
        self.memory = memory
        self.random_state = random_state
        self.progress = progress

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags

    def fit(self, X: Any, y: Any) -> "GaussianProcess":
        """Learn the hyperparameters, and condition the process on the targets.

        Raises:
            ValueError: If the data are not finite, there is not one target for each input, a
                parameter is out of range, the kernel is not symmetric and positive semidefinite,
                or equal inputs have different targets and there is no noise.
        """
        x = inputs(self, X, reset=True).clone()
        targets = as_targets(y, x)
        check_options(self)
        columns = targets.reshape(len(x), -1)
        if self.noise == 0:
            refuse_conflicts(x, columns, "noise")
        self._units = units(columns, bool(self.normalize_y))
        scaled = (columns - self._units[0]) / self._units[1]
        seed = int(check_random_state(self.random_state).randint(2**31))
        self._data = (x, scaled, seed)
        self._learn()
        alpha = self._condition()
        self._one = targets.ndim == 1
        self.alpha_ = like_input(alpha[:, 0] if self._one else alpha, X)
        return self

    def _learn(self) -> None:
        """Set kernel and noise: those given, or the likeliest."""
        x, y, _ = self._data
        power = float(y.double().square().mean())
        kernel = as_kernel(self.kernel, (power or 1.0) * RBFKernel())
        noise = (0.1 * power or 1.0) ** 0.5 if self.noise is None else float(self.noise)
        known = Hyperparameters.of(
            kernel, noise, noisy=self.noise is None, kernels=bool(self.learn), like=x[:0]
        )
        self.kernel_, self.noise_, self.n_iter_ = kernel, noise, 0
        if not len(known.start):
            return
        exact, eps = fits(x, self.memory), torch.finfo(x.dtype).eps
        wide = x.dtype != torch.float64 and fits(x.double(), self.memory)
        tol = self.tol if exact else max(self.tol, 0.5 / (len(x) * PROBES) ** 0.5)
        found = learnt(
            lambda theta, refined: self._objective(known, theta, refined),
            known.start,
            known.bounds(_WIDTH, least_noise=eps**0.5 * (power or 1.0) ** 0.5),
            tol=tol,
            eps=eps if exact else tol,
            max_iter=self.max_iter,
            restarts=self.restarts,
            refinable=wide,
            random=check_random_state(self.random_state),
            progress=bool(self.progress),
        )
        if not found.converged:
            warn_unconverged(
                f"{found.n_iter} iterations of max_iter={self.max_iter} left a derivative of"
                f" {found.slope:.3g} per target, for tol={tol:.3g}"
            )
        self.kernel_, self.noise_ = known.at(found.theta)
        self.n_iter_ = found.n_iter

    def _objective(
        self, known: Hyperparameters, theta: np.ndarray, wide: bool
    ) -> tuple[float, np.ndarray]:
        kernel, noise = known.at(theta)
        fit = self._fit(kernel, noise, gradient=known.names, limited=False, wide=wide)
        count = self._data[1].numel()
        return -fit.value / count, -known.vector(fit.gradients) / count

    def _fit(
        self, kernel: Any, noise: float, *, gradient: Any = (), limited: bool = True,
        wide: bool = False,
    ) -> Any:  # fmt: skip
        x, y, seed = self._data
        memory: Any = self.memory
        exact = fits(x, memory)
        if (wide or rough(kernel, noise, x)) and (not exact or fits(x.double(), memory)):
            x, y = x.double(), y.double()
        if not exact:
            return iterative_fit(
                kernel, noise, x, y, memory=memory, tol=self.tol, seed=seed, gradient=gradient,
                progress=bool(self.progress),
            )  # fmt: skip
        return dense_fit(kernel, noise, x, y, gradient=gradient, limited=limited)

    def _condition(self) -> Tensor:
        """Solve for the coefficients, and say what rounding did to them."""
        kernel, noise = self.kernel_, self.noise_
        fit = self._fit(kernel, noise)
        x, y = (v.to(fit.alpha) for v in self._data[:2])
        self._process = Process(kernel, x, fit.alpha, fit.factor, fit.system, self.tol)
        self.log_marginal_likelihood_ = fit.value
        self.log_marginal_likelihood_error_ = fit.error
        self.residual_, self.rounding_, self.jitter_ = fit.residual, float("nan"), 0.0
        if fit.factor is not None:
            self.jitter_ = fit.factor.jitter
            self.residual_, self.rounding_ = rounding(
                fit.factor, fit.alpha, y, wide=Wide.of(kernel, x, fit.alpha, memory=self.memory),
                diagonal=noise**2, matrix=lambda: covariance(kernel, x), name="noise",
            )  # fmt: skip
        self.dtype_ = fit.alpha.dtype
        return fit.alpha.to(self._data[0])

    def log_marginal_likelihood(
        self, hyperparameters: Mapping[str, Any] | None = None, *, gradient: bool = False
    ) -> Any:
        """The log marginal likelihood of the targets at some hyperparameters.

        Args:
            hyperparameters: Values by name, those of the kernel and `noise`; what is not named is
                as it was learnt.
            gradient: Whether to give its derivatives to the logarithms of all of them, by name, as
                well.
        """
        check_is_fitted(self, "alpha_")
        values = dict(hyperparameters or {})
        noise = number("noise", values.pop(NOISE, self.noise_), low=0)
        kernel = replaced(self.kernel_, values)
        known = Hyperparameters.of(kernel, 1.0).names if gradient else ()
        fit = self._fit(kernel, noise, gradient=known)
        return (fit.value, fit.gradients) if gradient else fit.value

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False, *, noisy: bool = False
    ) -> Any:
        """The mean of the process at new inputs; of the prior if it was not fitted.

        Args:
            X: The inputs.
            return_std: Whether to give the standard deviations as well, of the shape of the mean.
            return_cov: Whether to give the covariances as well, (m, m), or (m, m, t) for t targets.
            noisy: Whether these are of new answers, with noise, and not of the process.

        Raises:
            ValueError: If both of them are asked for.
        """
        if return_std and return_cov:
            raise ValueError("return_std and return_cov must not both be true")
        mean, spread = self._moments(X, std=return_std, cov=return_cov, noisy=noisy)
        if spread is None:
            return answer(mean, X)
        return answer(mean, X), answer(spread, X)

    def _moments(self, X: Any, *, std: bool, cov: bool, noisy: bool) -> tuple[Tensor, Any]:
        """The mean, and the standard deviations or covariances, in units of the targets."""
        if hasattr(self, "alpha_"):
            process, noise, one = self._process, self.noise_, self._one
            shift, x = self._units, inputs(self, X).to(process.alpha)
        else:
            process, noise, one = Process(as_kernel(self.kernel, 1.0 * RBFKernel())), 0.0, True
            shift, x = (0.0, 1.0), inputs(self, X, reset=True)
            noise = number("noise", self.noise or 0.0, low=0)
            if noisy and self.noise is None:
                raise ValueError("noise must be given for noisy answers of the prior, got None")
        extra = noise**2 * noisy
        if cov:
            mean, spread = process.covariances(x)
            spread.diagonal().add_(extra)
            spread = spread[..., None] * shift[1] ** 2
        else:
            mean, spread = process.moments(x, variance=std, memory=self.memory)
            spread = None if spread is None else (spread + extra).sqrt()[:, None] * shift[1]
        mean = mean * shift[1] + shift[0]
        if one:
            return mean[:, 0], None if spread is None else spread[..., 0]
        return mean, spread

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = None) -> Any:
        """Functions drawn from the posterior, or from the prior if it was not fitted, at inputs.

        Args:
            X: The inputs, m of them.
            n_samples: How many functions.
            random_state: Where random numbers come from.

        Returns:
            Values of shape (m, n_samples), or (m, t, n_samples) for t targets.
        """
        whole("n_samples", n_samples, low=1)
        mean, K = self._moments(X, std=False, cov=True, noisy=False)
        shape = (*K.shape[1:], n_samples)  # (m, samples), or (m, t, samples)
        normals = torch.from_numpy(check_random_state(random_state).standard_normal(shape))
        drawn = draws(K, normals.to(K)) + mean[..., None]
        return answer(drawn, X)
