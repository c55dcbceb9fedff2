"""Gaussian process regression: mean and variance of what is left after data."""

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch

from vademecum.claims import Evidence, at_most, claim, equals
from vademecum.kernels import GaussianProcess, Kernel, LinearKernel, MaternKernel, RBFKernel
from vademecum.kernels.claims._process_laws import by_hand, gaussian, grid

Matrix = Literal["inverse", "smoother"]


def _weights(K: np.ndarray, added: float, matrix: Matrix) -> np.ndarray:
    """What stands between k(x) and the targets."""
    return (
        np.linalg.inv(K + added * np.eye(len(K)))
        if matrix == "inverse"
        else np.eye(len(K)) / len(K)
    )


@claim(
    by="identity",
    sources=("A-308", "C-271"),
    budget=0.3,
    short=r"E[f(x) | y] = k(x)^\top K^+ y;\quad"
    r" \text{with noise } k(x)^\top (K + \sigma^2 I)^{-1} y",
)
def gp_regression_mean(matrix: Matrix = "inverse", power: float = 2.0):
    r"""Gaussian process regression: predictive mean.

    Conditioning a zero-mean process on noise-free values $y$ at $x_1, \dots, x_s$ gives the
    predictive mean $f^*(x) = k(x)^\top K^+ y$ with $k(x) = (k(x, x_i))_i$: kernel interpolation.
    With observation noise $\sigma^2$ replace $K^+$ by $(K + \sigma^2 I)^{-1}$.

    *Checked* for `GaussianProcess` and the formula, which is computed pair by pair: on points at
    least 0.8 apart, both equal $-P_{22}^{-1} P_{21} y$ with the precision matrix $P$ of the joint
    covariance, and take the values $y$ at the $x_i$; for singular $K$ (a linear kernel on more
    points than dimensions, a point given twice) they equal $k(x)^\top K^+ y$ with the
    pseudoinverse; with noise and the kernel $(1 + x^\top \xi)^2$ they equal primal ridge regression
    on its monomials with $\lambda = \sigma^2$.

    Knobs:
        matrix: What the targets are multiplied with, the inverse or $\frac1s I$: a smoother.
        power: The power of the noise's standard deviation on the diagonal.
    """
    for s, m, d in ((6, 4, 1), (7, 3, 2)):
        points, y = grid(s + m, d), torch.randn(s).numpy()
        order = torch.randperm(s + m).numpy()
        x, new = points[order[:s]], points[order[s:]]
        k = gaussian(0.5)
        P = np.linalg.inv(by_hand(k, points[order], points[order]))
        oracle = -np.linalg.solve(P[s:, s:], P[s:, :s] @ y)
        fitted = GaussianProcess(RBFKernel(), noise=0.0, learn=False).fit(x, y)
        w = _weights(by_hand(k, x, x), 0.0, matrix) @ y
        at = {"s": s, "new": m, "d": d}
        yield equals("mean of GaussianProcess", fitted.predict(new), oracle, tol=1e-8, **at)
        yield equals("formula", by_hand(k, new, x) @ w, oracle, tol=1e-8, **at)
        yield equals("formula where y is known", by_hand(k, x, x) @ w, y, tol=1e-8, **at)
        yield equals("GaussianProcess where y is known", fitted.predict(x), y, tol=1e-8, **at)
    yield from _singular()
    for n, d, sigma in ((9, 2, 0.6), (5, 3, 1.5)):
        x, new, y = torch.randn(n, d).numpy(), torch.randn(4, d).numpy(), torch.randn(n).numpy()
        Phi, phi = _monomials(x), _monomials(new)
        ridge = np.linalg.solve(Phi.T @ Phi + sigma**2 * np.eye(Phi.shape[1]), Phi.T @ y)
        line: Kernel = LinearKernel(bias=1.0)
        fitted = GaussianProcess(line * line, noise=sigma, learn=False).fit(x, y)
        w = _weights((1 + x @ x.T) ** 2, sigma**power, matrix) @ y
        at = {"n": n, "d": d, "sigma": sigma}
        yield equals("mean with noise", fitted.predict(new), phi @ ridge, **at)
        yield equals("formula with noise", (1 + new @ x.T) ** 2 @ w, phi @ ridge, **at)


def _monomials(x: np.ndarray) -> np.ndarray:
    """The features of $(1 + x^T z)^2$: 1, roots of two of each coordinate, products of pairs."""
    pairs = np.stack([np.outer(row, row).ravel() for row in x])
    return np.concatenate([np.ones((len(x), 1)), math.sqrt(2) * x, pairs], 1)


def _singular() -> Iterator[Evidence]:
    """Matrices without an inverse, which a jitter of rounding's size makes up for.

    The data lie in the range of K, so that a jitter j moves the mean by j over the least eigenvalue
    that is not 0, here above 1e-3, and j is below 1e-12; rounding adds as much.
    """
    x, new = grid(5, 2), torch.randn(3, 2).numpy()
    y = x @ torch.randn(2).numpy()
    oracle = new @ x.T @ np.linalg.pinv(x @ x.T, rcond=1e-10) @ y
    fitted = GaussianProcess(LinearKernel(), noise=0.0, learn=False).fit(x, y)
    yield equals("mean, linear kernel", fitted.predict(new), oracle, tol=1e-7, s=5, d=2)
    x, new, k = grid(4, 1)[[0, 1, 2, 3, 1]], grid(3, 1) + 0.4, gaussian(0.5)
    y = torch.randn(4).numpy()[[0, 1, 2, 3, 1]]
    oracle = by_hand(k, new, x) @ np.linalg.pinv(by_hand(k, x, x), rcond=1e-10) @ y
    fitted = GaussianProcess(RBFKernel(), noise=0.0, learn=False).fit(x, y)
    yield equals("mean, a point twice", fitted.predict(new), oracle, tol=1e-7, s=5, d=1)


