"""Gaussian processes: what they are, and their moments."""

import math
from collections.abc import Iterator

import numpy as np
import torch
from scipy import stats

from vademecum.claims import Evidence, at_least, at_most, claim, equals
from vademecum.kernels import GaussianProcess, LinearKernel, RBFKernel
from vademecum.kernels.claims._process_laws import by_hand, follows, gaussian, grid, seed


@claim(
    by="sampling",
    sources=("A-017", "C-261", "C-262"),
    budget=0.8,
    short=r"(f(x_1), \dots, f(x_s)) \text{ normal for all } x_i \iff"
    r" \sum_i \alpha_i f(x_i) \text{ normal for all } \alpha, x_i",
)
def gaussian_process(signs: bool = False, draws: int = 20_000):
    r"""Gaussian process.

    A random function is a Gaussian process if every finite marginal $(f(x_1), \dots, f(x_s))$ is
    jointly (possibly degenerate) normal, equivalently if every finite linear combination $\sum_i
    \alpha_i f(x_i)$ is normal. That each single value is normal is not enough: with a random sign
    $S$, $(Z, S Z)$ has normal margins, and $Z + S Z$ is 0 half of the time.

    *Checked* for functions that `GaussianProcess` draws before it has seen data, and for those it
    draws after, with a mean that is not zero: squared Mahalanobis distances against $\chi^2_s$,
    single values and ten random combinations against $\mathcal N(\alpha^\top \mu, \alpha^\top K
    \alpha)$, by the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart at the level $10^{-8}$
    each; $K$ is computed pair by pair. For a linear kernel and more points than dimensions, a
    combination of no variance is 0.

    Knobs:
        signs: Whether the values at the first point get a random sign, which leaves each of them
            normal.
        draws: How many functions are drawn.
    """
    for s, d, gamma in ((5, 1, 0.5), (4, 2, 0.2)):
        x = grid(s, d)
        process = GaussianProcess(RBFKernel(lengthscale=(2 * gamma) ** -0.5))
        K = by_hand(gaussian(gamma), x, x)
        f = process.sample_y(x, draws, random_state=seed())
        yield from _normal("prior", np.zeros(s), K, _signed(f, signs))
    x, (old, y) = grid(3, 1) + 0.5, (grid(4, 1), 3 + torch.randn(4).numpy())
    k = gaussian(0.5)
    A = by_hand(k, old, old) + 0.09 * np.eye(4)
    cross = np.linalg.solve(A, by_hand(k, old, x)).T
    K = by_hand(k, x, x) - cross @ by_hand(k, old, x)
    fitted = GaussianProcess(RBFKernel(), noise=0.3, learn=False).fit(old, y)
    f = fitted.sample_y(x, draws, random_state=seed())
    yield from _normal("posterior", cross @ y, K, _signed(f, signs))
    x = torch.randn(4, 2).numpy()
    f = GaussianProcess(LinearKernel()).sample_y(x, 100, random_state=seed())
    alpha = np.linalg.svd(x.T)[2][-1]  # orthogonal to both coordinates
    values = alpha @ _signed(f, signs)
    # The root of an eigenvalue that is 0 up to eps |K| is up to sqrt(eps |K|), times a draw.
    tol = 10 * math.sqrt(100 * 2.3e-16 * np.linalg.norm(x) ** 2)
    yield equals("combination of no variance", values, 0.0, tol=tol, s=4, d=2)


def _signed(f: np.ndarray, signs: bool) -> np.ndarray:
    flips = 2.0 * torch.randint(2, (f.shape[1],)).numpy() - 1
    return np.concatenate([f[:1] * flips, f[1:]]) if signs else f


