r"""The Gaussian process latent variable model: principal components with a nonlinear decoder.

Each feature is a Gaussian process of latent points $z_i \in \mathbb R^q$, seen with noise; the
points are those that make the data likeliest (`_evidence`). With a linear kernel they are the
principal components up to scale, in closed form; with others a local maximum, by L-BFGS from there.
Computed in double precision. Checked by the claims `generative.gplvm` and
`generative.nonlinear_embeddings`.
"""

from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from vademecum.arguments import floats, number, whole
from vademecum.estimators import as_rows, like_input, warn_unconverged
from vademecum.generative.process_embeddings._evidence import (
    Likelihood,
    closed_form,
    columns,
    likelihood,
)
from vademecum.kernels import GaussianProcess, Kernel, LinearKernel, RBFKernel
from vademecum.linear import PCA
from vademecum.progress import ticking

__all__ = ["GPLVM"]

WIDTH = 11.5  # of the range of logarithms about the start: a factor of 1e5 both ways
QUIET = 1e-3  # the least noise that is learnt, in units of the data's standard deviation


class GPLVM(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Latent points for examples, whose features are Gaussian processes of them.

    Given arrays it is a scikit-learn embedding (as `TSNE` is: it has `fit_transform`, and no
    `transform` of other examples); given tensors it works on their device and answers with tensors.
    An iteration takes the time of a Cholesky decomposition of an n x n matrix and its inverse.

    Args:
        n_components: The number q of latent coordinates.
        kernel: The covariance, a `Kernel` or any differentiable function of two sets of points; by
            default an `RBFKernel` times a number, which starts at the variance of the data. With a
            `LinearKernel()` the maximum is known in closed form.
        noise: The standard deviation $\sigma$ of the noise; learnt by default.
        learn: Whether the hyperparameters of the kernel are learnt, from their values on.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`.
        tol: It ends when no derivative of the mean log-likelihood of an entry exceeds it.
        progress: Whether to show a progress bar on standard error.

    Attributes:
        embedding_: The latent points $Z$, of shape (n, q).
        kernel_: The kernel learnt.
        noise_: The standard deviation of the noise; what is learnt is at least a thousandth of
            that of the data.
        log_likelihood_: The log-likelihood of the centred data.
        mean_: The mean of the examples.
        n_iter_: How many iterations were made; 1 for the closed form.
        converged_: Whether `tol` was reached, or the likelihood ceased to rise.

    References:
        Lawrence, Probabilistic non-linear principal component analysis with Gaussian process
        latent variable models, Journal of Machine Learning Research, 2005.

    Example:
        >>> x = torch.tensor([[-4.0, 0.0], [0.0, 3.0], [0.0, -3.0], [4.0, 0.0]]).double()
        >>> model = GPLVM(1, kernel=LinearKernel()).fit(x)  # eigenvalues 16, 9, 0, 0 of XX^T / 2
        >>> model.noise_**2, model.embedding_.T.square()  # 9 / 3, and half of 16 - 3 twice
        (3.0..., tensor([[6.5000, 0.0000, 0.0000, 6.5000]], dtype=torch.float64))
    """

    n_features_in_: int
    _data: tuple[Tensor, Tensor]
    _decoder: GaussianProcess

    def __init__(
        self, n_components=2, *, kernel=None, noise=None, learn=True, max_iter=500, tol=1e-4,
        progress=False,
    ):  # fmt: skip
        self.n_components = n_components
        self.kernel = kernel
        self.noise = noise
        self.learn = learn
        self.max_iter = max_iter
        self.tol = tol
        self.progress = progress

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(self, X: Any, y: Any = None) -> "GPLVM":
        """Find the latent points; `y` is ignored.

        Raises:
            ValueError: If the data are not finite, not real, constant or a single row, a parameter
                is out of range, or the likelihood has no maximum.
        """
        rows = as_rows(self, X, reset=True, ensure_min_samples=2).detach()
        if rows.is_complex():
            raise ValueError(f"X must be real, got {rows.dtype}")
        if len(rows) < 2:
            raise ValueError(f"X must have at least 2 rows, got {len(rows)}")
        q = whole("n_components", self.n_components, low=1, high=min(rows.shape))
        most, tol = whole("max_iter", self.max_iter, low=1), number("tol", self.tol, above=0)
        noise = None if self.noise is None else number("noise", self.noise, above=0)
        mean = rows.double().mean(0)
        x = rows.double() - mean
        if not x.any():
            raise ValueError("X must not be constant: it leaves nothing to embed")
        self._data = (x, columns(x))
        if isinstance(self.kernel, LinearKernel) and not self.kernel.hyperparameters():
            Z, noise = closed_form(x, q, noise)
            self.kernel_, self.n_iter_, self.converged_ = self.kernel, 1, True
        else:
            Z, noise = self._ascend(x, q, noise, most, tol)
        self._finish(Z, noise, mean, rows, X)
        return self

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Find the latent points, and return them; `y` is ignored."""
        return self.fit(X).embedding_

    def inverse_transform(self, X: Any, *, return_std: bool = False) -> Any:
        """The examples that latent points stand for: the mean of the processes there.

        Args:
            X: Latent points, of shape (m, q).
            return_std: Whether to give the standard deviation of each example's features as well,
                without noise.
        """
        check_is_fitted(self)
        z = X if isinstance(X, Tensor) else torch.as_tensor(X)
        z = floats("X", z, ndim=2, width=self._decoder.n_features_in_)
        wide = z.double().to(self._data[0])
        mean, std = self._decoder.predict(wide, return_std=True)
        mean = mean + torch.as_tensor(self.mean_).to(mean)
        answers = [like_input(part.to(z), X) for part in (mean, std)]
        return tuple(answers) if return_std else answers[0]

    def log_likelihood(self, Z: Any = None, *, gradient: bool = False) -> Any:
        """The log-likelihood of the data at other latent points, with kernel and noise as learnt.

        Args:
            Z: The latent points, of shape (n, q); those learnt by default.
            gradient: Whether to give the derivatives to them as well.
        """
        check_is_fitted(self)
        x, Y = self._data
        like = self.embedding_ if Z is None else Z
        z = floats("Z", torch.as_tensor(like), ndim=2)
        if len(z) != len(x):
            raise ValueError(f"Z must have {len(x)} rows, one for each example, got {len(z)}")
        found = self._likelihood(self.kernel_, self.noise_, z.double().to(x), Y)
        return (found.value, like_input(found.points.to(z), like)) if gradient else found.value

    def _likelihood(self, kernel: Any, noise: float, Z: Tensor, Y: Tensor) -> Likelihood:
        found = likelihood(kernel, noise, Z, Y, self._data[0].shape[1])
        if found is None:
            raise ValueError(
                f"noise must be larger: the covariance of the points is singular with {noise:g}"
            )
        return found

    def _ascend(
        self, x: Tensor, q: int, noise: float | None, most: int, tol: float
    ) -> tuple[Tensor, float]:
        Y, entries = self._data[1], x.numel()
        scale = float(x.square().mean().sqrt())
        kernel = scale**2 * RBFKernel() if self.kernel is None else self.kernel
        if not callable(kernel):
            raise ValueError(f"kernel must be a Kernel or a function of two sets, got {kernel!r}")
        start = PCA(q, whiten=True).fit(x)
        Z = start.transform(x)
        left = (x - start.inverse_transform(Z)).square().mean().sqrt()
        begin = noise or max(float(left), 0.1 * scale)
        learnt = _Vector(kernel, Z, begin, hypers=bool(self.learn), noisy=noise is None)
        with ticking("likelihoods", None, progress=bool(self.progress)) as tick:

            def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
                tick(1)
                at, sigma, points = learnt.at(theta)
                found = likelihood(at, sigma, points, Y, x.shape[1])
                if found is None:
                    return np.inf, np.zeros_like(theta)
                return -found.value / entries, -learnt.slopes(found) / entries

            run = minimize(
                objective, learnt.start, jac=True, method="L-BFGS-B",
                bounds=learnt.bounds(QUIET * scale),
                options={"maxiter": most, "maxfun": 20 * most, "gtol": tol, "ftol": 1e-12},
            )  # fmt: skip
        self.kernel_, noise, Z = learnt.at(run.x)
        self.n_iter_, self.converged_ = max(1, int(run.nit)), run.status == 0
        if not self.converged_:
            ended = (
                f"max_iter={most} reached" if run.nit >= most else "a search along a line failed"
            )
            low, high = np.array(learnt.bounds(QUIET * scale)).T
            slope = np.abs(run.x - np.clip(run.x - run.jac, low, high)).max()
            warn_unconverged(
                f"{ended} with a derivative of {slope:.2g} of the mean log-likelihood of an entry,"
                f" and tol={tol:g}"
            )
        return Z, noise

    def _finish(self, Z: Tensor, noise: float, mean: Tensor, rows: Tensor, X: Any) -> None:
        self.noise_ = noise
        self.log_likelihood_ = self._likelihood(self.kernel_, noise, Z, self._data[1]).value
        self._decoder = GaussianProcess(self.kernel_, noise=noise, learn=False)
        self._decoder.fit(Z, self._data[0])
        self.embedding_ = like_input(Z.to(rows), X)
        self.mean_ = like_input(mean.to(rows), X)

    @property
    def _n_features_out(self) -> int:
        return self.embedding_.shape[1]


class _Vector:
    """Latent points, logarithms of hyperparameters and of the noise as one vector, and back."""

    def __init__(self, kernel: Any, Z: Tensor, noise: float, *, hypers: bool, noisy: bool):
        self.kernel, self.Z, self.noise, self.noisy = kernel, Z, noise, noisy
        known = kernel.hyperparameters() if hypers and isinstance(kernel, Kernel) else {}
        doubles = {name: torch.as_tensor(h, dtype=torch.float64) for name, h in known.items()}
        self.known = {name: h.detach() for name, h in doubles.items()}
        parts = [Z.flatten().cpu(), *(h.log().flatten().cpu() for h in self.known.values())]
        logs = [np.log([noise])] if noisy else []
        self.start = np.concatenate([*(part.numpy() for part in parts), *logs])

    def at(self, theta: np.ndarray) -> tuple[Any, float, Tensor]:
        """The kernel, the noise and the points."""
        Z = torch.from_numpy(theta[: self.Z.numel()]).to(self.Z).view_as(self.Z)
        place, values = self.Z.numel(), {}
        for name, h in self.known.items():
            part = np.exp(theta[place : place + h.numel()])
            values[name] = torch.from_numpy(part).to(self.Z) if h.ndim else float(part[0])
            place += h.numel()
        kernel = self.kernel.replaced(values) if values else self.kernel
        return kernel, float(np.exp(theta[-1])) if self.noisy else self.noise, Z

    def slopes(self, found: Likelihood) -> np.ndarray:
        """The gradient as a vector."""
        parts = [found.points, *(found.logs[name] for name in self.known)]
        made = [part.flatten().cpu().double().numpy() for part in parts]
        return np.concatenate([*made, *([[found.log_noise]] if self.noisy else [])])

    def bounds(self, quiet: float) -> list[tuple[float, float]]:
        """No limits for the points, a factor for the others, a floor for the noise."""
        n = self.Z.numel()
        limits = [(-np.inf, np.inf)] * n + [(v - WIDTH, v + WIDTH) for v in self.start[n:]]
        if self.noisy:
            low, high = limits[-1]
            limits[-1] = (max(low, float(np.log(quiet))), high)
        return limits