gp_regression_mean.foil("a kernel smoother", matrix="smoother")
gp_regression_mean.foil("the noise not squared", power=1.0)


@claim(
    by="identity",
    sources=("A-309", "C-272"),
    budget=0.4,
    short=r"\mathrm{Var}[f(x) | y] = k(x, x) - k(x)^\top K^+ k(x),\quad 0 \le \mathrm{Var} \le"
    r" k(x, x)",
)
def gp_regression_variance(sign: float = -1.0, draws: int = 20_000):
    r"""Gaussian process regression: predictive variance.

    $\mathrm{Var}[f(x) \mid y] = k(x, x) - k(x)^\top K^+ k(x)$: the Schur complement, independent of
    the targets, never above the prior variance and 0 at training points (noise-free case). With
    observation noise $\sigma^2$, $(K + \sigma^2 I)^{-1}$ takes the place of $K^+$.

    *Checked* for the covariances and standard deviations of `GaussianProcess` and for the formula,
    on points at least 0.8 apart: against $P_{22}^{-1}$ with the precision matrix $P$ of the joint
    covariance of all values (and of noisy ones), for a point given twice against the formula with
    the pseudoinverse; 0 at training points, at most the prior, the same for other targets; for
    joint draws of a normal law the variance of $f(x) - k(x)^\top K^{-1} y$ is within six standard
    errors.

    Knobs:
        sign: The sign of the second term.
        draws: How many functions are drawn.
    """
    for s, m, d, sigma in ((6, 4, 1, 0.0), (7, 3, 2, 0.5)):
        order, points = torch.randperm(s + m).numpy(), grid(s + m, d)
        x, new, k = points[order[:s]], points[order[s:]], gaussian(0.5)
        joint = 2.0 * by_hand(k, points[order], points[order])
        noisy = joint + np.diag(np.r_[np.full(s, sigma**2), np.zeros(m)])
        oracle = np.linalg.inv(np.linalg.inv(noisy)[s:, s:])
        K, cross = noisy[:s, :s], joint[s:, :s]
        process = GaussianProcess(2.0 * RBFKernel(), noise=sigma, learn=False)
        spreads = []
        for _ in range(2):
            fitted = process.fit(x, torch.randn(s).numpy())
            spreads.append(fitted.predict(new, return_cov=True)[1])
        formula = joint[s:, s:] + sign * cross @ np.linalg.solve(K, cross.T)
        at = {"s": s, "new": m, "d": d, "sigma": sigma}
        yield equals("covariance of GaussianProcess", spreads[0], oracle, tol=1e-8, **at)
        yield equals("covariance for other targets", spreads[1], spreads[0], tol=0.0, **at)
        yield equals("formula", formula, oracle, tol=1e-8, **at)
        std = process.predict(new, return_std=True)[1]
        yield equals("squared standard deviation", std**2, oracle.diagonal().copy(), tol=1e-8, **at)
        yield at_most(
            "formula, of the prior variance 2", formula.diagonal().copy(), 2.0, tol=1e-12, **at
        )
        if not sigma:
            known = process.predict(x, return_std=True)[1]
            yield equals("variance where y is known", known**2, 0.0, tol=1e-8, **at)
        root = np.linalg.cholesky(noisy)
        f = root @ torch.randn(s + m, draws).numpy()
        left = f[s:] - cross @ np.linalg.solve(K, f[:s])
        z = (left.var(1) / formula.diagonal().copy() - 1) / math.sqrt(2 / draws)
        yield at_most("standard errors of the variance left", abs(z), 6.0, tol=0.0, **at)
    yield from _small(sign)


def _small(sign: float) -> Iterator[Evidence]:
    """Cases that are known otherwise, one of them singular."""
    # For singular K, as in the claim on the mean: a jitter below 1e-12 over eigenvalues above 1e-3.
    x, new, k = grid(4, 1)[[0, 1, 2, 3, 1]], grid(3, 1) + 0.4, gaussian(0.5)
    cross = by_hand(k, new, x)
    left = by_hand(k, new, new) + sign * cross @ np.linalg.pinv(by_hand(k, x, x), rcond=1e-10) @ (
        cross.T
    )
    twice = GaussianProcess(RBFKernel(), noise=0.0, learn=False).fit(x, np.zeros(5))
    found = twice.predict(new, return_cov=True)[1]
    yield equals("covariance, a point twice", found, left, tol=1e-7, s=5, new=3, d=1)
    rough = GaussianProcess(MaternKernel(nu=0.5), noise=0.0, learn=False)
    rough.fit(np.array([[0.0], [1.0]]), np.zeros(2))
    middle = rough.predict(np.array([[0.5]]), return_std=True)[1] ** 2
    # A Brownian bridge of the Ornstein-Uhlenbeck process: tanh of half the distance, of 1 / 2.
    yield equals("variance half way, Matern of order 1/2", middle, math.tanh(0.5), s=2, new=1)


gp_regression_variance.foil("the wrong sign", sign=1.0)
gp_regression_variance.foil("twice what the data explain", sign=-2.0)