def _normal(name: str, mean: np.ndarray, K: np.ndarray, f: np.ndarray) -> Iterator[Evidence]:
    s, gap = len(mean), f - mean[:, None]
    if name == "prior":  # where the sign changes nothing
        for i in range(s):
            law = stats.norm(mean[i], math.sqrt(K[i, i]))
            yield follows("distance of a single value", f[i], law, s=s, i=i)
    forms = (gap * np.linalg.solve(K, gap)).sum(0)
    yield follows(f"distance of Mahalanobis distances, {name}", forms, stats.chi2(s), s=s)
    for i in range(10):
        alpha = np.ones(s) if i == 0 else torch.randn(s).numpy()
        law = stats.norm(alpha @ mean, math.sqrt(alpha @ K @ alpha))
        yield follows(f"distance of a combination, {name}", alpha @ f, law, s=s, i=i)


gaussian_process.foil("values that are normal one by one only", signs=True)


@claim(
    by="sampling",
    sources=("C-263", "C-264"),
    budget=0.6,
    short=r"\mu(x) = E f(x),\quad k(x, \xi) = E[f(x) f(\xi)] - \mu(x) \mu(\xi)",
)
def gp_moments(centred: bool = True, draws: int = 20_000):
    r"""Mean and covariance function of a Gaussian process.

    $\mu(x) = \mathbb E[f(x)]$ and $k(x, \xi) = \mathbb E[f(x) f(\xi)] - \mu(x) \mu(\xi)$, a
    positive semidefinite kernel; together they determine the law of the process.

    *Checked* for $f(x) = \sum_j w_j \varphi_j(x)$ with normal weights $w \sim \mathcal N(m, S)$,
    where $\mu = m^\top \varphi(x)$ and $k = \varphi(x)^\top S \varphi(\xi)$. It is a process with
    kernel $\varphi(x)^\top \varphi(\xi)$ after noisy data, for which $S = (\Phi^\top \Phi /
    \sigma^2 + I)^{-1}$ and $m = S \Phi^\top y / \sigma^2$: mean and covariance of
    `GaussianProcess`, which knows no weights, equal these; its draws have these moments within six
    standard errors, entry by entry; their combinations have the normal law that follows (at the
    level $10^{-8}$ each).

    Knobs:
        centred: Whether the product of the means is subtracted.
        draws: How many functions are drawn.
    """
    for s, n, p, sigma in ((4, 6, 3, 0.5), (3, 5, 7, 1.2)):
        angles, phases = torch.randn(p, 2), torch.randn(p)
        old, new = torch.randn(n, 2), torch.randn(s, 2)
        y = 4 + torch.randn(n)

        def features(x, angles=angles, phases=phases):
            return torch.cos(x @ angles.T + phases)

        phi, Phi = features(new), features(old)
        S = torch.linalg.inv(Phi.T @ Phi / sigma**2 + torch.eye(p))
        mean, K = phi @ (S @ Phi.T @ y / sigma**2), phi @ S @ phi.T
        process = GaussianProcess(lambda a, b, f=features: f(a) @ f(b).T, noise=sigma).fit(old, y)
        found, covariance = process.predict(new, return_cov=True)
        at = {"s": s, "n": n, "features": p}
        yield equals("mean function", found, mean, **at)
        yield equals("covariance function", covariance, K, **at)
        lowest = torch.linalg.eigvalsh(covariance)[0]
        yield at_least("smallest eigenvalue", lowest, 0.0, tol=1e-12, **at)
        f = process.sample_y(new, draws, random_state=seed())
        variance = K.diagonal()
        z = (f.mean(1) - mean) / (variance / draws).sqrt()
        # Beyond six: 2e-9 for each of 25 entries, somewhat more for products.
        yield at_most("standard errors of the means", z.abs(), 6.0, tol=0.0, **at)
        second = f @ f.T / draws - centred * torch.outer(f.mean(1), f.mean(1))
        errors = ((torch.outer(variance, variance) + K.square()) / draws).sqrt()
        yield at_most(
            "standard errors of the covariances", ((second - K) / errors).abs(), 6.0, tol=0.0, **at
        )
        for _ in range(5):
            a = torch.randn(s)
            law = stats.norm(float(a @ mean), math.sqrt(float(a @ K @ a)))
            yield follows("distance of a combination", (a @ f).numpy(), law, **at)


gp_moments.foil("the second moment, not centred", centred=False)
