"""Examples with latent factors, and oracles for them that share no code with the room."""

import math

import numpy as np
from scipy.optimize import minimize
from scipy.stats import multivariate_normal


def with_factors(n=400, d=6, k=2, *, draw=0, low=0.2, high=1.0, shift=3.0):
    """Examples of a random model: noise variances are uniform."""
    rng = np.random.default_rng(draw)
    psi = rng.uniform(low, high, d)
    W = rng.normal(size=(d, k))
    x = rng.normal(size=(n, k)) @ W.T + rng.normal(size=(n, d)) * np.sqrt(psi)
    return x + shift


def with_gaps(x, share=0.3, *, draw=0):
    """The same examples with entries missing; some rows are complete, one has nothing."""
    rng = np.random.default_rng(draw)
    x = np.where(rng.random(x.shape) < share, np.nan, x)
    x[3] = np.nan
    return x


def observed_log_density(x, mean, covariance):
    """The log-density of what there is of each row, by SciPy."""
    values = []
    for row in np.asarray(x, dtype=np.float64):
        there = ~np.isnan(row)
        block = covariance[np.ix_(there, there)]
        law = multivariate_normal(mean[there], block) if there.any() else None
        values.append(law.logpdf(row[there]) if law else 0.0)
    return np.array(values)


def best_likelihood(x, k, *, common, starts=3):
    """The largest mean log-likelihood that BFGS finds, by finite sums over patterns, in NumPy."""
    n, d = x.shape
    there = ~np.isnan(x)
    patterns, group = np.unique(there, axis=0, return_inverse=True)
    kinds = 1 if common else d

    def minus(theta):
        mean, W, logs = theta[:d], theta[d : d + d * k].reshape(d, k), theta[d + d * k :]
        A = W @ W.T + np.diag(np.exp(np.broadcast_to(logs, d)))
        value, g_mean, g_A = 0.0, np.zeros(d), np.zeros((d, d))
        for i, seen in enumerate(patterns):
            if not seen.any():
                continue
            z = x[group == i][:, seen] - mean[seen]
            P = np.linalg.inv(A[np.ix_(seen, seen)])
            m = len(z)
            value += 0.5 * ((z @ P * z).sum() - m * np.linalg.slogdet(P)[1])
            value += 0.5 * m * seen.sum() * math.log(2 * math.pi)
            g_mean[seen] -= (z @ P).sum(0)
            g_A[np.ix_(seen, seen)] += 0.5 * (m * P - P @ z.T @ z @ P)
        noise = np.diag(g_A) * np.exp(np.broadcast_to(logs, d))
        g_logs = noise.sum(keepdims=True) if common else noise
        return value / n, np.concatenate([g_mean, (2 * g_A @ W).ravel(), g_logs]) / n

    rng = np.random.default_rng(1)
    best = -math.inf
    for _ in range(starts):
        W = rng.normal(size=d * k) * np.nanstd(x)
        start = np.concatenate([np.nanmean(x, 0), W, np.zeros(kinds)])
        options = {"maxiter": 3000, "gtol": 1e-8}
        best = max(best, -minimize(minus, start, jac=True, method="BFGS", options=options).fun)
    return best
